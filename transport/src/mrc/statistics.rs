//! Counters of an MRC queue pair.

/// Counts since the queue pair was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MrcStatistics {
    /// Data packets sent, retransmissions included.
    pub data_sent: u64,
    /// Data packets retransmitted.
    pub retransmitted: u64,
    /// Losses found by a hole in the SACK bitmaps.
    pub holes: u64,
    /// Losses found by a probe.
    pub probed_losses: u64,
    /// Timeouts of the local ACK timer.
    pub timeouts: u64,
    /// NACKs received.
    pub nacks: u64,
    /// NACKs of trimmed packets received.
    pub trims: u64,
    /// Reliability probes sent.
    pub probes_sent: u64,
    /// SACKs sent.
    pub sacks_sent: u64,
    /// NACKs sent.
    pub nacks_sent: u64,
    /// Transport ACKs sent.
    pub acks_sent: u64,
    /// Data packets received and placed in memory.
    pub data_placed: u64,
    /// Data packets received that had arrived before.
    pub duplicates: u64,
    /// Packets received that are invalid or have no meaning in the state of the queue pair.
    pub dropped: u64,
}
