//! Copies to and from registered memory, which end with an error where the memory has gone.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use pumice_platform::outside::fault_guard::{FaultGuard, Guarded, catches_faults};
use pumice_transport::host::MemoryError;
use pumice_transport::types::AtomicOperation;

use super::on_demand;
use super::watch::{self, Presence, WatchedRegion};

/// Memory that a copy reads or writes, inside a region.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionMemory<'a> {
    pub(super) guard: &'a FaultGuard,
    pub(super) watched: Option<&'a WatchedRegion>,
    /// The memory is a file's, which another process may shorten at any time.
    pub(super) is_of_file: bool,
    pub(super) address: u64,
}

impl RegionMemory<'_> {
    /// Makes a copy: by `plain`, which a fault may end, or by `kernel` where the faults of this thread go to
    /// a handler of the program, and after a fault: this thread may lack a protection key of the program
    /// (pkey_mprotect(2)), which the kernel does not check, as it does not for adapters.
    #[inline]
    fn copy(
        self,
        bytes: usize,
        plain: impl FnOnce(&FaultGuard) -> bool,
        kernel: impl FnOnce() -> bool,
    ) -> Result<(), MemoryError> {
        let presence = watch::enter(self.guard, self.watched, self.address, bytes);
        let is_done = match presence {
            Presence::Present if !self.is_of_file => plain(self.guard) || after_fault(kernel),
            Presence::Lost => false,
            _ if catches_faults() || !on_demand::is_available() => plain(self.guard) || after_fault(kernel),
            _ => kernel(),
        };
        self.guard.leave();
        if is_done { Ok(()) } else { Err(MemoryError::NotMapped) }
    }

    /// Copies few bytes of memory whose mapping no program has changed. Returns `None` if they are not
    /// copied; [`RegionMemory::copy`] may be able to do it.
    ///
    /// # Safety
    /// As for [`FaultGuard::copy_short`]; `polled` is the address whose words programs poll, or null.
    #[inline]
    unsafe fn copy_short(
        &self,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        polled: *const c_void,
    ) -> Option<Result<(), MemoryError>> {
        if self.is_of_file || !FaultGuard::is_short(bytes, polled) {
            return None;
        }
        let is_quiet = watch::enter_quiet(self.guard, self.address, bytes);
        // SAFETY: the caller vouches for the copy.
        let is_done = is_quiet && unsafe { self.guard.copy_short(to, from, bytes) };
        self.guard.leave();
        is_done.then_some(Ok(()))
    }
}

/// Repeats by the kernel a copy that a fault has ended.
#[cold]
fn after_fault(kernel: impl FnOnce() -> bool) -> bool {
    on_demand::is_available() && kernel()
}

/// Copies memory into `out`.
///
/// # Errors
/// Fails with `NotMapped` if part of it cannot be read, or if the region has lost it; `out` is then partly
/// written.
#[inline]
pub(super) fn load(memory: RegionMemory<'_>, out: &mut [u8]) -> Result<(), MemoryError> {
    let from = ptr::with_exposed_provenance::<c_void>(memory.address as usize);
    // SAFETY: the caller located it inside a registered range. `out` is the device's own buffer, so
    // the two do not overlap. The application may write meanwhile: the bytes are then any mixture.
    let short = unsafe { memory.copy_short(out.as_mut_ptr().cast(), from, out.len(), ptr::null()) };
    short.unwrap_or_else(|| load_long(memory, out))
}

#[inline(never)]
fn load_long(memory: RegionMemory<'_>, out: &mut [u8]) -> Result<(), MemoryError> {
    let from = ptr::with_exposed_provenance::<c_void>(memory.address as usize);
    let (into, bytes) = (out.as_mut_ptr(), out.len());
    memory.copy(
        bytes,
        // SAFETY: as in `load`.
        |guard| unsafe { guard.call(MEMCPY, into.cast(), from, bytes) },
        || on_demand::load(memory.address, out).is_ok(),
    )
}

/// Copies `data` into memory, the last aligned word last.
///
/// # Errors
/// Fails with `NotMapped` if part of it cannot be written, or if the region has lost it; what comes before
/// may be written.
#[inline]
pub(super) fn store(memory: RegionMemory<'_>, data: &[u8]) -> Result<(), MemoryError> {
    let to = ptr::with_exposed_provenance_mut::<c_void>(memory.address as usize);
    // SAFETY: the caller located it inside a registered range with a write right. `data` is the
    // device's own buffer, so the two do not overlap.
    let short = unsafe { memory.copy_short(to, data.as_ptr().cast(), data.len(), to) };
    short.unwrap_or_else(|| store_long(memory, data))
}

#[inline(never)]
fn store_long(memory: RegionMemory<'_>, data: &[u8]) -> Result<(), MemoryError> {
    let to = ptr::with_exposed_provenance_mut::<c_void>(memory.address as usize);
    memory.copy(
        data.len(),
        // SAFETY: as in `store`.
        |guard| unsafe { guard.call(store_bytes, to, data.as_ptr().cast(), data.len()) },
        || on_demand::store(memory.address, data).is_ok(),
    )
}

