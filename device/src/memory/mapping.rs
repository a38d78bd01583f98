//! What the process has mapped, as the kernel tells it.

use std::fs::File;
use std::io::{BufRead, BufReader};

use crate::error::ResourceError;

/// Checks that a range is mapped readable, and writable with `write`: what a registration would pin.
/// Where the kernel does not tell (no procfs), everything passes.
///
/// # Errors
/// `BadAddress`: a part of it is not.
pub fn check_mapped(address: u64, length: u64, write: bool) -> Result<(), ResourceError> {
    if length == 0 {
        return Ok(());
    }
    let Ok(maps) = File::open("/proc/self/maps") else { return Ok(()) };
    let end = address.saturating_add(length);
    let mut covered_to = address;
    let mut reader = BufReader::with_capacity(1 << 14, maps);
    let mut line = Vec::with_capacity(256);
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(_) => return Ok(()),
        }
        let Some(mapping) = Mapping::parse(&line) else { continue };
        if mapping.end <= covered_to {
            continue;
        }
        if mapping.start > covered_to || !mapping.readable || (write && !mapping.writable) {
            break;
        }
        covered_to = mapping.end;
        if covered_to >= end {
            return Ok(());
        }
    }
    Err(ResourceError::BadAddress { address, length })
}

/// A line of the list: `start-end rights …`, the addresses in hexadecimal.
struct Mapping {
    start: u64,
    end: u64,
    readable: bool,
    writable: bool,
}

impl Mapping {
    fn parse(line: &[u8]) -> Option<Mapping> {
        let mut words = line.split(|byte| *byte == b' ');
        let mut bounds = words.next()?.split(|byte| *byte == b'-').map(hexadecimal);
        let rights = words.next()?;
        Some(Mapping {
            start: bounds.next()??,
            end: bounds.next()??,
            readable: rights.contains(&b'r'),
            writable: rights.contains(&b'w'),
        })
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = b"7f10a000-7f10b000 r--p 00001000 fd:00 131 /usr/lib/x y.so\n";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f10_a000, 0x7f10_b000));
        assert!(mapping.readable && !mapping.writable);
        for bad in [&b""[..], b"x-y r--p", b"12", b"12 rw", b"1-2"] {
            assert!(Mapping::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn ranges_are_mapped_with_their_rights_or_not() {
        static CONSTANT: [u8; 9] = [3; 9];
        let here = CONSTANT.as_ptr() as u64;
        let buffer = vec![0_u8; 3 << 20];
        let writable = buffer.as_ptr() as u64;
        assert_eq!(check_mapped(here, 9, false), Ok(()));
        assert_eq!(check_mapped(writable, 3 << 20, true), Ok(()));
        let bad = |address, length, write| check_mapped(address, length, write).unwrap_err().errno();
        assert_eq!(bad(here, 9, true), libc::EFAULT);
        assert_eq!(bad(writable, 1 << 46, true), libc::EFAULT);
        assert_eq!(bad(8, 1, false), libc::EFAULT);
        assert_eq!(bad(u64::MAX, 1, false), libc::EFAULT);
        assert_eq!(check_mapped(8, 0, true), Ok(()));
    }
}
