//! Cached deadlines of parts of the engine that are read in each call and change rarely.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use pumice_fabric::gsi::Gsi;

use super::outages::Outages;

/// A part that has to be driven at some time.
pub(crate) trait HasDeadline {
    /// Returns when the part has to be driven, in ns.
    fn due_ns(&self) -> Option<u64>;
}

impl HasDeadline for Gsi {
    fn due_ns(&self) -> Option<u64> {
        self.deadline_ns()
    }
}

impl HasDeadline for Outages {
    fn due_ns(&self) -> Option<u64> {
        self.deadline_ns()
    }
}

/// A part with its cached deadline, which is computed anew after the part was borrowed mutably.
///
/// **Invariant**: the only mutable access to the part is `deref_mut`. So the part changes nothing behind a
/// shared reference that moves its deadline.
#[derive(Debug)]
pub(crate) struct CachedDeadline<T> {
    part: T,
    /// The cached deadline. `None`: the part may have changed.
    due_ns: Cell<Option<Option<u64>>>,
}

impl<T: HasDeadline> CachedDeadline<T> {
    pub(crate) const fn new(part: T) -> CachedDeadline<T> {
        CachedDeadline { part, due_ns: Cell::new(None) }
    }

    /// Returns the deadline of the part, as [`HasDeadline::due_ns`].
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<u64> {
        if let Some(due_ns) = self.due_ns.get() {
            debug_assert_eq!(due_ns, self.part.due_ns(), "it has moved behind a shared reference");
            return due_ns;
        }
        self.compute()
    }

    #[cold]
    fn compute(&self) -> Option<u64> {
        let due_ns = self.part.due_ns();
        self.due_ns.set(Some(due_ns));
        due_ns
    }
}

impl<T> Deref for CachedDeadline<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.part
    }
}

impl<T> DerefMut for CachedDeadline<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.due_ns.set(None);
        &mut self.part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_found_out_again_after_the_part_could_be_changed() {
        struct Counted(Option<u64>, Cell<u32>);
        impl HasDeadline for Counted {
            fn due_ns(&self) -> Option<u64> {
                self.1.set(self.1.get() + 1);
                self.0
            }
        }
        let mut kept = CachedDeadline::new(Counted(None, Cell::new(0)));
        assert_eq!((kept.due_ns(), kept.due_ns()), (None, None));
        kept.0 = Some(7);
        assert_eq!((kept.due_ns(), kept.due_ns()), (Some(7), Some(7)));
        // Builds with debug assertions compare each cached answer.
        assert_eq!(kept.1.get(), if cfg!(debug_assertions) { 4 } else { 2 });
    }
}
