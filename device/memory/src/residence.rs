//! Population of the pages of a new memory region. An adapter pins the pages, so they are resident before the
//! registration returns.

use std::ffi::c_void;
use std::io::{Error, Read as _};
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use pumice_platform::error::ResourceError;
use pumice_platform::outside;
use pumice_platform::outside::fault_guard::{FaultGuard, Guarded};
use pumice_platform::outside::process::page_bytes;

/// Length in bytes above which a range is compared with the available memory.
const LONG: u64 = 64 << 20;

/// Populates the pages of a mapped range, for writing with `write`: pages that were never touched, that were
/// swapped out, or that a handler of userfaultfd has to fill. The thread waits for them here, where it holds
/// no lock, instead of in the middle of a copy. A long range that exceeds the available memory is left as it
/// is.
///
/// # Errors
/// `NoMemory`: there is no memory for the pages.
pub fn bring_in(address: u64, length: u64, write: bool) -> Result<(), ResourceError> {
    if length == 0 || (length > LONG && available_bytes().is_some_and(|left| length > left)) {
        return Ok(());
    }
    let page = page_bytes();
    let first = address - address % page;
    let Some(end) = address.checked_add(length).and_then(|end| end.checked_next_multiple_of(page)) else {
        return Ok(());
    };
    let how = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    let start = ptr::with_exposed_provenance_mut(first as usize);
    // SAFETY: populating changes no contents, and the kernel checks the range.
    if unsafe { libc::madvise(start, (end - first) as usize, how) } == 0 {
        return Ok(());
    }
    match Error::last_os_error().raw_os_error() {
        Some(libc::ENOMEM) => Err(ResourceError::no_memory("the pages of the region")),
        // The kernel is older than 5.14, the memory belongs to a device, or the userfaultfd of the pages
        // handles only faults of the program and none of system calls.
        _ => {
            touch(first, end, page, write);
            Ok(())
        }
    }
}

/// Returns the kernel's estimate of the bytes that are available without swapping; `None` if it gives none.
fn available_bytes() -> Option<u64> {
    let mut text = String::new();
    outside::files::open("/proc/meminfo").ok()?.read_to_string(&mut text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Accesses each page as the program would. A fault is ignored here: a later copy faults as well and reports
/// it.
fn touch(first: u64, end: u64, page: u64, write: bool) {
    let guard = FaultGuard::new();
    let access: Guarded = if write { write_nothing } else { read };
    for at in (first..end).step_by(page as usize) {
        let byte = ptr::with_exposed_provenance_mut::<c_void>(at as usize);
        guard.enter(at as usize, 1);
        // SAFETY: the byte belongs to the program, which registers it; a fault at the access ends the call.
        unsafe { guard.call(access, byte, ptr::null(), 0) };
        guard.leave();
    }
}

/// Reads a byte.
///
/// # Safety
/// The byte can be read.
unsafe extern "C" fn read(byte: *mut c_void, _: *const c_void, _: usize) {
    // SAFETY: the caller guarantees that the byte can be read. The program may write it meanwhile; its value
    // is not used.
    unsafe { byte.cast::<u8>().read_volatile() };
}

/// Writes to a byte without changing its value.
///
/// # Safety
/// The byte can be written.
unsafe extern "C" fn write_nothing(byte: *mut c_void, _: *const c_void, _: usize) {
    // SAFETY: the caller guarantees that the byte can be written; the program may access it at the same time.
    let byte = unsafe { AtomicU8::from_ptr(byte.cast()) };
    let _ = byte.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: usize = 5;

    /// Maps new pages, none of which is resident.
    fn pages(rights: libc::c_int) -> u64 {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory.
        let begin = unsafe { libc::mmap(ptr::null_mut(), bytes(), rights, kind, -1, 0) };
        assert_ne!(begin, libc::MAP_FAILED);
        begin.expose_provenance() as u64
    }

    fn bytes() -> usize {
        PAGES * page_bytes() as usize
    }

    fn give_back(begin: u64) {
        // SAFETY: the pages of a test, which nothing refers to.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(begin as usize), bytes()) };
    }

    /// Returns the number of pages that are resident.
    fn present(begin: u64) -> usize {
        let mut each = [0_u8; PAGES];
        // SAFETY: the call writes a byte for each page.
        let asked = unsafe {
            libc::mincore(ptr::with_exposed_provenance_mut(begin as usize), bytes(), each.as_mut_ptr())
        };
        assert_eq!(asked, 0);
        each.iter().filter(|page| **page & 1 == 1).count()
    }

    #[test]
    fn all_pages_of_a_range_are_there_and_keep_their_contents() {
        let (page, both) = (page_bytes(), libc::PROT_READ | libc::PROT_WRITE);
        let begin = pages(both);
        assert_eq!(present(begin), 0);
        bring_in(begin + page + 17, 0, true).unwrap();
        assert_eq!(present(begin), 0, "of nothing");
        bring_in(begin + page - 1, page + 2, true).unwrap();
        assert_eq!(present(begin), 3, "a byte of the first, the second, and a byte of the third");
        give_back(begin);
        let begin = pages(both);
        touch(begin, begin + 2 * page, page, true);
        assert_eq!(present(begin), 2);
        for (at, byte) in [(0, 7_u8), (page, 0)] {
            let place = ptr::with_exposed_provenance_mut::<u8>((begin + at) as usize);
            // SAFETY: a page of this test.
            unsafe { place.write(byte) };
            touch(begin, begin + 2 * page, page, true);
            // SAFETY: as above.
            assert_eq!(unsafe { place.read() }, byte);
        }
        give_back(begin);
    }

    #[test]
    fn what_is_longer_than_memory_or_cannot_be_accessed_stays_as_it_is() {
        assert!(available_bytes().is_some_and(|left| left > LONG && left < 1 << 50));
        let begin = pages(libc::PROT_READ);
        bring_in(begin, 1 << 50, true).unwrap();
        assert_eq!(present(begin), 0);
        crate::guard_copies();
        touch(begin, begin + page_bytes(), page_bytes(), true);
        assert_eq!(present(begin), 0, "it may not be written");
        bring_in(u64::MAX - 5, 3, true).unwrap();
        give_back(begin);
    }
}
