//! Batches of packets: their limits for each peer, their segments, and the ways in which they are copied.

use std::net::IpAddr;
use std::sync::Arc;
use std::{fmt, io};

use pumice_transport::path::{Flow, Path};
use pumice_transport::types::Fate;
use pumice_transport::wire::icrc::{self, ICRC_BYTES};
use pumice_transport::wire::{Bth, Opcode, Operation, ProcessIndex, Service, peek};

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

/// Packets of one path and of one size that are sent together: a GSO batch (generic segmentation offload).
///
/// The batch is the unit because sending costs one traversal of the network stack per call, for a call
/// with one packet as for a call with many.
#[derive(Debug, Clone, Copy)]
pub struct GsoBatch<'a> {
    /// Path of all of the packets.
    pub path: &'a Path,
    /// Number of the series: batches of one port with the same number have one path, and go to one process; 0
    /// if none is known to. A port can use what it knows of the batch before.
    pub series: u64,
    /// Length of every packet (BTH to ICRC) but the last, which may be shorter, in bytes.
    pub segment_bytes: usize,
    /// Bytes of the packets, one after the other, not empty. The ICRC of the k-th (from 0) is made with IP ID
    /// k.
    pub bytes: &'a [u8],
    /// The packets have an ICRC, which the port needs
    /// ([`PortLimits::needs_icrc`](PortLimits)).
    pub has_icrc: bool,
    /// An adapter reads the payload of at least one of the packets from the program's memory, because its
    /// request does not carry it (inline data).
    pub is_fetched: bool,
    /// Fates of some of the packets under a fault plan, by their index in the batch, ascending; empty without
    /// one.
    pub fates: &'a [(u16, Fate)],
    /// Comments of captures about some of the packets, by their index in the batch, ascending.
    pub comments: &'a [(u16, Arc<str>)],
}

impl<'a> GsoBatch<'a> {
    /// Creates a batch without fates and comments.
    pub fn new(path: &'a Path, segment_bytes: usize, bytes: &'a [u8]) -> GsoBatch<'a> {
        GsoBatch {
            path,
            series: 0,
            segment_bytes,
            bytes,
            has_icrc: true,
            is_fetched: false,
            fates: &[],
            comments: &[],
        }
    }

    /// Returns the packets of the batch, in order. A `segment_bytes` of zero makes one packet of everything.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(if self.segment_bytes == 0 { self.bytes.len().max(1) } else { self.segment_bytes })
    }

    /// Returns the process that gets the batch: the one that the first packet names.
    pub fn peer(&self) -> Peer {
        let process = peek::process(self.bytes).unwrap_or_default();
        Peer { address: self.path.flow.destination, process }
    }
}

/// Packets of one flow that arrived together.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedBatch<'a> {
    /// Addresses and ports as they were on the wire: `source` is the sender.
    pub flow: Flow,
    /// TOS byte / IPv6 traffic class; the low two bits are ECN.
    pub traffic_class: u8,
    /// TTL / hop limit on arrival.
    pub hop_limit: u8,
    /// Length of every packet but the last, which may be shorter, in bytes; at least 1.
    pub segment_bytes: usize,
    /// Bytes of the packets, one after the other, not empty.
    pub bytes: &'a [u8],
    /// The packets have an ICRC. Packets that another process of this host put into memory have none, unless
    /// that process has to show it, and nothing on their way could damage them.
    pub has_icrc: bool,
}

impl<'a> ReceivedBatch<'a> {
    /// Returns the packets, in order.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        self.bytes.chunks(self.segment_bytes.max(1))
    }
}

/// Result of looking for a short batch.
#[derive(Debug)]
pub enum ShortReceive<'a> {
    /// A batch without ICRC, all of whose packets are for this process.
    Batch(ReceivedBatch<'a>),
    /// The port has nothing now.
    Nothing,
    /// The port has to be asked in the general way; nothing has been taken.
    NotHere,
}

/// The reason why a batch was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransmitError {
    /// The queue below is full and nothing was sent; try again later.
    Busy,
    /// The batch or one of its packets is longer than the port or the path to the destination carries.
    TooLong {
        /// Length of the packet (or of the batch, when `limit_bytes` is the batch's), in bytes.
        bytes: usize,
        /// Largest length that fits, when known, else 0.
        limit_bytes: usize,
    },
    /// There is no route to the destination.
    Unreachable,
    /// The operating system refused with this errno. `EADDRNOTAVAIL` is also the answer to a path whose
    /// source address or source port is not this port's.
    Refused(i32),
}

