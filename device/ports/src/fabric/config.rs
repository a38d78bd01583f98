//! What a simulated network is like, and what happened on it.

use pumice_faults::WirePlan;

use crate::link::{EcnMarking, LinkDirection};
use crate::topology::Topology;

/// What the network is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricConfig {
    /// Of the jitter.
    pub seed: u64,
    /// One way, from the last bit sent to arrival.
    pub delay_ns: u64,
    /// Uniform addition to the delay, 0 to this. Does not reorder.
    pub jitter_ns: u64,
    /// Of each port's link towards the switch, Ethernet, IP and UDP headers included; `None` is infinitely
    /// fast and never queues.
    pub rate_bits_per_second: Option<u64>,
    /// Queue in front of that link; what does not fit is lost.
    pub queue_bytes: usize,
    /// Largest IP packet; longer ones are refused, as a UDP socket with DF set refuses them.
    pub link_mtu: usize,
    /// Each port's receive buffer, charged the way Linux charges lone packets; what does not fit is lost.
    pub receive_buffer_bytes: usize,
    /// What goes wrong with packets, for each receiver of a multicast packet.
    pub faults: WirePlan,
    /// Packets of ECN-capable senders (ECN bits 01 or 10) are marked CE when the queue they join is longer
    /// than this.
    pub ecn_mark_queue_bytes: Option<usize>,
    /// Packets are not lost for want of room at the receiver: senders wait until there is some, as with the
    /// rings of one host.
    pub back_pressure: bool,
    /// Switches between the ports. Rates, delays, queues and marks are those of its links then, and not those
    /// above. An impossible one ([`Topology::check`]) has no host for any port. It does not change later.
    pub topology: Option<Topology>,
}

impl FabricConfig {
    /// Each port's link towards the switch, without delay and jitter: the network has these.
    pub(super) fn link(&self) -> LinkDirection {
        LinkDirection {
            rate_bits_per_second: self.rate_bits_per_second,
            queue_bytes: Some(self.queue_bytes as u64),
            ecn: self.ecn_mark_queue_bytes.map(|bytes| EcnMarking::Above(bytes as u64)),
            ..LinkDirection::NONE
        }
    }
}

impl Default for FabricConfig {
    /// One microsecond, infinitely fast, jumbo frames, no faults.
    fn default() -> FabricConfig {
        FabricConfig {
            seed: 0,
            delay_ns: 1_000,
            jitter_ns: 0,
            rate_bits_per_second: None,
            queue_bytes: 1 << 20,
            link_mtu: 9_000,
            receive_buffer_bytes: 4 << 20,
            faults: WirePlan::new(),
            ecn_mark_queue_bytes: None,
            back_pressure: false,
            topology: None,
        }
    }
}

/// What happened to packets so far. Every packet sent, once per receiver for multicast, plus every duplicate
/// ends up in exactly one of `delivered`, `lost`, `cut_off`, `unrouted`, `queue_drops`, `receive_drops`, or
/// is still on the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FabricStats {
    /// Packets given to the fabric; a multicast packet counts once.
    pub sent: u64,
    /// Packets put into a port's receive buffer.
    pub delivered: u64,
    /// Lost by a fault.
    pub lost: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Delayed so that others overtake.
    pub reordered: u64,
    /// With a bit flipped.
    pub corrupted: u64,
    /// Cut short.
    pub truncated: u64,
    /// Marked CE.
    pub marked: u64,
    /// Lost because the two ends were cut off from each other.
    pub cut_off: u64,
    /// To an address that no port has or a group that no port joined.
    pub unrouted: u64,
    /// Lost because the sender's queue was full, or that of a switch.
    pub queue_drops: u64,
    /// Lost because the receiver's buffer was full or its port gone.
    pub receive_drops: u64,
    /// Times that a switch paused what a link brought.
    pub pauses: u64,
    /// Times that a sender was told to wait, because the receiver has no room.
    pub told_to_wait: u64,
}
