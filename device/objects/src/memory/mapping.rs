//! What the process has mapped, as the kernel tells it.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::AsRawFd;

use pumice_ground::error::ResourceError;
use pumice_ground::outside;

use super::on_demand;

/// Checks that a range is mapped readable, and writable with `write`, and not behind the end of a file: what
/// a registration would pin. Where the kernel does not tell (no procfs), everything passes. True: some of it
/// is of files.
///
/// # Errors
/// `BadAddress`: a part of it is not.
pub fn check_mapped(address: u64, length: u64, write: bool) -> Result<bool, ResourceError> {
    if length == 0 {
        return Ok(false);
    }
    let Ok(maps) = outside::files::open("/proc/self/maps") else { return Ok(false) };
    let wanted = Wanted { address, end: address.saturating_add(length), write, has_files: Cell::new(false) };
    let covered = wanted.is_covered_by_queries(&maps).unwrap_or_else(|| wanted.is_covered_by_list(maps));
    if covered { Ok(wanted.has_files.get()) } else { Err(ResourceError::BadAddress { address, length }) }
}

/// The mapping that has an address; none too where the kernel does not tell.
pub fn mapping_at(address: u64) -> Option<Range<u64>> {
    let maps = outside::files::open("/proc/self/maps").ok()?;
    if let Some(answer) = Query::ask(&maps, address) {
        return answer.map(|mapping| mapping.start..mapping.end);
    }
    let lines = BufReader::with_capacity(1 << 14, maps).split(b'\n').map_while(Result::ok);
    let mappings = lines.filter_map(|line| Mapping::parse(&line));
    mappings.map(|mapping| mapping.start..mapping.end).find(|range| range.contains(&address))
}

/// A range that should be mapped with rights.
struct Wanted {
    address: u64,
    end: u64,
    write: bool,
    /// Set when a mapped file is met.
    has_files: Cell<bool>,
}

impl Wanted {
    fn is_granted_by(&self, mapping: &Mapping) -> bool {
        mapping.readable && (mapping.writable || !self.write) && self.has_pages_of(mapping)
    }

    /// Whether the range's last page in a mapped file is there: then those before it are. Pages of other
    /// memory come with the first access.
    fn has_pages_of(&self, mapping: &Mapping) -> bool {
        self.has_files.set(self.has_files.get() || mapping.is_file);
        let last = mapping.end.min(self.end).saturating_sub(1);
        let can_look = mapping.is_file && last >= self.address && on_demand::is_available();
        !can_look || on_demand::load(last, &mut [0]).is_ok()
    }

    /// Asks for one mapping after the other, which Linux answers since 6.11; none if it does not.
    fn is_covered_by_queries(&self, maps: &File) -> Option<bool> {
        let mut covered_to = self.address;
        while covered_to < self.end {
            let Some(mapping) = Query::ask(maps, covered_to)? else { return Some(false) };
            if !self.is_granted_by(&mapping) || mapping.end <= covered_to {
                return Some(false);
            }
            covered_to = mapping.end;
        }
        Some(true)
    }

    /// Reads the list of all mappings, up to those of the range.
    fn is_covered_by_list(&self, maps: File) -> bool {
        let mut covered_to = self.address;
        let mut reader = BufReader::with_capacity(1 << 14, maps);
        let mut line = Vec::with_capacity(256);
        while covered_to < self.end {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => return false,
                Ok(_) => {}
                // What cannot be read says nothing.
                Err(_) => return true,
            }
            let Some(mapping) = Mapping::parse(&line) else { continue };
            if mapping.end <= covered_to {
                continue;
            }
            if mapping.start > covered_to || !self.is_granted_by(&mapping) {
                return false;
            }
            covered_to = mapping.end;
        }
        true
    }
}

/// `struct procmap_query` of linux/fs.h.
#[derive(Default)]
#[repr(C)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    /// Device, lengths and addresses of texts: not asked for.
    rest: [u64; 4],
}

impl Query {
    /// `PROCMAP_QUERY`: `_IOWR('f', 17, struct procmap_query)`.
    const REQUEST: u32 = 3 << 30 | (size_of::<Query>() as u32) << 16 | (b'f' as u32) << 8 | 17;
    const READABLE: u64 = 1;
    const WRITABLE: u64 = 2;

