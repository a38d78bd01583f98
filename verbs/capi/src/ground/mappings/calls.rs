//! What the C library's functions that change mappings do from when memory is registered: the same, and they
//! tell the device.
//!
//! They run where the program's do, in the middle of an allocator and in handlers of signals: they allocate
//! nothing and take no lock.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pumice_device::memory::{MappingChange, mapping_at};

/// A function of the C library, and what replaces it.
pub(super) struct Function {
    pub(super) name: &'static CStr,
    pub(super) address: fn() -> usize,
}

/// All whose calls can take memory or rights to it away.
pub(super) static FUNCTIONS: [Function; 6] = [
    Function { name: c"munmap", address: || (munmap as *const c_void).expose_provenance() },
    Function { name: c"mmap", address: || (mmap as *const c_void).expose_provenance() },
    Function { name: c"mremap", address: || (mremap as *const c_void).expose_provenance() },
    Function { name: c"mprotect", address: || (mprotect as *const c_void).expose_provenance() },
    Function { name: c"shmdt", address: || (shmdt as *const c_void).expose_provenance() },
    Function { name: c"brk", address: || (brk as *const c_void).expose_provenance() },
];

const NOTHING: Range<u64> = 0..0;

/// The pages of a range.
fn pages(first: *mut c_void, bytes: usize) -> Range<u64> {
    let first = first.expose_provenance() as u64;
    first..first.saturating_add(bytes as u64)
}

/// Ends a change, and leaves errno as the system call has set it.
fn end(change: Option<MappingChange>, lost: Range<u64>) {
    if let Some(change) = change {
        keeping_errno(|| change.end(lost));
    }
}

fn keeping_errno(run: impl FnOnce()) {
    // SAFETY: the location is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    run();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

extern "C" fn munmap(first: *mut c_void, bytes: usize) -> c_int {
    let range = pages(first, bytes);
    let change = MappingChange::begin(range.clone());
    // SAFETY: the program's call, as it is.
    let outcome = unsafe { libc::syscall(libc::SYS_munmap, first, bytes) } as c_int;
    end(change, if outcome == 0 { range } else { NOTHING });
    outcome
}

extern "C" fn mmap(
    first: *mut c_void,
    bytes: usize,
    rights: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    let is_fixed = flags & libc::MAP_FIXED != 0;
    let range = if is_fixed { pages(first, bytes) } else { NOTHING };
    let change = MappingChange::begin(range.clone());
    // SAFETY: the program's call, as it is.
    let outcome =
        unsafe { libc::syscall(libc::SYS_mmap, first, bytes, rights, flags, descriptor, offset) } as usize;
    let mapped = ptr::with_exposed_provenance_mut(outcome);
    end(change, if mapped == libc::MAP_FAILED { NOTHING } else { range });
    mapped
}

/// The last argument is there with some flags only. Functions with a variable number of arguments get them
/// where others do, on all processors that pumice is built for.
extern "C" fn mremap(
    old: *mut c_void,
    old_bytes: usize,
    bytes: usize,
    flags: c_int,
    wanted: *mut c_void,
) -> *mut c_void {
    let before = pages(old, old_bytes);
    let over = if flags & libc::MREMAP_FIXED != 0 { pages(wanted, bytes) } else { NOTHING };
    let changes = (MappingChange::begin(before.clone()), MappingChange::begin(over.clone()));
    // SAFETY: the program's call, as it is.
    let outcome = unsafe { libc::syscall(libc::SYS_mremap, old, old_bytes, bytes, flags, wanted) } as usize;
    let now: *mut c_void = ptr::with_exposed_provenance_mut(outcome);
    let (lost, replaced) = match now {
        libc::MAP_FAILED => (NOTHING, NOTHING),
        // It grows, or its end is cut off.
        _ if now == old => (before.end.min(pages(old, bytes).end)..before.end, NOTHING),
        _ => (before, over),
    };
    end(changes.1, replaced);
    end(changes.0, lost);
    now
}

extern "C" fn mprotect(first: *mut c_void, bytes: usize, rights: c_int) -> c_int {
    const ALL: c_int = libc::PROT_READ | libc::PROT_WRITE;
    let range = if rights & ALL == ALL { NOTHING } else { pages(first, bytes) };
    let change = MappingChange::begin(range.clone());
    // SAFETY: the program's call, as it is.
    let outcome = unsafe { libc::syscall(libc::SYS_mprotect, first, bytes, rights) } as c_int;
    if let Some(change) = change {
        keeping_errno(|| change.end_of_rights(if outcome == 0 { range } else { NOTHING }));
    }
    outcome
}

extern "C" fn shmdt(first: *const c_void) -> c_int {
    let start = first.expose_provenance() as u64;
    let range = mapping_at(start).filter(|range| range.start == start).unwrap_or(NOTHING);
    let change = MappingChange::begin(range.clone());
    // SAFETY: the program's call, as it is.
    let outcome = unsafe { libc::syscall(libc::SYS_shmdt, first) } as c_int;
    end(change, if outcome == 0 { range } else { NOTHING });
    outcome
}

/// The C library's own number of where the heap ends, which `sbrk` goes on from.
static HEAP_END: AtomicPtr<AtomicPtr<c_void>> = AtomicPtr::new(ptr::null_mut());

/// Says where the C library has that number; without it, `brk` stays as it is.
pub(super) fn heap_end_is_at(variable: *mut c_void) {
    HEAP_END.store(variable.cast(), Ordering::Relaxed);
}

extern "C" fn brk(wanted: *mut c_void) -> c_int {
    // SAFETY: null, or the C library's variable, which stays.
    let heap_end = unsafe { HEAP_END.load(Ordering::Relaxed).as_ref() };
    let before = heap_end.map_or(ptr::null_mut(), |variable| variable.load(Ordering::Relaxed));
    let start = wanted.expose_provenance() as u64;
    let range = start..before.expose_provenance() as u64;
    let change = if wanted.is_null() { None } else { MappingChange::begin(range.clone()) };
    // SAFETY: the program's call, as it is.
    let outcome = unsafe { libc::syscall(libc::SYS_brk, wanted) } as usize;
    let now: *mut c_void = ptr::with_exposed_provenance_mut(outcome);
    end(change, if now == wanted { range } else { NOTHING });
    if let Some(variable) = heap_end {
        variable.store(now, Ordering::Relaxed);
    }
    if now < wanted {
        // SAFETY: the location is this thread's own.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return -1;
    }
    0
}
