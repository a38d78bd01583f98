//! Copies to and from memory that may not be mapped: on-demand paging.
//!
//! `process_vm_readv` and `process_vm_writev` on the own process copy like `memcpy`, bring pages in like an
//! access would, and *report* a page that is not mapped or lacks the right, where a plain access would kill
//! the process. They cost a system call per copy (verbs/capi/SUPPORT.md has figures).

use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_void, iovec};
use pumice_platform::outside::fork_generation::InheritedOnce;
use pumice_platform::outside::process::kernel_number;
use pumice_transport::host::MemoryError;
use pumice_transport::types::AtomicOperation;

/// Copies application memory at `source` into `out`.
///
/// # Errors
/// Fails with `NotMapped` if part of it cannot be read; `out` is then partly written.
pub(super) fn load(source: u64, out: &mut [u8]) -> Result<(), MemoryError> {
    if out.is_empty() {
        return Ok(());
    }
    let local = iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = range(source, out.len());
    // SAFETY: `local` is the exclusive `out`. The kernel checks `remote`, and only reads there.
    let copied = unsafe { libc::process_vm_readv(kernel_number(), &local, 1, &remote, 1, 0) };
    finished(copied, out.len())
}

/// Copies `data` into application memory at `target`, the last aligned word last and in a copy of its own,
/// for programs that poll it.
///
/// # Errors
/// Fails with `NotMapped` if part of it cannot be written; what comes before may be.
pub(super) fn store(target: u64, data: &[u8]) -> Result<(), MemoryError> {
    if data.is_empty() {
        return Ok(());
    }
    let end = target.wrapping_add(data.len() as u64);
    let tail = match data.len() {
        length if length > 8 && end.is_multiple_of(8) => 8,
        length if length > 4 && end.is_multiple_of(4) => 4,
        1 => 0,
        _ => 1,
    };
    let head = data.len() - tail;
    let local = iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let remote = [range(target, head), range(end.wrapping_sub(tail as u64), tail)];
    // SAFETY: `local` is only read. The kernel checks `remote`, which the caller located inside a region
    // with a write right: `RegionTable::register` requires that such memory may be written.
    let copied = unsafe { libc::process_vm_writev(kernel_number(), &local, 1, remote.as_ptr(), 2, 0) };
    finished(copied, data.len())
}

/// Applies an operation to a word, and returns the original value.
pub(super) fn apply(operation: AtomicOperation, word: &AtomicU64) -> u64 {
    match operation {
        AtomicOperation::CompareSwap { compare, swap } => {
            match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(original) | Err(original) => original,
            }
        }
        AtomicOperation::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
        AtomicOperation::Write { bytes } => word.swap(u64::from_ne_bytes(bytes), Ordering::SeqCst),
    }
}

/// Executes an operation on a copy of a word, and stores it if it changed. The engine's lock makes this one
/// step towards all other work of the device.
///
/// # Errors
/// Fails with `NotMapped` if the word cannot be read, or not be written.
pub(super) fn operate(address: u64, operation: AtomicOperation) -> Result<u64, MemoryError> {
    let mut before = [0; 8];
    load(address, &mut before)?;
    let word = AtomicU64::new(u64::from_ne_bytes(before));
    let original = apply(operation, &word);
    let after = word.into_inner().to_ne_bytes();
    if after != before {
        store(address, &after)?;
    }
    Ok(original)
}

/// Largest number of ranges of one [`read_mapped`].
const MAX_RANGES: usize = 64;

