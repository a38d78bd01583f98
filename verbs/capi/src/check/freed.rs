//! Memory that a program frees or reads too late, as the preload libpumice_check.so and breakpoints show it.
//!
//! Memory that the program frees, its sleeps, and its ends without exit(3), as the preload libpumice_check.so
//! reports them (`verbs/checkpreload`).

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::panic::catch_unwind;
use std::sync::TryLockError;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_device::check::{Checker, holding, holds_checker};
use pumice_device::memory::{catches_faults, guard_copies};
use pumice_device::outside;
use pumice_device::outside::late_reads::WatchedPage;

use super::{outputs, process_end};
use crate::call_sites::state::{CHECKER, is_on, with_checker};
use crate::call_sites::{preload, stack};

/// Callbacks for the preload, which has the same structure in `verbs/checkpreload/src/hooks.rs`.
#[repr(C)]
struct MemoryHooks {
    low: AtomicU64,
    high: AtomicU64,
    find_user: extern "C" fn(u64, u64) -> u64,
    report_freed: extern "C" fn(u64, c_int),
    on_exit: extern "C" fn(),
    on_sleep: extern "C" fn(),
}

static HOOKS: MemoryHooks = MemoryHooks {
    low: AtomicU64::new(u64::MAX),
    high: AtomicU64::new(0),
    find_user,
    report_freed,
    on_exit: process_end::at_once,
    on_sleep: count_sleep,
};

thread_local! {
    /// Number of times that the thread has slept for a time that it named.
    static SLEEPS: Cell<u64> = const { Cell::new(0) };
}

/// Names of the calls, by the preload's numbers.
const CALLS: [&str; 3] = ["free", "realloc", "munmap"];

/// Attempts to get the checker's lock. The thread that holds it may wait for the loader, which frees memory,
/// so no thread may wait for it for ever.
const LOCK_ATTEMPTS: u32 = 2000;

/// Registers the callbacks with the preload, if it is loaded.
pub(super) fn watch() {
    let function = preload::function();
    if function.is_null() {
        return;
    }
    with_checker(|checker| {
        checker.set_bounds_callback(set_bounds);
        checker.set_sleep_counter(|| SLEEPS.try_with(Cell::get).unwrap_or_default());
    });
    // SAFETY: the function of that name has this type, and the structure lives as long as the process.
    unsafe {
        transmute::<*const c_void, unsafe extern "C" fn(*const MemoryHooks)>(function)(&raw const HOOKS);
    }
}

/// Sets the bounds of the memory of posted requests.
fn set_bounds(low: u64, high: u64) {
    HOOKS.low.store(low, Ordering::Relaxed);
    HOOKS.high.store(high, Ordering::Relaxed);
}

/// Asks the checker, unless this thread holds its lock and frees memory of the checker's own.
fn query_checker<T>(question: impl FnOnce(&mut Checker) -> T) -> Option<T> {
    let checker = CHECKER.get_if_created().filter(|_| !holds_checker())?;
    for _ in 0..LOCK_ATTEMPTS {
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

/// Returns the request that uses bytes of a range, counted from 1; 0 if none does.
extern "C" fn find_user(address: u64, bytes: u64) -> u64 {
    let user = query_checker(|checker| checker.user_of(address, bytes)).flatten();
    user.map_or(0, |user| user.saturating_add(1))
}

extern "C" fn report_freed(request: u64, call: c_int) {
    let call = usize::try_from(call).ok().and_then(|call| CALLS.get(call)).copied().unwrap_or_default();
    query_checker(|checker| checker.memory_freed(request.saturating_sub(1), call));
}

/// Counts a sleep of the calling thread for a time that it named.
extern "C" fn count_sleep() {
    let _ = SLEEPS.try_with(|own| own.set(own.get().wrapping_add(1)));
}

/// Private data in a page of its own.
pub(crate) struct LatePage(WatchedPage);

impl LatePage {
    /// Copies private data that the program is about to get into a page. Returns `None` if programs are not
    /// checked, or if there is no page.
    pub(crate) fn with(data: &[u8]) -> Option<LatePage> {
        if !is_on() {
            return None;
        }
        guard_copies();
        let page = WatchedPage::take(is_read)?;
        page.fill(data);
        Some(LatePage(page))
    }

    /// Returns the address for the program.
    pub(crate) fn address(&self) -> usize {
        self.0.address()
    }

    /// Gives the page back, because the program acknowledges the event at this address, which has this name.
    pub(crate) fn give_back(self, event: usize, name: &str) {
        with_checker(|checker| checker.private_data_given_back(event as u64, name, self.0.number()));
        self.0.give_back(catches_faults());
    }
}

/// Handles a read, in a signal handler, in the middle of the program's own code or of a call that was given
/// the page. Such a call holds neither the checker nor the writer then.
fn is_read(page: usize, instruction: usize, its_stack: usize) {
    if holds_checker() {
        return;
    }
    // A panic, which its hook has reported, must not reach the handler.
    let _ = catch_unwind(|| {
        let addresses = stack::fault_stack(instruction as u64, its_stack as u64);
        with_checker(|checker| checker.private_data_read(page, &addresses));
        outputs::write_now();
    });
}
