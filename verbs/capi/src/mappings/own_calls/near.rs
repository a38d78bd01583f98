//! Memory near code, so that jumps reach it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::ptr;

use pumice_device::outside;

use super::stub;

const PAGE: u64 = 4096;
/// Largest distance of a jump, less the length of stubs and pages.
const REACH: u64 = (1 << 31) - (1 << 22);

/// Memory that can be read and executed. It is never freed: a thread may be executing it.
#[derive(Debug)]
pub(super) struct NearPage {
    first: u64,
    next: u64,
    end: u64,
}

impl NearPage {
    /// Maps memory from which all of the code is in reach: below it, where neither the heap nor the stack
    /// grows. Returns `None` if there is no room, or if the kernel refuses.
    pub(super) fn map(code: (u64, u64), bytes: usize, memory: &File) -> Option<NearPage> {
        let bytes = (bytes as u64).next_multiple_of(PAGE);
        let end_of_code = code.0.checked_add(code.1)?;
        let room = rooms(code.0, bytes + 2 * PAGE).into_iter().rev();
        let in_reach = room.map(|end| end - bytes - PAGE).filter(|first| end_of_code - first < REACH);
        let first = in_reach.into_iter().find(|first| map_at(*first, bytes))?;
        let head = stub::head();
        let page = NearPage { first, next: first + head.len() as u64, end: first + bytes };
        write(memory, first, &head).then_some(page)
    }

    /// Returns the address of the next stub, and that of the pointer to which all stubs jump.
    pub(super) fn next(&self) -> (u64, u64) {
        (self.next, self.first)
    }

    /// Adds a stub; returns false if it cannot be written.
    pub(super) fn add(&mut self, stub: &[u8], memory: &File) -> bool {
        let end = self.next + stub.len() as u64;
        let is_written = end <= self.end && write(memory, self.next, stub);
        if is_written {
            self.next = end.next_multiple_of(16).min(self.end);
        }
        is_written
    }
}

/// Returns the ends of all gaps of at least this many bytes below an address, in order.
fn rooms(below: u64, bytes: u64) -> Vec<u64> {
    /// Lowest address that is used: only processes of root may map lower ones.
    const LEAST: u64 = 1 << 16;
    let Ok(maps) = outside::files::open("/proc/self/maps") else { return Vec::new() };
    let (mut rooms, mut end_before) = (Vec::new(), LEAST);
    for line in BufReader::with_capacity(1 << 14, maps).split(b'\n').map_while(Result::ok) {
        let Some((first, end)) = bounds(&line) else { continue };
        if first > below {
            break;
        }
        if first.saturating_sub(end_before) >= bytes {
            rooms.push(first);
        }
        end_before = end_before.max(end);
    }
    rooms
}

/// Returns first address and end of the mapping on a line.
fn bounds(line: &[u8]) -> Option<(u64, u64)> {
    let text = str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?;
    let (first, end) = text.split_once('-')?;
    Some((u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

fn map_at(first: u64, bytes: u64) -> bool {
    let rights = libc::PROT_READ | libc::PROT_EXEC;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let wanted = ptr::with_exposed_provenance_mut(first as usize);
    // SAFETY: new memory, which replaces no other.
    let mapped = unsafe { libc::mmap(wanted, bytes as usize, rights, kind, -1, 0) };
    if mapped != wanted && mapped != libc::MAP_FAILED {
        // An old kernel takes the address for a hint. SAFETY: the memory that was mapped here.
        unsafe { libc::munmap(mapped, bytes as usize) };
    }
    mapped == wanted
}

/// Writes code of this process; returns false if the kernel refuses.
pub(super) fn write(memory: &File, at: u64, code: &[u8]) -> bool {
    memory.write_all_at(code, at).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_near_code() {
        let here = (memory_is_found_near_code as fn()) as usize as u64;
        let memory = File::options().read(true).write(true).open("/proc/self/mem").unwrap();
        let mut page = NearPage::map((here, 100), 5000, &memory).unwrap();
        assert!(page.first < here && here - page.first < REACH);
        assert_eq!(page.end - page.first, 2 * PAGE);
        let (at, head) = page.next();
        assert!(page.add(&[1, 2, 3], &memory));
        assert_eq!((at, page.next()), (head + 8, (head + 16, head)));
        let mut found = [0; 3];
        memory.read_exact_at(&mut found, at).unwrap();
        assert_eq!(found, [1, 2, 3]);
        assert!(!page.add(&[0; 9000], &memory));
    }

    #[test]
    fn lines_have_bounds() {
        assert_eq!(bounds(b"1000-2000 r-xp 0 0:0 0"), Some((0x1000, 0x2000)));
        assert_eq!(bounds(b"nonsense"), None);
    }
}
