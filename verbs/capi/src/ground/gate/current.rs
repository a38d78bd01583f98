//! Which call of the program a thread is in.

use std::cell::Cell;

use pumice_calls::Call;
use pumice_device::hca::Entered;

/// A call that the program has made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Made {
    /// It is not looked at.
    Quietly,
    /// It has no ordinal.
    Uncounted(Call),
    Counted(Entered),
}

impl Made {
    /// Which one, if it is looked at.
    pub(crate) fn call(&self) -> Option<Call> {
        match self {
            Made::Quietly => None,
            Made::Uncounted(call) => Some(*call),
            Made::Counted(entered) => Some(entered.call()),
        }
    }

    /// Its ordinal among the calls of this name, from 1; 0 if it has none.
    pub(crate) fn ordinal(&self) -> u64 {
        if let Made::Counted(entered) = self { entered.ordinal() } else { 0 }
    }

    /// Its name; empty for one that is not looked at.
    pub(crate) fn name(&self) -> &'static str {
        self.call().map_or("", Call::name)
    }
}

thread_local! {
    static CURRENT: Cell<Option<Made>> = const { Cell::new(None) };
    /// A call whose attempt has ended without an outcome, until the next one.
    static BETWEEN: Cell<Option<Made>> = const { Cell::new(None) };
}

/// The call of the program that this thread is in.
pub(crate) fn current() -> Option<Made> {
    // A thread that is ending makes no calls of the program's.
    CURRENT.try_with(Cell::get).unwrap_or(Some(Made::Quietly))
}

pub(super) fn begin(made: Made) {
    let _ = CURRENT.try_with(|current| current.set(Some(made)));
}

/// As [`begin`], unless the thread is in a call of the program. False: it is.
#[inline]
pub(super) fn begins(made: Made) -> bool {
    let begins = CURRENT.try_with(|current| {
        let is_first = current.get().is_none();
        if is_first {
            current.set(Some(made));
        }
        is_first
    });
    begins.unwrap_or(false)
}

pub(super) fn end() -> Option<Made> {
    CURRENT.try_with(Cell::take).ok().flatten()
}

/// The call goes on with another attempt.
pub(super) fn put_aside(made: Made) {
    let _ = BETWEEN.try_with(|between| between.set(Some(made)));
}

/// The call that goes on.
pub(super) fn take_aside() -> Option<Made> {
    BETWEEN.try_with(Cell::take).ok().flatten()
}

/// Runs something whose calls of this library are not the program's.
pub(crate) fn quietly<T>(run: impl FnOnce() -> T) -> T {
    let before = current();
    if before.is_none() {
        begin(Made::Quietly);
    }
    let outcome = run();
    if before.is_none() {
        end();
    }
    outcome
}