impl fmt::Display for TransmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Busy => f.write_str("the send queue is full"),
            Self::TooLong { bytes, limit_bytes: 0 } => {
                write!(f, "a packet of {bytes} bytes is longer than the MTU of the way to the destination")
            }
            Self::TooLong { bytes, limit_bytes } => {
                write!(f, "{bytes} bytes are more than the {limit_bytes} that fit")
            }
            Self::Unreachable => f.write_str("no route to the destination"),
            Self::Refused(errno) => {
                write!(f, "sending was refused: {}", io::Error::from_raw_os_error(errno))
            }
        }
    }
}

impl std::error::Error for TransmitError {}

const FLUSH: Opcode = Opcode::new(Service::Rc, Operation::Flush);

/// Renumbers a packet: its ICRC, made for IP ID `from`, becomes the one for `to`. The ICRC's error, if any,
/// is carried over: cutting a batch neither breaks good packets nor repairs bad ones. IPv6 has no IP ID and
/// needs nothing; fewer than 16 bytes are no packet and left alone.
pub fn renumber(flow: &Flow, from: u16, to: u16, packet: &mut [u8]) {
    if from == to || !flow.source.is_ipv4() || packet.len() < Bth::LEN + ICRC_BYTES {
        return;
    }
    if packet.first() == Some(&FLUSH.byte()) && is_sealed_for_rxe(flow, from, packet) {
        icrc::seal_flush_for_rxe(flow, to, packet);
        return;
    }
    if let Some((body, icrc)) = packet.split_last_chunk_mut::<ICRC_BYTES>() {
        let change = icrc::compute(flow, from, body) ^ icrc::compute(flow, to, body);
        *icrc = (u32::from_le_bytes(*icrc) ^ change).to_le_bytes();
    }
}

/// Returns the packets of a batch with the ICRCs of another flow; errors are carried over.
pub fn moved(from: &Flow, to: &Flow, segment_bytes: usize, bytes: &[u8]) -> Vec<u8> {
    let mut moved = bytes.to_vec();
    for (index, packet) in moved.chunks_mut(segment_bytes.max(1)).enumerate() {
        if let Some((body, icrc)) = packet.split_last_chunk_mut::<ICRC_BYTES>() {
            let (before, after) =
                (icrc::compute(from, ip_id(index), body), icrc::compute(to, ip_id(index), body));
            *icrc = (u32::from_le_bytes(*icrc) ^ before ^ after).to_le_bytes();
        }
    }
    moved
}

/// Returns the packets of a batch that has no ICRC, with those that its packets would have by UDP.
pub fn sealed(flow: &Flow, segment_bytes: usize, bytes: &[u8]) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    for (index, packet) in sealed.chunks_mut(segment_bytes.max(1)).enumerate() {
        icrc::seal_for_peers(flow, ip_id(index), packet);
    }
    sealed
}

/// Reports whether a packet's ICRC was made for this IP ID.
pub fn is_made_for(flow: &Flow, ip_id: u16, packet: &[u8]) -> bool {
    let standard = packet
        .split_last_chunk::<ICRC_BYTES>()
        .is_some_and(|(body, icrc)| icrc::compute(flow, ip_id, body) == u32::from_le_bytes(*icrc));
    standard || packet.first() == Some(&FLUSH.byte()) && is_sealed_for_rxe(flow, ip_id, packet)
}

/// Reports whether a packet has the ICRC of rdma_rxe, which makes that of FLUSH requests its own way.
fn is_sealed_for_rxe(flow: &Flow, ip_id: u16, packet: &[u8]) -> bool {
    let mut trial = packet.to_vec();
    icrc::seal_flush_for_rxe(flow, ip_id, &mut trial);
    trial == packet
}

/// Returns the IP ID that the packet at this index of a batch will carry. Batches are far shorter than 65536
/// packets.
pub fn ip_id(index: usize) -> u16 {
    index as u16
}

/// The way in which long messages are copied into rings of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// The faster one, which the first messages above 64 KiB to each process find out.
    #[default]
    Auto,
    /// By ordinary stores, through the cache.
    Cached,
    /// By non-temporal stores, past the cache.
    Streaming,
}

impl CopyMode {
    /// Parses `auto`, `cached` or `streaming`.
    ///
    /// # Errors
    /// The value is none of them.
    pub fn parse(value: &str) -> Result<CopyMode, &'static str> {
        [CopyMode::Auto, CopyMode::Cached, CopyMode::Streaming]
            .into_iter()
            .find(|mode| mode.name() == value)
            .ok_or("it is auto, cached or streaming")
    }

    /// Returns the value of the setting.
    pub const fn name(self) -> &'static str {
        match self {
            CopyMode::Auto => "auto",
            CopyMode::Cached => "cached",
            CopyMode::Streaming => "streaming",
        }
    }
}

/// The way in which a producer writes long batches into a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyWay {
    /// Ordinary stores: the bytes stay in the cache of the producer's core, from which the consumer gets
    /// them.
    #[default]
    Cached,
    /// Non-temporal stores: the bytes leave the producer's core at once, and the consumer gets them from
    /// memory.
    Streaming,
}

