//! Which threads are inside of this library. Sockets that the library itself opens must be the system's:
//! under a preload that makes rsockets of all sockets, the C library's `socket` comes back here.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// As long as this lives, its thread is inside.
pub(crate) struct Inside(());

impl Inside {
    /// The thread goes in.
    pub(crate) fn enter() -> Inside {
        // A thread that is being torn down has no such variable any more, and opens nothing.
        let _ = INSIDE.try_with(|inside| inside.set(inside.get() + 1));
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.set(inside.get().saturating_sub(1)));
    }
}

/// Whether this thread is inside.
pub(crate) fn is_inside() -> bool {
    INSIDE.try_with(|inside| inside.get() > 0).unwrap_or(true)
}

/// A thread of the library's own.
pub(crate) fn never_leave() {
    std::mem::forget(Inside::enter());
}
