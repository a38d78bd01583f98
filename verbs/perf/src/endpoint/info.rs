//! What one end tells the other about itself.

use serde::{Deserialize, Serialize};

/// What the other end must know to connect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EndInfo {
    /// Queue pairs, as verbs writes them.
    pub(super) endpoints: Vec<[u8; 24]>,
    /// Memory for WRITEs, READs and atomics.
    pub(super) target: [u8; 16],
}

/// What a device has counted since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    /// Packets sent.
    pub(crate) sent: u64,
    /// Packets received.
    pub(crate) received: u64,
    /// Packets sent again.
    pub(crate) retransmitted: u64,
    /// Times that a peer's answer did not come in time.
    pub(crate) timeouts: u64,
    /// RNR NAKs received: the peer had no receive request for a message.
    pub(crate) receiver_not_ready: u64,
}
