//! Private data: bytes that the consumers send each other in a message. Its length is not on the wire; the
//! rest of the space is zero.

use core::fmt;
use core::ops::Deref;

/// Private data of a message with room for `N` bytes, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData<const N: usize>(pub [u8; N]);

/// Error of private data that the message has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateDataTooLong {
    /// Number of bytes given.
    pub length_bytes: usize,
    /// Number of bytes that fit.
    pub limit_bytes: usize,
}

impl<const N: usize> PrivateData<N> {
    /// Empty private data: all zeros.
    pub const NONE: PrivateData<N> = PrivateData([0; N]);

    /// Creates private data of these bytes, padded with zeros.
    ///
    /// # Errors
    /// Fails if there are more than `N` bytes.
    pub fn new(bytes: &[u8]) -> Result<PrivateData<N>, PrivateDataTooLong> {
        let mut padded = [0; N];
        let error = PrivateDataTooLong { length_bytes: bytes.len(), limit_bytes: N };
        //= man:rdma_get_cm_event
        //| Private data may be longer than what the peer has sent, and the rest is zero.
        padded.get_mut(..bytes.len()).ok_or(error)?.copy_from_slice(bytes);
        Ok(PrivateData(padded))
    }
}

impl<const N: usize> Default for PrivateData<N> {
    fn default() -> PrivateData<N> {
        PrivateData::NONE
    }
}

impl<const N: usize> Deref for PrivateData<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<const N: usize> fmt::Debug for PrivateData<N> {
    /// Prints the bytes without the padding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.0.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        write!(f, "PrivateData<{N}>{:02x?}", self.0.get(..used).unwrap_or(&[]))
    }
}

impl fmt::Display for PrivateDataTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PrivateDataTooLong { length_bytes, limit_bytes } = self;
        write!(
            f,
            "{length_bytes} bytes of private data do not fit: this message carries at most {limit_bytes}"
        )
    }
}

impl core::error::Error for PrivateDataTooLong {}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString};

    use super::*;

    #[test]
    fn short_data_is_padded_and_long_data_refused() {
        let data = PrivateData::<8>::new(b"abc").unwrap();
        assert_eq!(data.0, *b"abc\0\0\0\0\0");
        assert_eq!(format!("{data:?}"), "PrivateData<8>[61, 62, 63]");
        assert_eq!(PrivateData::<8>::new(b"").unwrap(), PrivateData::NONE);
        assert!(PrivateData::<8>::new(&[1; 8]).is_ok());
        let error = PrivateData::<8>::new(&[1; 9]).unwrap_err();
        assert_eq!(error.to_string(), "9 bytes of private data do not fit: this message carries at most 8");
    }
}
