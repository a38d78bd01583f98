//! Whose memory a word is in: for words that several threads or processes share.

use std::fs;

use super::tracee::Tracee;

/// A word of memory, in all processes that have it mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Word {
    /// Of one process.
    Own {
        /// The process, by its order of birth.
        process: u32,
        /// Its address.
        address: u64,
    },
    /// Of a file or of memory without a name that is shared.
    Shared {
        /// The device and inode.
        file: (u64, u64),
        /// Where in it, in bytes.
        offset: u64,
    },
}

/// Which word this is, in the memory of `tracee`, of the process with this number.
pub(crate) fn word(tracee: Tracee, process: u32, address: u64, is_private: bool) -> Word {
    let own = Word::Own { process, address };
    if is_private {
        return own;
    }
    let maps = fs::read_to_string(format!("/proc/{}/maps", tracee.0)).unwrap_or_default();
    maps.lines().find_map(|line| shared_word(line, address)).unwrap_or(own)
}

/// The word at this address, if this line of a process's map is the mapping that it is in, and is shared.
fn shared_word(line: &str, address: u64) -> Option<Word> {
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
    Some(Word::Shared { file, offset: begin + (address - start) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_word_is_the_same_wherever_it_is_mapped() {
        let one = shared_word("7f00-8f00 rw-s 00001000 00:01 77 /dev/shm/x", 0x7f10);
        let other = shared_word("a000-b000 rw-s 00000000 00:01 77", 0xb010 - 0x10);
        assert_eq!(one, Some(Word::Shared { file: (1, 77), offset: 0x1010 }));
        assert_eq!(other, None);
        assert_eq!(shared_word("7f00-8f00 rw-p 00001000 00:01 77 /dev/shm/x", 0x7f10), None);
        assert_eq!(shared_word("nothing", 1), None);
    }
}
