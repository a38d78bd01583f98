//! The digest of the bytes that a call has moved: two runs are alike only if they read and write the same.

use syscalls::Sysno;

use super::threads::Call;
use super::tracee::Tracee;

/// Maximum number of bytes of one call that are in its digest.
const MOST_BYTES: u64 = 16 << 20;
/// Maximum number of parts of a vector, and of messages, as in the kernel.
const MOST_PARTS: u64 = 1024;
/// Length of a `mmsghdr`, and the offset of its number of bytes.
const MESSAGE_BYTES: u64 = 64;
const MOVED_AT: u64 = 56;
/// Offsets of the vector in a `msghdr`, and of the number of its parts.
const VECTOR_AT: u64 = 16;
const PARTS_AT: u64 = 24;
/// Number of bytes that are read at once.
const PIECE: usize = 1 << 16;

/// Returns the digest of the bytes that a call has moved, of which it returned this number (of messages, if
/// it moves several); `None` if it moved none, or none that are in memory.
pub(crate) fn digest(tracee: Tracee, call: &Call, result: i64) -> Option<u32> {
    let moved = u64::try_from(result).ok().filter(|moved| *moved > 0)?;
    let [_, second, third, ..] = call.arguments();
    let mut hash = Hash::default();
    match Sysno::new(call.number as usize)? {
        Sysno::read | Sysno::write | Sysno::recvfrom | Sysno::sendto => {
            hash.add_memory(tracee, second, moved)?;
        }
        Sysno::readv | Sysno::writev => hash.add_vector(tracee, second, third, moved)?,
        Sysno::recvmsg | Sysno::sendmsg => hash.add_message(tracee, second, moved)?,
        Sysno::recvmmsg | Sysno::sendmmsg => {
            for index in 0..moved.min(MOST_PARTS) {
                let message = second.wrapping_add(index * MESSAGE_BYTES);
                let bytes = tracee.read_u32(message.wrapping_add(MOVED_AT)).ok()?;
                hash.add_message(tracee, message, bytes.into())?;
            }
        }
        _ => return None,
    }
    Some(hash.end())
}

/// A digest of bytes that is being computed, a word at a time.
struct Hash(u64);

impl Default for Hash {
    fn default() -> Hash {
        Hash(0x243f_6a88_85a3_08d3)
    }
}

impl Hash {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_ne_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.add(u64::from_ne_bytes(last) ^ bytes.len() as u64);
    }

    fn add_memory(&mut self, tracee: Tracee, address: u64, bytes: u64) -> Option<()> {
        let (mut at, mut left) = (address, bytes.min(MOST_BYTES) as usize);
        let mut piece = vec![0; left.min(PIECE)];
        while left > 0 {
            let part = piece.get_mut(..left.min(PIECE))?;
            tracee.read(at, part).ok()?;
            self.add_bytes(part);
            at = at.wrapping_add(part.len() as u64);
            left -= part.len();
        }
        Some(())
    }

    /// Adds the first bytes of a vector.
    fn add_vector(&mut self, tracee: Tracee, vector: u64, parts: u64, bytes: u64) -> Option<()> {
        let mut left = bytes;
        for index in 0..parts.min(MOST_PARTS) {
            if left == 0 {
                break;
            }
            let part = vector.wrapping_add(index * 16);
            let length = tracee.read_u64(part.wrapping_add(8)).ok()?.min(left);
            self.add_memory(tracee, tracee.read_u64(part).ok()?, length)?;
            left -= length;
        }
        Some(())
    }

    /// Adds the first bytes of a message, which a `msghdr` describes.
    fn add_message(&mut self, tracee: Tracee, message: u64, bytes: u64) -> Option<()> {
        let vector = tracee.read_u64(message.wrapping_add(VECTOR_AT)).ok()?;
        let parts = tracee.read_u64(message.wrapping_add(PARTS_AT)).ok()?;
        self.add_vector(tracee, vector, parts, bytes)
    }

    fn end(self) -> u32 {
        (self.0 >> 32) as u32 ^ self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_differs_changes_the_digest() {
        let of = |bytes: &[u8]| {
            let mut hash = Hash::default();
            hash.add_bytes(bytes);
            hash.end()
        };
        assert_eq!(of(b"twenty bytes of text"), of(b"twenty bytes of text"));
        for other in [&b"twenty bytes of texT"[..], b"Twenty bytes of text", b"twenty bytes of tex", b""] {
            assert_ne!(of(b"twenty bytes of text"), of(other));
        }
        assert_ne!(of(b""), of(b"\0"));
    }
}