    /// The mapping at an address: `Some(None)` if there is none, `None` if the kernel does not tell.
    fn ask(maps: &File, address: u64) -> Option<Option<Mapping>> {
        let mut query = Query { size: size_of::<Query>() as u64, query_addr: address, ..Query::default() };
        // SAFETY: a structure of the size that the request says, for the kernel to write to.
        let outcome = unsafe { libc::ioctl(maps.as_raw_fd(), Query::REQUEST as _, &raw mut query) };
        if outcome == 0 {
            return Some(Some(Mapping {
                start: query.vma_start,
                end: query.vma_end,
                readable: query.vma_flags & Query::READABLE != 0,
                writable: query.vma_flags & Query::WRITABLE != 0,
                is_file: query.inode != 0,
            }));
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOENT) => Some(None),
            _ => None,
        }
    }
}

/// Part of the address space. A line of the list is `start-end rights offset device inode …`, the addresses
/// in hexadecimal.
struct Mapping {
    start: u64,
    end: u64,
    readable: bool,
    writable: bool,
    /// Not memory that is the process's alone.
    is_file: bool,
}

impl Mapping {
    fn parse(line: &[u8]) -> Option<Mapping> {
        let mut words = line.split(|byte| *byte == b' ');
        let mut bounds = words.next()?.split(|byte| *byte == b'-').map(hexadecimal);
        let rights = words.next()?;
        let inode = words.nth(2)?;
        Some(Mapping {
            start: bounds.next()??,
            end: bounds.next()??,
            readable: rights.contains(&b'r'),
            writable: rights.contains(&b'w'),
            is_file: inode != b"0",
        })
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use memmap2::MmapOptions;
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn lines_are_read() {
        let line = b"7f10a000-7f10b000 r--p 00001000 fd:00 131 /usr/lib/x y.so\n";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f10_a000, 0x7f10_b000));
        assert!(mapping.readable && !mapping.writable && mapping.is_file);
        assert!(!Mapping::parse(b"7f10a000-7f10b000 rw-p 00000000 00:00 0 \n").unwrap().is_file);
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
        // (first, bytes, write, mapped)
        let table = [
            (here, 9, false, true),
            (writable, 3 << 20, true, true),
            (here, 9, true, false),
            (writable, 1 << 46, true, false),
            (8, 1, false, false),
            (u64::MAX - 9, 9, false, false),
        ];
        for (address, length, write, mapped) in table {
            let result = check_mapped(address, length, write);
            assert_eq!(
                result.map(|_| ()).map_err(|error| error.errno()),
                if mapped { Ok(()) } else { Err(libc::EFAULT) }
            );
            let has_files = Cell::new(false);
            let wanted = Wanted { address, end: address.saturating_add(length), write, has_files };
            let maps = || File::open("/proc/self/maps").unwrap();
            assert_eq!(wanted.is_covered_by_list(maps()), mapped, "{length} bytes at {address:#x}");
            assert!(wanted.is_covered_by_queries(&maps()).is_none_or(|covered| covered == mapped));
        }
        assert_eq!(check_mapped(writable, 3 << 20, true), Ok(false));
        assert_eq!(check_mapped(8, 0, true), Ok(false));
    }

    #[test]
    fn what_lies_behind_the_end_of_a_file_is_not_there() {
        let page = 1 << 16;
        let file = File::from(memfd_create("pumice-test", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(page).unwrap();
        let map = MmapOptions::new().len(2 * page as usize).map_raw(&file).unwrap();
        let first = map.as_ptr().expose_provenance() as u64;
        let errno = |first, length| check_mapped(first, length, true).map_err(|error| error.errno());
        assert_eq!(errno(first, page), Ok(true), "a sparse file");
        assert_eq!(errno(first, page + 1), Err(libc::EFAULT));
        assert_eq!(errno(first + page, page), Err(libc::EFAULT));
        let has_files = Cell::new(false);
        let wanted = Wanted { address: first, end: first + 2 * page, write: true, has_files };
        assert!(!wanted.is_covered_by_list(File::open("/proc/self/maps").unwrap()));
        assert!(wanted.is_covered_by_queries(&File::open("/proc/self/maps").unwrap()) != Some(true));
        file.set_len(2 * page).unwrap();
        assert_eq!(errno(first, 2 * page), Ok(true));
        let range = mapping_at(first + page).unwrap();
        assert!(range.start <= first && range.end >= first + 2 * page);
        assert_eq!(mapping_at(8), None);
    }
}
