//! The configuration of a simulated network, and its statistics.

use pumice_faults::WirePlan;

use pumice_model::network::topology::Topology;
use pumice_model::network::{EcnMarking, LinkDirection};

/// The configuration of a simulated network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricConfig {
    /// Seed of the jitter.
    pub seed: u64,
    /// Delay in one direction, from the last bit sent to arrival, in nanoseconds.
    pub delay_ns: u64,
    /// Uniform addition to the delay, 0 to this, in nanoseconds. Does not reorder.
    pub jitter_ns: u64,
    /// Rate of each port's link towards the switch, Ethernet, IP and UDP headers included; `None` is
    /// infinitely fast and never queues.
    pub rate_bits_per_second: Option<u64>,
    /// Length of the queue in front of that link, in bytes; a packet that does not fit is lost.
    pub queue_bytes: usize,
    /// Largest IP packet; longer ones are refused, as a UDP socket with DF set refuses them.
    pub link_mtu: usize,
    /// Size of each port's receive buffer, charged the way Linux charges lone packets; a packet that does not
    /// fit is lost.
    pub receive_buffer_bytes: usize,
    /// Faults of packets, for each receiver of a multicast packet.
    pub faults: WirePlan,
    /// Queue length, in bytes, above which packets of ECN-capable senders (ECN bits 01 or 10) that join it
    /// are marked CE.
    pub ecn_mark_queue_bytes: Option<usize>,
    /// Packets are not lost for want of room at the receiver: senders wait until there is some, as with the
    /// rings of one host.
    pub back_pressure: bool,
    /// Switches between the ports. Rates, delays, queues and marks are then those of its links, and not those
    /// above. An impossible one ([`Topology::check`]) has no host for any port. It does not change later.
    pub topology: Option<Topology>,
}

impl FabricConfig {
    /// Returns each port's link towards the switch, without delay and jitter, which the network adds.
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
    /// Returns a network with one microsecond of delay, infinitely fast, with jumbo frames and without
    /// faults.
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

/// The statistics of packets so far. Every packet sent, once per receiver for multicast, plus every duplicate
/// ends up in exactly one of `delivered`, `lost`, `cut_off`, `unrouted`, `queue_drops`, `receive_drops`, or
/// is still on the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FabricStats {
    /// Packets given to the fabric; a multicast packet counts once.
    pub sent: u64,
    /// Packets put into a port's receive buffer.
    pub delivered: u64,
    /// Packets lost by a fault.
    pub lost: u64,
    /// Second copies made by a fault.
    pub duplicated: u64,
    /// Packets delayed so that others overtake.
    pub reordered: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets cut short.
    pub truncated: u64,
    /// Packets marked CE.
    pub marked: u64,
    /// Packets lost because the two ends were cut off from each other.
    pub cut_off: u64,
    /// Packets to an address that no port has or a group that no port joined.
    pub unrouted: u64,
    /// Packets lost because the sender's queue was full, or that of a switch.
    pub queue_drops: u64,
    /// Packets lost because the receiver's buffer was full or its port gone.
    pub receive_drops: u64,
    /// Times that a switch paused the sender of a link.
    pub pauses: u64,
    /// Times that a sender had to wait because the receiver had no room.
    pub back_pressured: u64,
}
