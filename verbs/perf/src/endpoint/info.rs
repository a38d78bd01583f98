//! Data that the two ends exchange about themselves.

use serde::{Deserialize, Serialize};

/// Data that the other end needs to connect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EndpointInfo {
    /// Queue pairs in the format of verbs.
    pub(super) endpoints: Vec<[u8; 24]>,
    /// Memory for WRITEs, READs and atomics.
    pub(super) target: [u8; 16],
}

/// Counters of a device since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PacketCounts {
    /// Number of packets sent.
    pub(crate) sent: u64,
    /// Number of packets received.
    pub(crate) received: u64,
    /// Number of packets sent again.
    pub(crate) retransmitted: u64,
    /// Number of times that a peer's answer did not come in time.
    pub(crate) timeouts: u64,
    /// Number of RNR NAKs received: the peer had no receive request for a message.
    pub(crate) receiver_not_ready: u64,
}
