//! Memory that the program frees, and ends without exit(3), as the preload libpumice_check.so tells of it
//! (`verbs/checkpreload`).

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::TryLockError;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_device::check::{Checker, holding, holds_checker};
use pumice_device::outside;

use super::state::{CHECKER, tell as tell_checker};
use super::{exit, preload};

/// What the preload gets: it has the same structure, in `verbs/checkpreload/src/watch.rs`.
#[repr(C)]
struct MemoryHooks {
    low: AtomicU64,
    high: AtomicU64,
    look: extern "C" fn(u64, u64) -> u64,
    tell: extern "C" fn(u64, c_int),
    end: extern "C" fn(),
}

static WATCH: MemoryHooks =
    MemoryHooks { low: AtomicU64::new(u64::MAX), high: AtomicU64::new(0), look, tell, end: exit::at_once };

/// The calls, as the preload numbers them.
const CALLS: [&str; 3] = ["free", "realloc", "munmap"];

/// Attempts to get the checker's lock. The thread that has it may wait for the loader, which frees memory, so
/// none may wait for it for ever.
const ATTEMPTS: u32 = 2000;

/// From now on the preload tells what is freed, if it is loaded.
pub(super) fn watch() {
    let function = preload::function();
    if function.is_null() {
        return;
    }
    tell_checker(|checker| checker.tells_bounds_to(bounds_are));
    // SAFETY: the function of that name has this type, and the structure lives as long as the process.
    unsafe {
        transmute::<*const c_void, unsafe extern "C" fn(*const MemoryHooks)>(function)(&raw const WATCH);
    }
}

/// Where the memory of posted requests lies.
fn bounds_are(low: u64, high: u64) {
    WATCH.low.store(low, Ordering::Relaxed);
    WATCH.high.store(high, Ordering::Relaxed);
}

/// Asks the checker, unless this thread has it, which then frees memory of its own.
fn ask<T>(question: impl FnOnce(&mut Checker) -> T) -> Option<T> {
    let checker = CHECKER.if_made().filter(|_| !holds_checker())?;
    for _ in 0..ATTEMPTS {
        let mut guard = match checker.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => {
                outside::idle();
                continue;
            }
        };
        return Some(holding(|| question(&mut guard)));
    }
    None
}

/// The request that uses bytes of a range, counted from 1; 0 if none does.
extern "C" fn look(address: u64, bytes: u64) -> u64 {
    let user = ask(|checker| checker.user_of(address, bytes)).flatten();
    user.map_or(0, |user| user.saturating_add(1))
}

extern "C" fn tell(request: u64, call: c_int) {
    let call = usize::try_from(call).ok().and_then(|call| CALLS.get(call)).copied().unwrap_or_default();
    ask(|checker| checker.memory_freed(request.saturating_sub(1), call));
}
