//! Forks: the checker and the writer are whole in the child, which begins with nothing found.
//!
//! They are held over a fork, so that no other thread has one of them then. The child makes both anew (they
//! are [`PerProcess`](pumice_device::outside::lineage::PerProcess)), and its checker gets what the parent's
//! knew.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use pumice_device::check::{Checker, holds_checker, set_holds_checker};
use pumice_device::outside;

use super::early_uses;
use super::killed;
use super::outputs::Outputs;
use super::state::checker;
use super::writer;

/// How long a fork waits for either. The signal handler that forks may have interrupted the thread that has
/// it: the child's checker then knows nothing of the parent.
const PATIENCE: Duration = Duration::from_secs(1);

/// Locks that are held over a fork.
struct Held {
    outputs: MutexGuard<'static, Outputs>,
    _checker: MutexGuard<'static, Checker>,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// From now on forks are noticed.
pub(super) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::Relaxed) {
        checker();
        // SAFETY: the functions take and return nothing, and what the child's does is allowed there: it
        // closes a descriptor and releases locks that its only thread holds.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
}

fn patiently<T>(lock: &'static Mutex<T>) -> Option<MutexGuard<'static, T>> {
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
    let Some(outputs) = patiently(writer::outputs()) else { return };
    set_holds_checker(true);
    let Some(mut checker) = patiently(checker()) else {
        set_holds_checker(false);
        return;
    };
    checker.forks();
    let _ = HELD.try_with(|held| held.replace(Some(Held { outputs, _checker: checker })));
}

extern "C" fn in_parent() {
    if HELD.try_with(RefCell::take).ok().flatten().is_some() {
        set_holds_checker(false);
    }
}

extern "C" fn in_child() {
    killed::has_writer(false);
    early_uses::forked();
    if let Some(mut held) = HELD.try_with(RefCell::take).ok().flatten() {
        held.outputs.close();
        set_holds_checker(false);
    }
}
