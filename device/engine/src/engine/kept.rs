//! Parts of the engine whose deadlines are asked for in each call, and change rarely.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use pumice_ports::gsi::Gsi;

use super::outages::Outages;

/// Something that wants the engine to be driven at some time.
pub(crate) trait Due {
    /// When, in ns.
    fn due_ns(&self) -> Option<u64>;
}

impl Due for Gsi {
    fn due_ns(&self) -> Option<u64> {
        self.deadline_ns()
    }
}

impl Due for Outages {
    fn due_ns(&self) -> Option<u64> {
        self.deadline_ns()
    }
}

/// A part with its deadline, which is found out anew when something has had the part to change it.
///
/// **Invariant**: there is no way to the part for changing it but `deref_mut`. So it changes nothing behind a
/// shared reference that moves its deadline.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    part: T,
    /// The deadline. `None`: the part may have changed.
    due_ns: Cell<Option<Option<u64>>>,
}

impl<T: Due> Kept<T> {
    pub(crate) const fn new(part: T) -> Kept<T> {
        Kept { part, due_ns: Cell::new(None) }
    }

    /// As [`Due::due_ns`] of the part.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<u64> {
        if let Some(due_ns) = self.due_ns.get() {
            debug_assert_eq!(due_ns, self.part.due_ns(), "it has moved behind a shared reference");
            return due_ns;
        }
        self.find_out()
    }

    #[cold]
    fn find_out(&self) -> Option<u64> {
        let due_ns = self.part.due_ns();
        self.due_ns.set(Some(due_ns));
        due_ns
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.part
    }
}

impl<T> DerefMut for Kept<T> {
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
        impl Due for Counted {
            fn due_ns(&self) -> Option<u64> {
                self.1.set(self.1.get() + 1);
                self.0
            }
        }
        let mut kept = Kept::new(Counted(None, Cell::new(0)));
        assert_eq!((kept.due_ns(), kept.due_ns()), (None, None));
        kept.0 = Some(7);
        assert_eq!((kept.due_ns(), kept.due_ns()), (Some(7), Some(7)));
        // Builds with debug assertions compare each answer that was kept.
        assert_eq!(kept.1.get(), if cfg!(debug_assertions) { 4 } else { 2 });
    }
}
