//! Limits the number of connections at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number of slots.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlots {
    free: Arc<AtomicU32>,
}

/// A slot; dropping it makes it free again.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    free: Arc<AtomicU32>,
}

impl ConnectionSlots {
    pub(super) fn new(count: u32) -> ConnectionSlots {
        ConnectionSlots { free: Arc::new(AtomicU32::new(count)) }
    }

    /// Takes a slot, if one is free.
    pub(super) fn take(&self) -> Option<ConnectionSlot> {
        let less = |free: u32| free.checked_sub(1);
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok().then(|| ConnectionSlot { free: Arc::clone(&self.free) })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_were_made() {
        let slots = ConnectionSlots::new(2);
        let (one, other) = (slots.take(), slots.take());
        assert!(one.is_some() && other.is_some() && slots.take().is_none());
        drop(one);
        assert!(slots.take().is_some());
    }
}