/// An atomic operation, and the value that it found.
struct AtomicStep {
    operation: AtomicOperation,
    original: u64,
}

/// Executes an operation on an aligned word in one step, and returns the original value.
///
/// # Errors
/// Fails with `NotMapped` if the word cannot be read and written, or if the region has lost it.
pub(super) fn operate(memory: RegionMemory<'_>, operation: AtomicOperation) -> Result<u64, MemoryError> {
    let word = ptr::with_exposed_provenance_mut::<c_void>(memory.address as usize);
    let mut step = AtomicStep { operation, original: 0 };
    let mut by_kernel = None;
    let at = &raw mut step;
    memory.copy(
        8,
        // SAFETY: the caller located an aligned word inside a registered range with a write right, to which
        // access from elsewhere at the same time is what registration permits. The step is this frame's.
        |guard| unsafe { guard.call(operate_on_word, word, at.cast_const().cast(), 0) },
        || {
            by_kernel = on_demand::operate(memory.address, operation).ok();
            by_kernel.is_some()
        },
    )?;
    Ok(by_kernel.unwrap_or(step.original))
}

/// Copies ranges (process address, bytes) of registered memory one behind the other to the front of `out`.
/// Returns false if `out` is too short, or if memory has gone.
///
/// # Safety
/// All ranges are registered memory, which may be read.
pub unsafe fn read_registered(ranges: &[(u64, usize)], mut out: &mut [u8]) -> bool {
    let guard = FaultGuard::new();
    for (address, bytes) in ranges {
        let Some((now, rest)) = out.split_at_mut_checked(*bytes) else { return false };
        let memory = RegionMemory { guard: &guard, watched: None, is_of_file: false, address: *address };
        if load(memory, now).is_err() {
            return false;
        }
        out = rest;
    }
    true
}

/// Copies memory of the device itself at `source` into `out`.
pub(super) fn load_own(source: u64, out: &mut [u8]) {
    let from = ptr::with_exposed_provenance::<u8>(source as usize);
    // SAFETY: the caller located the range inside memory that it keeps. `out` does not overlap it.
    unsafe { ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
}

/// Copies `data` into memory of the device itself at `target`.
pub(super) fn store_own(target: u64, data: &[u8]) {
    let to = ptr::with_exposed_provenance_mut(target as usize);
    // SAFETY: the caller located the range inside memory that it keeps. `data` does not overlap it.
    unsafe { store_bytes(to, data.as_ptr().cast(), data.len()) }
}

/// The type of `memcpy` in Rust.
type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// The C library's copy, for a guard: assembly calls it and ignores its result.
// SAFETY: both are addresses of functions, and that one of them returns a pointer is seen by no caller.
const MEMCPY: Guarded = unsafe { transmute::<Memcpy, Guarded>(libc::memcpy) };

/// Copies, the last aligned word last and in one piece: programs poll it.
///
/// # Safety
/// `from` can be read and `to` be written for this number of bytes, and they do not overlap.
unsafe extern "C" fn store_bytes(to: *mut c_void, from: *const c_void, bytes: usize) {
    let (to, from) = (to.cast::<u8>(), from.cast::<u8>());
    let end = to.wrapping_add(bytes);
    // SAFETY: the caller vouches for all bytes; words are stored at their alignment, and inside.
    unsafe {
        if bytes >= 8 && end.addr().is_multiple_of(8) {
            let head = bytes - 8;
            if head > 0 {
                ptr::copy_nonoverlapping(from, to, head);
            }
            let word = from.add(head).cast::<u64>().read_unaligned();
            AtomicU64::from_ptr(end.sub(8).cast()).store(word, Ordering::Release);
        } else if bytes >= 4 && end.addr().is_multiple_of(4) {
            let head = bytes - 4;
            if head > 0 {
                ptr::copy_nonoverlapping(from, to, head);
            }
            let word = from.add(head).cast::<u32>().read_unaligned();
            AtomicU32::from_ptr(end.sub(4).cast()).store(word, Ordering::Release);
        } else if bytes > 0 {
            ptr::copy_nonoverlapping(from, to, bytes - 1);
            fence(Ordering::Release);
            end.sub(1).write(from.add(bytes - 1).read());
        }
    }
}

/// Executes an atomic operation on a word.
///
/// # Safety
/// `word` is an aligned word that can be read and written, `step` a [`AtomicStep`] of the caller's.
unsafe extern "C" fn operate_on_word(word: *mut c_void, step: *const c_void, _: usize) {
    let step = step.cast::<AtomicStep>().cast_mut();
    // SAFETY: the caller vouches for both.
    unsafe { (*step).original = on_demand::apply((*step).operation, AtomicU64::from_ptr(word.cast())) };
}