/// Copies ranges (process address, bytes) one behind the other to the front of `out`, at most 64 of them.
/// Returns false if one of them is not mapped, or if the kernel does not let the process ask; then `out` is
/// partly filled. `process` is the number of this process, which takes a system call to know.
pub fn read_mapped(process: u32, ranges: &[(u64, usize)], out: &mut [u8]) -> bool {
    let wanted = ranges.iter().fold(0_usize, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if ranges.len() > MAX_RANGES || wanted > out.len() || !is_available() {
        return false;
    }
    let mut remote = [range(0, 0); MAX_RANGES];
    for (slot, (address, bytes)) in remote.iter_mut().zip(ranges) {
        *slot = range(*address, *bytes);
    }
    let local = iovec { iov_base: out.as_mut_ptr().cast(), iov_len: wanted };
    let count = ranges.len() as libc::c_ulong;
    let Ok(process) = libc::pid_t::try_from(process) else { return false };
    // SAFETY: `local` is part of the exclusive `out`. The kernel checks `remote`, and only reads there.
    let copied = unsafe { libc::process_vm_readv(process, &local, 1, remote.as_ptr(), count, 0) };
    finished(copied, wanted).is_ok()
}

/// Byte that [`fill_mapped`] fills with.
const PATTERN: u8 = 0xa5;

/// Fills ranges (process address, bytes) with bytes 0xa5. Returns false if one of them is not mapped for
/// writing, or if the kernel does not let the process ask; then they are partly filled.
pub fn fill_mapped(ranges: &[(u64, usize)]) -> bool {
    static BYTES: [u8; 1 << 16] = [PATTERN; 1 << 16];
    is_available()
        && ranges.iter().all(|(address, bytes)| {
            let mut done = 0;
            while done < *bytes {
                let now = BYTES.len().min(bytes - done);
                let local = iovec { iov_base: BYTES.as_ptr().cast_mut().cast(), iov_len: now };
                let remote = range(address.wrapping_add(done as u64), now);
                // SAFETY: `local` is only read. The kernel checks `remote`; the program has given this memory
                // to a receive, so that the device may write to it.
                let copied = unsafe { libc::process_vm_writev(kernel_number(), &local, 1, &remote, 1, 0) };
                if finished(copied, now).is_err() {
                    return false;
                }
                done += now;
            }
            true
        })
}

fn range(address: u64, length: usize) -> iovec {
    iovec { iov_base: std::ptr::with_exposed_provenance_mut::<c_void>(address as usize), iov_len: length }
}

/// Returns the result of a copy: one that stops early met a page that is not mapped.
fn finished(copied: isize, wanted: usize) -> Result<(), MemoryError> {
    if usize::try_from(copied) == Ok(wanted) { Ok(()) } else { Err(MemoryError::NotMapped) }
}

/// Reports whether the kernel, or a filter of system calls, lets the process do this.
pub fn is_available() -> bool {
    static AVAILABLE: InheritedOnce<bool> = InheritedOnce::new();
    *AVAILABLE.get_or_init(|| {
        let mut bytes = [1_u8; 16];
        let at = bytes.as_mut_ptr().expose_provenance() as u64;
        let mut out = [0; 8];
        load(at, &mut out) == Ok(()) && store(at + 8, &out) == Ok(()) && out == [1; 8]
    })
}

/// The way in which a copy treats memory that is registered and may be unmapped.
///
/// Programs are known to unmap memory first, and to destroy the queue pair that would receive into it and the
/// registration afterwards (UCX does so with datagrams). Hardware holds the pages; here such a copy is a
/// fault, which the guard of copies ends if the program lets it. A copy by the kernel needs no guard, at the
/// price of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingCheck {
    /// The memory is taken to be mapped.
    Assumed,
    /// The kernel copies, and reports what is not mapped. Where the kernel does not let the process do this,
    /// the memory is taken to be mapped. Atomics always take it to be mapped, and are guarded.
    ByKernel,
}

impl MappingCheck {
    /// Reports whether the kernel copies.
    #[inline]
    pub(super) fn asks(self) -> bool {
        self == MappingCheck::ByKernel && is_available()
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    const PAGE: usize = 4096;

    /// Maps three pages: writable, read-only, unmapped.
    fn pages() -> u64 {
        // SAFETY: new memory, and its last two pages are given away before anything refers to them.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(ptr::null_mut(), 3 * PAGE, rights, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(base.byte_add(PAGE), PAGE, libc::PROT_READ), 0);
            assert_eq!(libc::munmap(base.byte_add(2 * PAGE), PAGE), 0);
            base.expose_provenance() as u64
        }
    }

    #[test]
    fn copies_stop_at_what_is_not_there() {
        assert!(is_available());
        let base = pages();
        let page = PAGE as u64;
        for (offset, length) in [(0, 1), (3, 1), (1, 7), (0, 8), (5, 11), (17, 2000), (0, PAGE)] {
            let data: Vec<u8> = (0..length).map(|n| n as u8 ^ 0x5a).collect();
            store(base + offset, &data).unwrap();
            let mut back = vec![0; length];
            load(base + offset, &mut back).unwrap();
            assert_eq!(back, data, "{length} bytes at {offset}");
        }
        let mut out = [1; 16];
        let own = std::process::id();
        assert!(read_mapped(own, &[(base, 8), (base + page, 8)], &mut out));
        for (ranges, what) in [
            (&[(base, 8), (base + 2 * page - 4, 8)][..], "not mapped"),
            (&[(base, 17)][..], "too long"),
            (&[(base, usize::MAX), (base, 2)][..], "far too long"),
            (&[(base, 0); MAX_RANGES + 1][..], "too many"),
            (&[(u64::MAX, 8)][..], "beyond the end"),
        ] {
            assert!(!read_mapped(own, ranges, &mut out), "{what}");
        }
        let mut out = [1; 16];
        assert_eq!(load(base + page, &mut out), Ok(()));
        assert_eq!(load(base + 2 * page - 8, &mut out), Err(MemoryError::NotMapped));
        assert_eq!(store(base + page - 8, &out), Err(MemoryError::NotMapped));
        assert_eq!(store(base + page, &[1]), Err(MemoryError::NotMapped));
        for nowhere in [0, 8, u64::MAX - 15, u64::MAX, 1 << 63] {
            assert_eq!(load(nowhere, &mut out), Err(MemoryError::NotMapped), "{nowhere:#x}");
            assert_eq!(store(nowhere, &out), Err(MemoryError::NotMapped), "{nowhere:#x}");
        }
        assert_eq!((load(0, &mut []), store(0, &[])), (Ok(()), Ok(())));
        // SAFETY: the two pages that are left are this test's.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(base as usize), 2 * PAGE) };
    }
}
