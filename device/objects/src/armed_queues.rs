//! How many completion queues of a device are armed.
//!
//! A program that arms a queue and then finds it empty goes to sleep on the queue's channel. It says nothing
//! more to the device when it does so. While a queue is armed, the background thread therefore looks for
//! packets more often, and does not leave packets to a program that may be waiting for exactly these.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of armed completion queues, shared by all queues of a device and its background thread.
#[derive(Debug, Default)]
pub struct ArmedQueues(AtomicU32);

impl ArmedQueues {
    /// One more queue is armed.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// One armed queue fired, or was destroyed.
    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a queue is armed.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}
