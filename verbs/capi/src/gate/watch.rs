//! The byte that calls read first.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Calls that the process examines.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WatchLevel {
    /// The value is not determined yet.
    Unknown = 0,
    /// Calls off the data path, and no others.
    ControlPath = 1,
    /// All calls.
    Everything = 2,
    /// All calls, of which only the checker examines those of the data path.
    Checks = 3,
}

static WATCH: AtomicU8 = AtomicU8::new(WatchLevel::Unknown as u8);
/// True if a device was lost.
static LOST: AtomicBool = AtomicBool::new(false);

/// Reports whether calls of the data path need not stop at the gate.
#[inline]
pub(crate) fn lets_pass() -> bool {
    WATCH.load(Ordering::Relaxed) == WatchLevel::ControlPath as u8
}

/// Reports whether only the checker examines calls of the data path.
#[inline]
pub(super) fn is_for_checks() -> bool {
    WATCH.load(Ordering::Relaxed) == WatchLevel::Checks as u8
}

/// Sets the calls to examine; the caller holds the state's lock. A device lost meanwhile keeps its effect.
pub(super) fn set_watch_level(watch: WatchLevel) {
    WATCH.store(watch as u8, Ordering::SeqCst);
    if LOST.load(Ordering::SeqCst) {
        WATCH.store(WatchLevel::Everything as u8, Ordering::SeqCst);
    }
}

/// Makes all calls check whether their device is the lost one.
pub(super) fn lose_device() {
    LOST.store(true, Ordering::SeqCst);
    WATCH.store(WatchLevel::Everything as u8, Ordering::SeqCst);
}

/// Reports whether a device was lost.
pub(super) fn is_lost() -> bool {
    LOST.load(Ordering::SeqCst)
}
