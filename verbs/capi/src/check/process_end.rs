//! The end and the forks of a checked process: findings are reported when it exits, and a child begins
//! without any.
//!
//! The end of the process: remaining findings are reported after the destructors of the program and of its
//! libraries.
//!
//! Their locks are held over a fork, so that no other thread holds one of them then. The child makes both
//! anew (they are [`PerProcess`](pumice_device::outside::fork_generation::PerProcess)), and its checker gets
//! the state of the parent's.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use pumice_device::check::{Checker, holds_checker, set_holds_checker};
use pumice_device::outside;
use pumice_device::outside::fork_generation::shares_parent_memory;

use super::outputs::Outputs;
use super::{killed, outputs};
use crate::call_sites::state;
use crate::call_sites::state::{CHECKER, checker, is_on};

/// Exit status, once it is known; -1 before.
static STATUS: AtomicI32 = AtomicI32::new(-1);

unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn record_status(status: c_int, _argument: *mut c_void) {
    STATUS.store(status & 0xff, Ordering::Relaxed);
}

/// Registers the function that records the exit status.
pub(super) fn watch_exit() {
    // A forked child inherits the registration from its parent.
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the object is never unmapped (it is linked with -z nodelete).
        unsafe { on_exit(record_status, ptr::null_mut()) };
    }
}

/// Writes the findings after the functions of atexit(3) and the destructors of all that depends on this
/// library.
extern "C" fn last() {
    if CHECKER.get_if_created().is_none() || !is_on() {
        return;
    }
    let is_well = STATUS.load(Ordering::Relaxed) == 0;
    // A panic, which its hook has reported, must not reach the loader.
    let _ = catch_unwind(|| outputs::end(is_well));
}

/// Writes the findings when the program calls _exit(2): no code runs after this.
pub(super) extern "C" fn at_once() {
    // A child of vfork shares the checker of its parent, which continues.
    if shares_parent_memory() || CHECKER.get_if_created().is_none() || !is_on() {
        return;
    }
    // A panic must not reach the loader, as above.
    let _ = catch_unwind(outputs::end_at_once);
    killed::write_last_message();
}

// SAFETY: the loader calls the functions in this section when the process exits, with arguments that a C
// function without parameters does not read.
#[used]
#[unsafe(link_section = ".fini_array")]
static LAST: extern "C" fn() = last;

/// Longest time that a fork waits for each lock. A signal handler that forks may have interrupted the thread
/// that holds it: the child's checker then knows nothing of the parent.
const PATIENCE: Duration = Duration::from_secs(1);

/// Locks that are held over a fork.
struct ForkLocks {
    outputs: MutexGuard<'static, Outputs>,
    _checker: MutexGuard<'static, Checker>,
}

thread_local! {
    static FORK_LOCKS: RefCell<Option<ForkLocks>> = const { RefCell::new(None) };
}

/// Registers the handlers for forks.
pub(super) fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::Relaxed) {
        checker();
        // SAFETY: the functions take and return nothing, and the child's does only what is allowed there: it
        // closes a descriptor and releases locks that its only thread holds.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
}

fn lock_within_limit<T>(lock: &'static Mutex<T>) -> Option<MutexGuard<'static, T>> {
    let begun = outside::now();
    loop {
        match lock.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) if outside::since(begun) < PATIENCE => outside::idle(),
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

extern "C" fn before() {
    if holds_checker() {
        return;
    }
    let Some(outputs) = lock_within_limit(outputs::outputs()) else { return };
    set_holds_checker(true);
    let Some(mut checker) = lock_within_limit(checker()) else {
        set_holds_checker(false);
        return;
    };
    checker.forks();
    let _ = FORK_LOCKS.try_with(|held| held.replace(Some(ForkLocks { outputs, _checker: checker })));
}

extern "C" fn in_parent() {
    if FORK_LOCKS.try_with(RefCell::take).ok().flatten().is_some() {
        set_holds_checker(false);
    }
}

extern "C" fn in_child() {
    killed::has_writer(false);
    state::forked();
    if let Some(mut held) = FORK_LOCKS.try_with(RefCell::take).ok().flatten() {
        held.outputs.close();
        set_holds_checker(false);
    }
}
