//! What calls look at first.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// What the process looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Watch {
    /// It is not known yet.
    Unknown = 0,
    /// Calls off the data path only.
    Little = 1,
    /// All calls.
    Everything = 2,
    /// All calls, but of those of the data path only the checker wants to know.
    Checks = 3,
}

static WATCH: AtomicU8 = AtomicU8::new(Watch::Unknown as u8);
/// A device was lost.
static LOST: AtomicBool = AtomicBool::new(false);

/// Whether calls of the data path need not stop at the gate.
#[inline]
pub(in crate::ground) fn lets_pass() -> bool {
    WATCH.load(Ordering::Relaxed) == Watch::Little as u8
}

/// Whether of calls of the data path only the checker wants to know.
#[inline]
pub(super) fn is_for_checks() -> bool {
    WATCH.load(Ordering::Relaxed) == Watch::Checks as u8
}

/// What to look at, by those who hold the state: a change that is later is not undone.
pub(super) fn look_at(watch: Watch) {
    WATCH.store(watch as u8, Ordering::SeqCst);
    if LOST.load(Ordering::SeqCst) {
        WATCH.store(Watch::Everything as u8, Ordering::SeqCst);
    }
}

/// A device is lost: from now on all calls look whether it is theirs.
pub(super) fn lose_device() {
    LOST.store(true, Ordering::SeqCst);
    WATCH.store(Watch::Everything as u8, Ordering::SeqCst);
}

/// Whether a device was lost.
pub(super) fn is_lost() -> bool {
    LOST.load(Ordering::SeqCst)
}
