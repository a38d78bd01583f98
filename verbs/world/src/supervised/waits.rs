//! What threads wait for.

use super::memory::Word;

/// A descriptor and what is asked of it, as in `poll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) descriptor: i32,
    pub(crate) events: i16,
}

/// What can end a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// Nothing but time.
    Time,
    /// A wake of this word with one of these bits.
    Word(Word, u32),
    /// One of these descriptors.
    Descriptors(Vec<Interest>),
    /// A child that ends.
    Child,
    /// A lock of a file that another process gives up.
    Lock,
    /// A signal.
    Signal,
}

/// A wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) on: WaitFor,
    /// Not longer than until then, since the world began.
    pub(crate) until_ns: Option<u64>,
    /// The number of changes at which it was looked last.
    pub(crate) looked_at: u64,
}

impl Wait {
    pub(crate) const fn new(on: WaitFor, until_ns: Option<u64>) -> Wait {
        Wait { on, until_ns, looked_at: 0 }
    }
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// What it waited for is there, or may be.
    Ready,
    /// Its time is over.
    TimedOut,
    /// A signal came.
    Interrupted,
}
