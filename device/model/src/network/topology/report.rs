//! The report of a queue.

/// The state and statistics of a queue in front of a link between hosts and switches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReport {
    /// Name of the link by its ends, such as `leaf 0 to host 3`.
    pub name: String,
    /// Number of packets that joined the queue.
    pub packets: u64,
    /// Number of bytes that wait or are being sent.
    pub bytes: u64,
    /// Largest number of such bytes so far.
    pub most_bytes: u64,
    /// Number of bytes that have left.
    pub sent_bytes: u64,
    /// Number of packets that were marked when they joined it.
    pub marked: u64,
    /// Number of packets that found no room.
    pub dropped: u64,
    /// Number of times that its sender was paused.
    pub pauses: u64,
}
