//! Which thread has the checker: memory that it frees then is not the program's.

use std::cell::Cell;

thread_local! {
    static OWN_CALL: Cell<u64> = const { Cell::new(0) };
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in the checker.
pub fn holds_checker() -> bool {
    HOLDS.try_with(Cell::get).unwrap_or(true)
}

/// Says whether this thread is in the checker from now on; how it was before.
pub fn set_holds_checker(holds: bool) -> bool {
    HOLDS.try_with(|own| own.replace(holds)).unwrap_or(true)
}

/// This thread is in the checker while `run` runs.
pub fn holding<T>(run: impl FnOnce() -> T) -> T {
    // It has nothing to drop, so it is there for as long as the thread is.
    HOLDS.with(|own| {
        let before = own.replace(true);
        let outcome = run();
        own.set(before);
        outcome
    })
}

/// This thread is in a call of the program's, which no other call has the number of; 0: in none. Until it
/// ends, the program is where it was.
pub(super) fn set_own_call(number: u64) {
    let _ = OWN_CALL.try_with(|own| own.set(number));
}

/// The call that this thread is in has ended.
pub fn call_ends() {
    set_own_call(0);
}

/// The number of the call that this thread is in, if it is in one.
#[inline]
pub(super) fn own_call() -> Option<u64> {
    OWN_CALL.try_with(Cell::get).ok().filter(|number| *number != 0)
}
