//! The limits of a port for each peer: a port may reach different peers over different media.

use std::net::IpAddr;

use pumice_transport::wire::ProcessIndex;

/// A process that packets are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Address of its device, or a multicast group.
    pub address: IpAddr,
    /// Index of the process among those that share the address.
    pub process: ProcessIndex,
}

/// The limits of the path to a peer. A limit may shrink while the port lives (a device that cannot segment),
/// so the sender asks before each batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortLimits {
    /// Largest number of packets per batch, at least 1.
    pub max_segments: usize,
    /// Largest length of a batch, in bytes.
    pub max_batch_bytes: usize,
    /// Size of the peer's receive buffer, in bytes of `packet_cost`. All queue pairs of the peer share it. A
    /// port that cannot know it reports its own.
    pub receive_buffer_bytes: usize,
    /// Charge of a packet in that buffer.
    pub packet_cost: PacketCost,
    /// The packets have an ICRC. Without it, the bytes at the place of the ICRC have no meaning.
    pub needs_icrc: bool,
    /// The port is asked before each batch whether there is room
    /// ([`ProcessGroup::admits`](crate::port::group::ProcessGroup::admits)), and loses none for want of it.
    pub waits_for_room: bool,
}

/// The medium that carries batches to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerMedium {
    /// A ring in shared memory.
    Ring,
    /// UDP datagrams, and why not a ring.
    Udp(&'static str),
    /// A network that is simulated.
    Simulated,
}

/// The charge of a packet in a receive buffer: a multiple of its length plus its bookkeeping, and no less
/// than a smallest cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketCost {
    /// Cost of the shortest packet, in bytes.
    pub least_bytes: u32,
    /// Cost per byte of the packet.
    pub factor: u32,
    /// Cost per packet, in bytes.
    pub overhead_bytes: u32,
}

impl PacketCost {
    /// Cost of a lone packet in the receive buffer of a UDP socket. The kernel charges the packet's page
    /// order and its bookkeeping: 8456 bytes for 4128 of payload, 2305 for 1056, 832 for a tiny one
    /// (measured). It charges less for the packets of a batch.
    pub const UDP_SOCKET: PacketCost = PacketCost { least_bytes: 512, factor: 2, overhead_bytes: 256 };

    /// Returns the cost of a packet of this length.
    #[inline]
    pub const fn of(self, length_bytes: usize) -> u64 {
        let cost_bytes = self.factor as u64 * length_bytes as u64 + self.overhead_bytes as u64;
        let least_bytes = self.least_bytes as u64;
        if cost_bytes < least_bytes { least_bytes } else { cost_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_udp_socket_charges_at_least_a_small_packet() {
        let costs = [0, 16, 128, 129, 1056, 4128].map(|length_bytes| PacketCost::UDP_SOCKET.of(length_bytes));
        assert_eq!(costs, [512, 512, 512, 514, 2368, 8512]);
    }
}
