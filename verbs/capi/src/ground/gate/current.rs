//! Which call of the program a thread is in.

use std::cell::Cell;

use pumice_calls::Call;

/// A call that the program has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    /// Which one; `None` for one that is not looked at.
    pub(crate) call: Option<Call>,
    /// Its ordinal among the calls of this name, from 1.
    pub(crate) ordinal: u64,
    /// The ordinal of its queue pair, where a rule asks for it.
    pub(crate) qp: Option<u32>,
    /// A rule applied to it.
    pub(crate) is_met: bool,
}

impl Made {
    /// Its name; empty for one that is not looked at.
    pub(crate) fn name(&self) -> &'static str {
        self.call.map_or("", Call::name)
    }
}

/// A call that is not looked at.
const QUIET: Made = Made { call: None, ordinal: 0, qp: None, is_met: false };

thread_local! {
    static CURRENT: Cell<Option<Made>> = const { Cell::new(None) };
    /// A call whose attempt has ended without an outcome, until the next one.
    static BETWEEN: Cell<Option<Made>> = const { Cell::new(None) };
}

/// The call of the program that this thread is in.
pub(crate) fn current() -> Option<Made> {
    // A thread that is ending makes no calls of the program's.
    CURRENT.try_with(Cell::get).unwrap_or(Some(QUIET))
}

pub(super) fn begin(made: Made) {
    let _ = CURRENT.try_with(|current| current.set(Some(made)));
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
        begin(QUIET);
    }
    let outcome = run();
    if before.is_none() {
        end();
    }
    outcome
}
