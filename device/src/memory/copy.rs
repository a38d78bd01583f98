//! Copies to and from registered memory, which end with an error where the memory has gone.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use pumice_transport::host::MemoryError;
use pumice_transport::types::AtomicOperation;

use super::watch::{self, Watched};
use crate::system::fault_guard::FaultGuard;

/// Copies memory at `source` into `out`.
///
/// # Errors
/// `NotMapped`: part of it cannot be read, or the region has lost it; `out` is then partly written.
#[inline]
pub(super) fn load(
    guard: &FaultGuard,
    watched: Option<&Watched>,
    source: u64,
    out: &mut [u8],
) -> Result<(), MemoryError> {
    let from = ptr::with_exposed_provenance::<c_void>(source as usize);
    guarded(guard, watched, source, out.len(), |guard| {
        // SAFETY: the caller located `source..source + out.len()` inside a registered range. `out` is the
        // device's own buffer, so the two do not overlap. The application may write at the same time: the
        // bytes are then any mixture.
        unsafe { guard.call(copy_bytes, out.as_mut_ptr().cast(), from, out.len()) }
    })
}

/// Copies `data` into memory at `target`, the last aligned word last.
///
/// # Errors
/// `NotMapped`: part of it cannot be written, or the region has lost it; what comes before may be written.
#[inline]
pub(super) fn store(
    guard: &FaultGuard,
    watched: Option<&Watched>,
    target: u64,
    data: &[u8],
) -> Result<(), MemoryError> {
    let to = ptr::with_exposed_provenance_mut::<c_void>(target as usize);
    guarded(guard, watched, target, data.len(), |guard| {
        // SAFETY: the caller located `target..target + data.len()` inside a registered range with a write
        // right. `data` is the device's own buffer, so the two do not overlap.
        unsafe { guard.call(store_bytes, to, data.as_ptr().cast(), data.len()) }
    })
}

/// An atomic operation, and what it found.
struct Step {
    operation: AtomicOperation,
    original: u64,
}

/// Executes an operation on the aligned word at `target` in one step, and returns what was there.
///
/// # Errors
/// `NotMapped`: the word cannot be read and written, or the region has lost it.
pub(super) fn operate(
    guard: &FaultGuard,
    watched: Option<&Watched>,
    target: u64,
    operation: AtomicOperation,
) -> Result<u64, MemoryError> {
    let word = ptr::with_exposed_provenance_mut::<c_void>(target as usize);
    let mut step = Step { operation, original: 0 };
    let place = &raw mut step;
    guarded(guard, watched, target, 8, |guard| {
        // SAFETY: the caller located an aligned word inside a registered range with a write right, to which
        // access from elsewhere at the same time is what registration permits. The step is this frame's.
        unsafe { guard.call(operate_on_word, word, place.cast_const().cast(), 0) }
    })?;
    Ok(step.original)
}

/// What an operation does to a word, and what was there.
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

#[inline]
fn guarded(
    guard: &FaultGuard,
    watched: Option<&Watched>,
    first: u64,
    bytes: usize,
    run: impl FnOnce(&FaultGuard) -> bool,
) -> Result<(), MemoryError> {
    let is_done = watch::enter(guard, watched, first, bytes) && run(guard);
    guard.leave();
    if is_done { Ok(()) } else { Err(MemoryError::NotMapped) }
}

/// Copies ranges (process address, bytes) of registered memory one behind the other to the front of `out`;
/// false if `out` is too short, or memory has gone.
///
/// # Safety
/// All ranges are registered memory, which may be read.
pub unsafe fn read_registered(ranges: &[(u64, usize)], mut out: &mut [u8]) -> bool {
    let guard = FaultGuard::new();
    for (address, bytes) in ranges {
        let Some((now, rest)) = out.split_at_mut_checked(*bytes) else { return false };
        if load(&guard, None, *address, now).is_err() {
            return false;
        }
        out = rest;
    }
    true
}

/// Copies memory of the device itself at `source` into `out`.
pub(super) fn load_own(source: u64, out: &mut [u8]) {
    // SAFETY: the caller located the range inside memory that it keeps. `out` does not overlap it.
    unsafe { copy_bytes(out.as_mut_ptr().cast(), ptr::with_exposed_provenance(source as usize), out.len()) }
}

/// Copies `data` into memory of the device itself at `target`.
pub(super) fn store_own(target: u64, data: &[u8]) {
    let to = ptr::with_exposed_provenance_mut(target as usize);
    // SAFETY: the caller located the range inside memory that it keeps. `data` does not overlap it.
    unsafe { store_bytes(to, data.as_ptr().cast(), data.len()) }
}

/// # Safety
/// `from` can be read and `to` be written for so many bytes, and they do not overlap.
unsafe extern "C" fn copy_bytes(to: *mut c_void, from: *const c_void, bytes: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), bytes) }
}

/// Copies, the last aligned word last and in one piece: programs poll it.
///
/// # Safety
/// As [`copy_bytes`].
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

/// # Safety
/// `word` is an aligned word that can be read and written, `step` a [`Step`] of the caller's.
unsafe extern "C" fn operate_on_word(word: *mut c_void, step: *const c_void, _: usize) {
    let step = step.cast::<Step>().cast_mut();
    // SAFETY: the caller vouches for both.
    unsafe { (*step).original = apply((*step).operation, AtomicU64::from_ptr(word.cast())) };
}
