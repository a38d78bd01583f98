//! The delivery of a completion to the thread that polls for it, past its completion queue.

use pumice_transport::types::WorkCompletion;

/// The place for the next completion of a queue that a thread polls at this moment. The thread holds the
/// engine's lock, and has found the queue empty; so this completion is the oldest.
#[derive(Debug, Default)]
pub(crate) struct DirectDelivery {
    /// Index of the polled queue, until its completion is here.
    cq: Option<u32>,
    delivered: Option<Delivered>,
}

/// A completion, and the number of send queue entries that polling it frees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivered {
    pub(crate) completion: WorkCompletion,
    pub(crate) released: u32,
}

impl DirectDelivery {
    /// Begins a poll of the queue with this index.
    #[inline]
    pub(crate) fn begin(&mut self, cq: u32) {
        self.cq = Some(cq);
    }

    /// Reports whether a thread polls this queue, and has no completion yet.
    #[inline]
    pub(crate) fn awaits(&self, cq: u32) -> bool {
        self.cq == Some(cq)
    }

    /// Delivers the completion that the thread polls for.
    #[inline]
    pub(crate) fn deliver(&mut self, completion: &WorkCompletion, released: u32) {
        self.cq = None;
        self.delivered = Some(Delivered { completion: *completion, released });
    }

    /// Ends the poll, and returns the completion that was delivered.
    #[inline]
    pub(crate) fn end(&mut self) -> Option<Delivered> {
        self.cq = None;
        self.delivered.take()
    }
}
