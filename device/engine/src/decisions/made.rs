//! Completions on their way to their queue.

use pumice_transport::types::WorkCompletion;

/// A completion that is to be put in its queue.
#[derive(Debug)]
pub(crate) struct PendingCompletion {
    /// The table index of the completion queue.
    pub(crate) cq: u32,
    pub(crate) completion: WorkCompletion,
    /// Number of send queue slots that are free once the completion is polled.
    pub(crate) released: u32,
    /// True if the sender asked for an event.
    pub(crate) solicited: bool,
}
