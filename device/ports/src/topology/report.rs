//! What is told of a queue.

/// A queue in front of a link between hosts and switches, and what happened to it so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReport {
    /// Where the link leads from and to, such as `leaf 0 to host 3`.
    pub name: String,
    /// Packets that joined it.
    pub packets: u64,
    /// Bytes that wait or are being sent.
    pub bytes: u64,
    /// The most there were.
    pub most_bytes: u64,
    /// Bytes that have left.
    pub sent_bytes: u64,
    /// Packets that were marked when they joined it.
    pub marked: u64,
    /// Packets that found no room.
    pub dropped: u64,
    /// Times that its sender was paused.
    pub pauses: u64,
}
