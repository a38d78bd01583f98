//! The conditions that threads wait for.

use super::memory::FutexKey;
use super::watches::Watch;

/// A descriptor and the requested events, as in `poll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) descriptor: i32,
    pub(crate) events: i16,
}

/// An end of a FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FifoEnd {
    /// Device and inode of the file.
    pub(crate) file: (u64, u64),
    /// The end to which programs write, and not the one from which they read.
    pub(crate) writes: bool,
}

/// The condition that ends a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// A wait that ends by time alone.
    Time,
    /// A wake of this word with one of these bits ends the wait.
    Futex(FutexKey, u32),
    /// The readiness of one of these descriptors ends the wait.
    Descriptors(Vec<Interest>),
    /// The end of a child ends the wait.
    Child,
    /// A thread that opens the other end of a FIFO ends the wait. The flags are those of the call.
    Fifo(FifoEnd, i32),
    /// Any change ends the wait, and the call is tried again. The text describes what it waits for.
    Change(&'static str),
    /// A signal ends the wait.
    Signal,
}

/// A wait of a thread.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) on: WaitFor,
    /// Time at which the wait ends, since the world began, in ns.
    pub(crate) until_ns: Option<u64>,
    /// Number of changes at the last check.
    pub(crate) checked_at_change: u64,
    /// Number of checks whether one of its descriptors is ready.
    pub(crate) checks: u32,
    /// Watch of its descriptors, after some checks.
    pub(crate) watch: Option<Watch>,
}

impl Wait {
    pub(crate) const fn new(on: WaitFor, until_ns: Option<u64>) -> Wait {
        Wait { on, until_ns, checked_at_change: 0, checks: 0, watch: None }
    }
}

/// A check of all waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WaitCheck {
    /// Number of changes before the check.
    pub(crate) change: u64,
    /// Time of the check, in ns.
    pub(crate) at_ns: u64,
    /// No wait has begun since.
    pub(crate) is_complete: bool,
}

/// The reason why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The condition is met, or may be.
    Ready,
    /// The time is over.
    TimedOut,
    /// A signal arrived.
    Interrupted,
}
