//! Memory that programs give to requests: slices of regions, and buffers that are owned.
//!
//! Slices of memory, for local use and for peers.

use std::ops::{Bound, RangeBounds};

use pumice_transport::types::Sge;

use crate::error::{Result, VerbsError};

/// A local buffer of a request: address, bytes and L_Key, checked when the request executes.
/// [`crate::MemoryRegion::slice`] makes one.
pub type LocalSlice = Sge;

/// A slice of a peer's memory, which a WRITE, READ or atomic names. Exchange it out of band, as its 16 bytes.
/// It grants no access by itself: the owner's region does, as long as it is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteSlice {
    /// Address of the first byte, as its owner's region has it.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length in bytes.
    pub length: u32,
}

impl RemoteSlice {
    /// Length of the encoded form in bytes.
    pub const LEN: usize = 16;

    /// Returns a part of the slice, by byte offsets inside it.
    ///
    /// # Errors
    /// `Invalid`: the range leaves the slice.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<RemoteSlice> {
        let (start, length) = resolve("remote slice", range, u64::from(self.length))?;
        Ok(RemoteSlice { address: self.address.wrapping_add(start), rkey: self.rkey, length })
    }

    /// Encodes address (8 bytes), R_Key (4) and length (4); big-endian.
    pub fn to_bytes(&self) -> [u8; 16] {
        let numbers = u128::from(self.address) << 64 | u128::from(self.rkey) << 32 | u128::from(self.length);
        numbers.to_be_bytes()
    }

    /// Decodes what [`RemoteSlice::to_bytes`] encoded.
    pub fn from_bytes(bytes: &[u8; 16]) -> RemoteSlice {
        let numbers = u128::from_be_bytes(*bytes);
        RemoteSlice { address: (numbers >> 64) as u64, rkey: (numbers >> 32) as u32, length: numbers as u32 }
    }
}

/// Converts a range to its offset and length inside `total` bytes.
pub(crate) fn resolve(
    object: &'static str,
    range: impl RangeBounds<usize>,
    total: u64,
) -> Result<(u64, u32)> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start as u64,
        Bound::Excluded(&start) => (start as u64).saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => (end as u64).saturating_add(1),
        Bound::Excluded(&end) => end as u64,
        Bound::Unbounded => total,
    };
    let outside = |problem, remedy| VerbsError::Invalid { object, attribute: "range", problem, remedy };
    if start > end || end > total {
        let problem = format!("{start}..{end} is not inside its {total} bytes");
        return Err(outside(problem, "choose a range inside, start before end"));
    }
    let length = u32::try_from(end - start)
        .map_err(|_| outside(format!("{start}..{end} is longer than 2^32 - 1 bytes"), "take it in parts"))?;
    Ok((start, length))
}

pub(crate) mod buffer;

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: RemoteSlice = RemoteSlice { address: 0x1000, rkey: 0x0102_0304, length: 100 };

    #[test]
    fn parts_stay_inside() {
        let part = WHOLE.slice(10..=19).unwrap();
        assert_eq!((part.address, part.rkey, part.length), (0x100a, WHOLE.rkey, 10));
        assert_eq!(WHOLE.slice(..).unwrap(), WHOLE);
        assert_eq!(WHOLE.slice(100..).unwrap().length, 0);
        assert_eq!(part.slice(5..).unwrap().address, 0x100f);
        #[expect(clippy::reversed_empty_ranges)]
        let wrong = [WHOLE.slice(..101), WHOLE.slice(101..), WHOLE.slice(7..5), WHOLE.slice(..=usize::MAX)];
        for wrong in wrong {
            assert_eq!(wrong.unwrap_err().attribute().as_deref(), Some("range"));
        }
    }

    #[test]
    fn bytes_and_slices_are_inverses() {
        let bytes = WHOLE.to_bytes();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0x10, 0, 1, 2, 3, 4, 0, 0, 0, 100]);
        assert_eq!(RemoteSlice::from_bytes(&bytes), WHOLE);
        let odd = RemoteSlice { address: u64::MAX - 7, rkey: u32::MAX, length: u32::MAX };
        assert_eq!(RemoteSlice::from_bytes(&odd.to_bytes()), odd);
    }
}
