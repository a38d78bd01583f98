//! A completion on its way to its queue.

use pumice_transport::types::WorkCompletion;

/// A completion that is to be made.
#[derive(Debug)]
pub(crate) struct Made {
    /// The index of its completion queue.
    pub(crate) cq: u32,
    pub(crate) completion: WorkCompletion,
    /// Slots of the send queue that are free when it is polled.
    pub(crate) released: u32,
    /// The sender asked for an event.
    pub(crate) solicited: bool,
}
