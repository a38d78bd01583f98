//! A packet in the simulated network, and the digest of all that happened there.

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

/// The kind of an event in the digest.
#[derive(Clone, Copy)]
pub(super) enum DigestEvent {
    Delivery = 1,
    Loss,
    CutOff,
    Unrouted,
    QueueDrop,
    ReceiveDrop,
}

/// A running 64-bit mix; not cryptographic, made to tell runs apart.
#[derive(Debug, Default)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn value(&self) -> u64 {
        self.0
    }

    fn mix(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
    }

    pub(super) fn note(&mut self, event: DigestEvent, at_ns: u64, one: usize, other: usize) {
        for word in [event as u64, at_ns, one as u64, other as u64] {
            self.mix(word);
        }
    }

    pub(super) fn packet(&mut self, packet: &FabricPacket) {
        self.mix(u64::from(packet.traffic_class) << 8 | u64::from(packet.hop_limit));
        self.mix(u64::from(packet.flow.source_port) << 16 | u64::from(packet.flow.destination_port));
        let (words, tail) = packet.bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        for &byte in tail {
            self.mix(u64::from(byte));
        }
    }
}
