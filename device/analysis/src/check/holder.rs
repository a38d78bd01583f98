//! A mark of the thread that is in the checker: memory that it frees then is not the program's.

use std::cell::Cell;

thread_local! {
    static OWN_CALL: Cell<u64> = const { Cell::new(0) };
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// Reports whether this thread is in the checker.
pub fn holds_checker() -> bool {
    HOLDS.try_with(Cell::get).unwrap_or(true)
}

/// Sets whether this thread is in the checker from now on, and returns the value before.
pub fn set_holds_checker(holds: bool) -> bool {
    HOLDS.try_with(|own| own.replace(holds)).unwrap_or(true)
}

/// Runs `run`, with this thread in the checker meanwhile.
pub fn holding<T>(run: impl FnOnce() -> T) -> T {
    // The value has no destructor, so it exists for as long as the thread does.
    HOLDS.with(|own| {
        let before = own.replace(true);
        let outcome = run();
        own.set(before);
        outcome
    })
}

/// Returns a number of the calling thread that is not 0 and that no other living thread has: the address of a
/// thread-local variable.
#[inline]
pub(super) fn own_thread() -> u64 {
    OWN_CALL.try_with(|own| std::ptr::from_ref(own).addr() as u64).unwrap_or(1)
}

/// Sets the number of the call of the program that this thread is in, which no other call has; 0 for none.
/// Until the call ends, the program's call site does not change.
pub(super) fn set_own_call(number: u64) {
    let _ = OWN_CALL.try_with(|own| own.set(number));
}

/// Notes that the call that this thread was in has ended.
pub fn call_ends() {
    set_own_call(0);
}

/// Returns the number of the call that this thread is in, if it is in one.
#[inline]
pub(super) fn own_call() -> Option<u64> {
    OWN_CALL.try_with(Cell::get).ok().filter(|number| *number != 0)
}
