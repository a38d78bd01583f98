//! The delivery of a completion to the thread that polls for it, past its completion queue.

use pumice_transport::types::WorkCompletion;

/// The place for the next completion of a queue that a thread polls at this moment. The thread holds the
/// engine's lock, and has found the queue empty; so this completion is the oldest.
#[derive(Debug, Default)]
pub(crate) struct DirectDelivery {
    state: DeliveryState,
    completion: WorkCompletion,
    /// Number of send queue entries that polling the completion frees.
    released: u32,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum DeliveryState {
    /// No thread polls, or none that can get a completion in this way.
    #[default]
    Closed,
    /// A thread polls the queue with this index.
    Awaits(u32),
    /// The completion is here.
    Delivered,
}

impl DirectDelivery {
    /// Begins a poll of the queue with this index.
    #[inline]
    pub(crate) fn begin(&mut self, cq: u32) {
        self.state = DeliveryState::Awaits(cq);
    }

    /// Reports whether a thread polls this queue, and has no completion yet.
    #[inline]
    pub(crate) fn awaits(&self, cq: u32) -> bool {
        self.state == DeliveryState::Awaits(cq)
    }

    /// Delivers the completion that the thread polls for.
    #[inline]
    pub(crate) fn deliver(&mut self, completion: &WorkCompletion, released: u32) {
        self.state = DeliveryState::Delivered;
        self.completion = *completion;
        self.released = released;
    }

    /// Ends the poll, and stores the completion that was delivered in `first`. Returns how many entries of
    /// the send queue it frees, or `None` if there is no completion.
    #[inline]
    pub(crate) fn end(&mut self, first: &mut WorkCompletion) -> Option<u32> {
        if std::mem::take(&mut self.state) != DeliveryState::Delivered {
            return None;
        }
        *first = self.completion;
        Some(self.released)
    }
}
