//! A completion on its way to its queue.

use pumice_transport::types::WorkCompletion;

/// A completion that is to be made.
#[derive(Debug)]
pub(super) struct Made {
    /// The index of its completion queue.
    pub(super) cq: u32,
    pub(super) completion: WorkCompletion,
    /// Entries of the send queue that are free when it is polled.
    pub(super) released: u32,
    /// The sender asked for an event.
    pub(super) solicited: bool,
}
