//! Forks: the checker and the writer are consistent in the child, which begins without findings.
//!
//! Their locks are held over a fork, so that no other thread holds one of them then. The child makes both
//! anew (they are [`PerProcess`](pumice_device::outside::fork_generation::PerProcess)), and its checker gets
//! the state of the parent's.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use pumice_device::check::{Checker, holds_checker, set_holds_checker};
use pumice_device::outside;

use super::killed;
use super::outputs::Outputs;
use super::writer;
use crate::call_sites::early_uses;
use crate::call_sites::state::checker;

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
pub(super) fn watch() {
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
    let Some(outputs) = lock_within_limit(writer::outputs()) else { return };
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
    early_uses::forked();
    if let Some(mut held) = FORK_LOCKS.try_with(RefCell::take).ok().flatten() {
        held.outputs.close();
        set_holds_checker(false);
    }
}
