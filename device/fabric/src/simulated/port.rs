//! A port of the simulated network.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use super::network::{Network, lock};
use pumice_model::port::Port;
use pumice_model::port::batch::{
    GsoBatch, PacketCost, Peer, PeerMedium, PortLimits, ReceivedBatch, TransmitError,
};
use pumice_model::port::group::ProcessGroup;

/// Packets per batch, as for a UDP socket of Linux 6.9 or later.
const MAX_SEGMENTS: usize = 128;
const MAX_BATCH_BYTES: usize = 65_507;
/// Packets per batch on a fabric with back-pressure, as for a ring of one host.
const WAITING_SEGMENTS: usize = 64;
const WAITING_BATCH_BYTES: usize = 16 << 10;
/// Charge of such a batch in a receive buffer, at most.
const WAITING_BATCH_CHARGE: usize = WAITING_SEGMENTS * 840 + 4 * WAITING_BATCH_BYTES;

/// A port attached to a [`Fabric`](super::Fabric); it detaches when dropped.
///
/// Batches are split by the fabric, and every packet arrives alone with IP ID 0: a packet from the middle of
/// a batch has its ICRC moved to ID 0, and a wrong one stays wrong. A multicast packet also reaches the
/// sending port if that has joined the group.
#[derive(Debug)]
pub struct SimPort {
    network: Arc<Mutex<Network>>,
    index: usize,
}

impl SimPort {
    pub(super) fn new(network: Arc<Mutex<Network>>, index: usize) -> SimPort {
        SimPort { network, index }
    }
}

impl Port for SimPort {
    fn transmit(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        if batch.bytes.len() > MAX_BATCH_BYTES {
            let (bytes, limit_bytes) = (batch.bytes.len(), MAX_BATCH_BYTES);
            return Err(TransmitError::TooLong { bytes, limit_bytes });
        }
        if batch.segments().len() > MAX_SEGMENTS {
            let limit_bytes = MAX_SEGMENTS * batch.segment_bytes;
            return Err(TransmitError::TooLong { bytes: batch.bytes.len(), limit_bytes });
        }
        lock(&self.network).transmit(self.index, now_ns, batch)
    }

    fn receive(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        // The handler may use other ports of the fabric: the lock is released by then.
        let packet = {
            let mut network = lock(&self.network);
            network.advance_to(now_ns);
            network.take(self.index)
        };
        let Some(packet) = packet else { return false };
        // As at a UDP port, a datagram without a byte is taken and not given to the handler.
        if !packet.bytes.is_empty() {
            handler(&ReceivedBatch {
                flow: packet.flow,
                traffic_class: packet.traffic_class,
                hop_limit: packet.hop_limit,
                segment_bytes: packet.bytes.len(),
                bytes: &packet.bytes,
                has_icrc: true,
            });
        }
        true
    }

    fn limits(&self, _peer: Peer) -> PortLimits {
        let network = lock(&self.network);
        let waits_for_room = network.config.back_pressure;
        let (max_segments, max_batch_bytes) = if waits_for_room {
            (WAITING_SEGMENTS, WAITING_BATCH_BYTES)
        } else {
            (MAX_SEGMENTS, MAX_BATCH_BYTES)
        };
        PortLimits {
            max_segments,
            max_batch_bytes,
            receive_buffer_bytes: network.receive_buffer_bytes(),
            packet_cost: PacketCost::UDP_SOCKET,
            needs_icrc: true,
            waits_for_room,
        }
    }

    fn medium_to(&self, _peer: Peer) -> PeerMedium {
        PeerMedium::Simulated
    }

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        if !group.is_multicast() {
            let text = format!("{group} is not a multicast address");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        lock(&self.network).join(self.index, group);
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        if lock(&self.network).leave(self.index, group) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))
        }
    }

    fn next_event_ns(&self) -> Option<u64> {
        // Events in switches are internal to the network.
        lock(&self.network).next_arrival_ns()
    }

    fn group(&mut self) -> Option<&mut dyn ProcessGroup> {
        let waits_for_room = lock(&self.network).config.back_pressure;
        if waits_for_room { Some(self) } else { None }
    }
}

/// The port has one process at its address, whose peers may have no room.
impl ProcessGroup for SimPort {
    fn admits(&mut self, _now_ns: u64, peer: Peer) -> bool {
        let mut network = lock(&self.network);
        !network.config.back_pressure || network.has_room(peer.address, WAITING_BATCH_CHARGE)
    }
}

impl Drop for SimPort {
    fn drop(&mut self) {
        lock(&self.network).detach(self.index);
    }
}
