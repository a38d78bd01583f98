//! Forks: the checker and the writer are whole in the child, which begins with nothing found.

use std::cell::RefCell;
use std::sync::{MutexGuard, Once};

use pumice_device::check::{Checker, set_holds_checker};

use super::outputs::Outputs;
use super::state::{checker, lock};
use super::writer;

/// Locks that are held over a fork, so that no other thread has one then.
struct Held {
    outputs: MutexGuard<'static, Outputs>,
    checker: MutexGuard<'static, Checker>,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// From now on forks are noticed.
pub(super) fn watch() {
    static FORKS: Once = Once::new();
    FORKS.call_once(|| {
        checker();
        // SAFETY: the functions take and return nothing, and what the child's does is allowed there: it drops
        // memory and releases locks that its only thread holds.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

extern "C" fn before() {
    let outputs = writer::lock();
    set_holds_checker(true);
    let mut checker = lock();
    checker.forks();
    let _ = HELD.try_with(|held| held.replace(Some(Held { outputs, checker })));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(RefCell::take);
    set_holds_checker(false);
}

extern "C" fn in_child() {
    let held = HELD.try_with(RefCell::take).ok().flatten();
    if let Some(Held { mut outputs, mut checker }) = held {
        checker.forked();
        outputs.forked();
    }
    set_holds_checker(false);
}
