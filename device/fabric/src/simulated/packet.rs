//! A packet in the simulated network.

use std::sync::Arc;

use pumice_transport::path::Flow;

/// A packet in the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FabricPacket {
    pub(super) flow: Flow,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    /// Bytes, shared between the receivers of a multicast packet.
    pub(super) bytes: Arc<[u8]>,
}
