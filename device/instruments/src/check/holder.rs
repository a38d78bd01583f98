//! Which thread has the checker: memory that it frees then is not the program's.

use std::cell::Cell;

thread_local! {
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
    let before = set_holds_checker(true);
    let outcome = run();
    set_holds_checker(before);
    outcome
}
