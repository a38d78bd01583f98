//! The identity of a word in memory, for words that several threads or processes share.

use std::fs;

use super::tracee::Tracee;

/// The device and inode of a mapped file, the offset of the mapping in it, and its length.
pub(crate) type MappingKey = (u64, u64, u64, u64);

/// A word of memory, the same in all processes that have it mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FutexKey {
    /// A word of private memory of one process.
    Private {
        /// Process, by its order of birth.
        process: u32,
        /// Address of the word.
        address: u64,
    },
    /// A word of a file, or of shared anonymous memory.
    Shared {
        /// Device and inode of the memory.
        file: (u64, u64),
        /// Offset in the memory, in bytes.
        offset: u64,
    },
}

/// Returns the identity of the word at an address in the memory of `tracee`, a thread of `process`.
pub(crate) fn futex_key(tracee: Tracee, process: u32, address: u64, is_private: bool) -> FutexKey {
    let private = FutexKey::Private { process, address };
    if is_private {
        return private;
    }
    let maps = fs::read_to_string(format!("/proc/{}/maps", tracee.0)).unwrap_or_default();
    maps.lines().find_map(|line| shared_futex_key(line, address)).unwrap_or(private)
}

/// Returns the shared word at this address, if this line of a process's map is the mapping that contains it,
/// and is shared.
fn shared_futex_key(line: &str, address: u64) -> Option<FutexKey> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let is_shared = fields.next()?.contains('s');
    if !(start..end).contains(&address) || !is_shared {
        return None;
    }
    let (begin, device, inode) = (hex(fields.next()?)?, fields.next()?, fields.next()?);
    let (major, minor) = device.split_once(':')?;
    let file = (hex(major)? << 32 | hex(minor)?, inode.parse().ok()?);
    Some(FutexKey::Shared { file, offset: begin + (address - start) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_futex_is_the_same_wherever_it_is_mapped() {
        let one = shared_futex_key("7f00-8f00 rw-s 00001000 00:01 77 /dev/shm/x", 0x7f10);
        let other = shared_futex_key("a000-b000 rw-s 00000000 00:01 77", 0xb010 - 0x10);
        assert_eq!(one, Some(FutexKey::Shared { file: (1, 77), offset: 0x1010 }));
        assert_eq!(other, None);
        assert_eq!(shared_futex_key("7f00-8f00 rw-p 00001000 00:01 77 /dev/shm/x", 0x7f10), None);
        assert_eq!(shared_futex_key("nothing", 1), None);
    }
}
