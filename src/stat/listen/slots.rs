//! How many connections there are at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number of slots.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    free: Arc<AtomicU32>,
}

/// One of them; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    free: Arc<AtomicU32>,
}

impl Slots {
    pub(super) fn new(count: u32) -> Slots {
        Slots { free: Arc::new(AtomicU32::new(count)) }
    }

    /// A slot, if one is free.
    pub(super) fn take(&self) -> Option<Slot> {
        let less = |free: u32| free.checked_sub(1);
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok().then(|| Slot { free: Arc::clone(&self.free) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_were_made() {
        let slots = Slots::new(2);
        let (one, other) = (slots.take(), slots.take());
        assert!(one.is_some() && other.is_some() && slots.take().is_none());
        drop(one);
        assert!(slots.take().is_some());
    }
}
