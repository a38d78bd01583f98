//! The call of the program that a thread is in.

use std::cell::Cell;

use pumice_calls::Call;
use pumice_device::hca::EnteredCall;

/// A call that the program has made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ProgramCall {
    /// The call is not examined.
    Internal,
    /// The call has no ordinal.
    Uncounted(Call),
    Counted(EnteredCall),
}

impl ProgramCall {
    /// Returns the call, if it is examined.
    pub(crate) fn call(&self) -> Option<Call> {
        match self {
            ProgramCall::Internal => None,
            ProgramCall::Uncounted(call) => Some(*call),
            ProgramCall::Counted(entered) => Some(entered.call()),
        }
    }

    /// Returns its ordinal among the calls of this name, from 1; 0 if it has none.
    pub(crate) fn ordinal(&self) -> u64 {
        if let ProgramCall::Counted(entered) = self { entered.ordinal() } else { 0 }
    }

    /// Returns its name; empty for one that is not examined.
    pub(crate) fn name(&self) -> &'static str {
        self.call().map_or("", Call::name)
    }
}

thread_local! {
    static CURRENT: Cell<Option<ProgramCall>> = const { Cell::new(None) };
    /// Call whose attempt has ended without a result, until the next attempt.
    static SUSPENDED: Cell<Option<ProgramCall>> = const { Cell::new(None) };
}

/// Returns the call of the program that this thread is in.
pub(crate) fn current() -> Option<ProgramCall> {
    // A thread that is ending makes no calls of the program.
    CURRENT.try_with(Cell::get).unwrap_or(Some(ProgramCall::Internal))
}

pub(crate) fn begin(made: ProgramCall) {
    let _ = CURRENT.try_with(|current| current.set(Some(made)));
}

/// Begins a call as [`begin`] does, unless the thread is in a call of the program. Returns false if it is.
#[inline]
pub(crate) fn begins(made: ProgramCall) -> bool {
    let begins = CURRENT.try_with(|current| {
        let is_first = current.get().is_none();
        if is_first {
            current.set(Some(made));
        }
        is_first
    });
    begins.unwrap_or(false)
}

pub(crate) fn end() -> Option<ProgramCall> {
    CURRENT.try_with(Cell::take).ok().flatten()
}

/// Records a call that continues with another attempt.
pub(crate) fn put_aside(made: ProgramCall) {
    let _ = SUSPENDED.try_with(|between| between.set(Some(made)));
}

/// Takes the call that continues.
pub(crate) fn take_aside() -> Option<ProgramCall> {
    SUSPENDED.try_with(Cell::take).ok().flatten()
}

/// Runs a function whose calls of this library are not the program's.
pub(crate) fn run_internally<T>(run: impl FnOnce() -> T) -> T {
    let before = current();
    if before.is_none() {
        begin(ProgramCall::Internal);
    }
    let outcome = run();
    if before.is_none() {
        end();
    }
    outcome
}
