//! The count of a device's armed completion queues.
//!
//! A program that arms a queue and then finds it empty goes to sleep on the queue's channel, without another
//! call to the device. While a queue is armed, the background thread therefore polls for packets more often,
//! and does not leave packets to a program that may be waiting for exactly these.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of armed completion queues, shared by all queues of a device and its background thread.
#[derive(Debug, Default)]
pub struct ArmedQueues(AtomicU32);

impl ArmedQueues {
    /// Counts a queue that was armed.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes an armed queue that fired, or was destroyed.
    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Reports whether a queue is armed.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}