impl CopyWay {
    /// Returns the value of PUMICE_COPY that chooses the way.
    pub const fn name(self) -> &'static str {
        match self {
            CopyWay::Cached => CopyMode::Cached.name(),
            CopyWay::Streaming => CopyMode::Streaming.name(),
        }
    }

    /// Returns the other way.
    #[must_use]
    pub const fn other(self) -> CopyWay {
        match self {
            CopyWay::Cached => CopyWay::Streaming,
            CopyWay::Streaming => CopyWay::Cached,
        }
    }
}

/// The reason why a way is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyReason {
    /// The user has set it.
    Set,
    /// The processor has no other.
    OnlyWay,
    /// The process is in a world, where times measure no copies.
    World,
    /// The sender has sent nothing above 64 KiB yet.
    Untried,
    /// Both ways are being tried.
    Trying,
    /// The way was the faster one when both were tried.
    Measured,
}

impl CopyReason {
    /// Returns the reason in words.
    pub const fn why(self) -> &'static str {
        match self {
            CopyReason::Set => "PUMICE_COPY says so",
            CopyReason::OnlyWay => "this processor has no other",
            CopyReason::World => "worlds do not measure copies",
            CopyReason::Untried => "nothing above 64 KiB was sent yet",
            CopyReason::Trying => "both ways are being measured",
            CopyReason::Measured => "it was the faster one",
        }
    }
}

/// The facts about the copies of long batches to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyReport {
    /// The way of the next long batch.
    pub way: CopyWay,
    /// The reason for it.
    pub reason: CopyReason,
    /// Measured rate of ordinary stores, in bytes per second.
    pub cached_bytes_per_s: Option<u64>,
    /// Measured rate of non-temporal stores, in bytes per second.
    pub streaming_bytes_per_s: Option<u64>,
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use pumice_transport::wire::IcrcVerdict;

    use super::*;

    #[test]
    fn a_udp_socket_charges_at_least_a_small_packet() {
        let costs = [0, 16, 128, 129, 1056, 4128].map(|length_bytes| PacketCost::UDP_SOCKET.of(length_bytes));
        assert_eq!(costs, [512, 512, 512, 514, 2368, 8512]);
    }

    fn flow(address: IpAddr) -> Flow {
        Flow { source: address, destination: address, source_port: 4791, destination_port: 4791 }
    }

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_right_icrc_moves_along() {
        let flow = flow(V4);
        for (from, to) in [(5, 2), (0, 7), (127, 0), (3, 3)] {
            let (mut moved, mut made) = ([3; 40], [3; 40]);
            icrc::seal(&flow, from, &mut moved);
            icrc::seal(&flow, to, &mut made);
            renumber(&flow, from, to, &mut moved);
            assert_eq!(moved, made, "{from} to {to}");
        }
        renumber(&flow, 5, 0, &mut [0; 3]);
    }

    #[test]
    fn a_wrong_icrc_stays_as_wrong_as_it_was() {
        let flow = flow(V4);
        // Made for the first index though it is the fourth; made for the fourth and damaged.
        let (mut misplaced, mut damaged) = ([3; 40], [3; 40]);
        icrc::seal(&flow, 0, &mut misplaced);
        icrc::seal(&flow, 3, &mut damaged);
        damaged[20] ^= 1;
        for packet in [&mut misplaced, &mut damaged] {
            let before = *packet;
            renumber(&flow, 3, 0, packet);
            assert!(!is_made_for(&flow, 0, packet));
            renumber(&flow, 0, 3, packet);
            assert_eq!(*packet, before);
        }
        renumber(&flow, 3, 0, &mut damaged);
        assert_eq!(icrc::verify(&flow, 0, &damaged), IcrcVerdict::Bad);
    }

    #[test]
    fn a_flush_for_rxe_keeps_its_form() {
        let flow = flow(V4);
        let (mut moved, mut made) = ([FLUSH.byte(); 40], [FLUSH.byte(); 40]);
        icrc::seal_flush_for_rxe(&flow, 4, &mut moved);
        icrc::seal_flush_for_rxe(&flow, 1, &mut made);
        assert!(is_made_for(&flow, 4, &moved));
        renumber(&flow, 4, 1, &mut moved);
        assert_eq!(moved, made);
    }

    #[test]
    fn ipv6_has_nothing_to_renumber() {
        let flow = flow(IpAddr::V6(Ipv6Addr::LOCALHOST));
        let mut packet = [3; 40];
        icrc::seal(&flow, 5, &mut packet);
        let before = packet;
        renumber(&flow, 5, 0, &mut packet);
        assert_eq!(packet, before);
        assert_eq!(icrc::verify(&flow, 0, &packet), IcrcVerdict::Exact);
    }
}
