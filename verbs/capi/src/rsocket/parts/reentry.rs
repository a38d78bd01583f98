//! Threads that are inside of this library. Sockets that the library itself opens must be the system's: under
//! a preload that replaces all sockets by rsockets, the C library's `socket` calls this library again.

use std::cell::Cell;

thread_local! {
    static IS_INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// A guard: while it lives, its thread is inside.
pub(crate) struct ReentryGuard(());

impl ReentryGuard {
    /// Marks the thread as inside.
    pub(crate) fn enter() -> ReentryGuard {
        // A thread that is being torn down has no such variable any more, and opens no sockets.
        let _ = IS_INSIDE.try_with(|inside| inside.set(inside.get() + 1));
        ReentryGuard(())
    }
}

impl Drop for ReentryGuard {
    fn drop(&mut self) {
        let _ = IS_INSIDE.try_with(|inside| inside.set(inside.get().saturating_sub(1)));
    }
}

/// Reports whether this thread is inside.
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.try_with(|inside| inside.get() > 0).unwrap_or(true)
}

/// Marks a thread of the library itself as inside for ever.
pub(crate) fn never_leave() {
    std::mem::forget(ReentryGuard::enter());
}
