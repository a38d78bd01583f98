//! Private data that the two sides exchange when they connect, as values.

use crate::buffers::slice::RemoteSlice;
use crate::error::{Result, VerbsError};
use crate::rejection::Rejection;

/// A value that travels as private data: 56 bytes fit a request, 196 an acceptance, 148 a rejection, and a
/// type that is too long for where it is used does not compile. The length is not on the wire: the reader
/// gets what was written, and zeros after it.
///
/// The trait is implemented for `()`, arrays of bytes, numbers (big-endian), [`RemoteSlice`], and pairs of
/// such values.
///
/// ```
/// use pumice_verbs::rdma_cm::PrivateData;
///
/// /// How many of which memory.
/// struct Offer {
///     blocks: u32,
///     block_bytes: u32,
/// }
///
/// impl PrivateData for Offer {
///     const LEN: usize = 8;
///
///     fn write(&self, to: &mut [u8]) {
///         (self.blocks, self.block_bytes).write(to);
///     }
///
///     fn read(from: &[u8]) -> Option<Offer> {
///         let (blocks, block_bytes) = PrivateData::read(from)?;
///         (blocks > 0).then_some(Offer { blocks, block_bytes })
///     }
/// }
///
/// let mut bytes = [0; 8];
/// Offer { blocks: 2, block_bytes: 4096 }.write(&mut bytes);
/// assert_eq!(bytes, [0, 0, 0, 2, 0, 0, 0x10, 0]);
/// assert!(Offer::read(&[0; 8]).is_none());
/// ```
///
/// A request has no room for 57 bytes:
///
/// ```compile_fail
/// # use pumice_verbs::{Connection, ConnectionParams, RcQueuePair};
/// fn ask(qp: &RcQueuePair) {
///     let peer = ([10, 0, 0, 1], 7471).into();
///     drop(Connection::start(qp, peer, &ConnectionParams::default(), &[0_u8; 57]));
/// }
/// # let _: fn(&RcQueuePair) = ask;
/// ```
pub trait PrivateData: Sized {
    /// Length of the encoded form in bytes.
    const LEN: usize;

    /// Writes the value to `LEN` bytes, which are zero.
    fn write(&self, to: &mut [u8]);

    /// Decodes the value from at least `LEN` bytes, which any host may have sent; `None` if they are no such
    /// value.
    fn read(from: &[u8]) -> Option<Self>;
}

/// Returns the bytes of a value.
pub(super) fn written<P: PrivateData>(value: &P) -> Vec<u8> {
    let mut bytes = vec![0; P::LEN];
    value.write(&mut bytes);
    bytes
}

/// Decodes the value in private data that was received.
pub(super) fn value<P: PrivateData>(bytes: &[u8]) -> Result<P> {
    let found = if bytes.len() < P::LEN { None } else { P::read(bytes) };
    found.ok_or_else(|| VerbsError::Invalid {
        object: "connection",
        attribute: "private_data",
        problem: format!("of {} bytes is not what was expected", bytes.len()),
        remedy: "agree with the peer on the type of private data",
    })
}

impl Rejection {
    /// Returns the private data of the rejection.
    ///
    /// # Errors
    /// `Invalid`: it is not of this type.
    pub fn private_data<P: PrivateData>(&self) -> Result<P> {
        value(&self.private_data)
    }
}

impl PrivateData for () {
    const LEN: usize = 0;

    fn write(&self, _: &mut [u8]) {}

    fn read(_: &[u8]) -> Option<()> {
        Some(())
    }
}

impl<const N: usize> PrivateData for [u8; N] {
    const LEN: usize = N;

    fn write(&self, to: &mut [u8]) {
        to.iter_mut().zip(self).for_each(|(target, byte)| *target = *byte);
    }

    fn read(from: &[u8]) -> Option<[u8; N]> {
        from.first_chunk().copied()
    }
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl PrivateData for $number {
            const LEN: usize = size_of::<$number>();

            fn write(&self, to: &mut [u8]) {
                self.to_be_bytes().write(to);
            }

            fn read(from: &[u8]) -> Option<$number> {
                PrivateData::read(from).map(<$number>::from_be_bytes)
            }
        }
    )*};
}

number!(u8, u16, u32, u64, u128);

impl PrivateData for RemoteSlice {
    const LEN: usize = RemoteSlice::LEN;

    fn write(&self, to: &mut [u8]) {
        self.to_bytes().write(to);
    }

    fn read(from: &[u8]) -> Option<RemoteSlice> {
        from.first_chunk().map(RemoteSlice::from_bytes)
    }
}

impl<A: PrivateData, B: PrivateData> PrivateData for (A, B) {
    const LEN: usize = A::LEN + B::LEN;

    fn write(&self, to: &mut [u8]) {
        if let Some((first, second)) = to.split_at_mut_checked(A::LEN) {
            self.0.write(first);
            self.1.write(second);
        }
    }

    fn read(from: &[u8]) -> Option<(A, B)> {
        let (first, second) = from.split_at_checked(A::LEN)?;
        Some((A::read(first)?, B::read(second)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_from_padded_bytes() {
        let slice = RemoteSlice { address: 1 << 40, rkey: 7, length: 100 };
        let whole = ((0x1234_u16, slice), [1_u8, 2, 3]);
        let mut bytes = written(&whole);
        assert_eq!(bytes.len(), 2 + 16 + 3);
        assert_eq!(bytes[..2], [0x12, 0x34]);
        bytes.resize(56, 0);
        assert_eq!(value::<((u16, RemoteSlice), [u8; 3])>(&bytes).unwrap(), whole);
        value::<()>(&bytes).unwrap();
        assert_eq!(value::<u64>(&bytes[..7]).unwrap_err().attribute().as_deref(), Some("private_data"));
    }
}
