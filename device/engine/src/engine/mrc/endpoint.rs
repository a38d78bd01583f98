//! Queue pair 2 of the device: EV probes and port status updates.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pumice_transport::mrc::endpoint::{ENDPOINT_QPN, Endpoint, EndpointPacket};
use pumice_transport::mrc::entropy::Planes;
use pumice_transport::mrc::paths::Ev;
use pumice_transport::path::{Flow, Path};

/// The index of queue pair 2 in the lists of the engine: no other queue pair has it.
pub(crate) const ENDPOINT_INDEX: u32 = 2;
/// Partition of endpoint requests.
const PKEY: u16 = 0xffff;
/// Largest number of peers and answers that are remembered.
const MOST_KNOWN: usize = 4096;
/// TTL of the packets.
const HOP_LIMIT: u8 = 64;

/// Queue pair 2, and what the device remembers about its requests.
#[derive(Debug)]
pub(crate) struct EndpointDesk {
    pub(crate) endpoint: Endpoint,
    /// The own address that each peer knows.
    own: BTreeMap<IpAddr, IpAddr>,
    /// IP traffic classes of requests of a controller, by their numbers.
    pub(super) classes: BTreeMap<u16, u8>,
    /// Round trips of requests that ended, by their numbers; `None`: no answer came.
    pub(super) ended: BTreeMap<u16, Option<u64>>,
}

impl Default for EndpointDesk {
    fn default() -> EndpointDesk {
        EndpointDesk {
            endpoint: Endpoint::new(PKEY),
            own: BTreeMap::new(),
            classes: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }
}

/// A request of a controller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndpointAsk {
    pub(crate) own: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) ev: Ev,
    /// IP traffic class of the packet.
    pub(crate) traffic_class: u8,
    /// Ports that are up, of a port status update.
    pub(crate) ports: Option<Planes>,
}

impl EndpointDesk {
    /// Begins a request, and returns its number.
    pub(crate) fn ask(&mut self, ask: &EndpointAsk) -> u16 {
        self.know(ask.peer, ask.own);
        let id = match ask.ports {
            None => self.endpoint.probe(ask.peer, ENDPOINT_QPN, ask.ev),
            Some(ports) => self.endpoint.update_ports(ask.peer, ask.ev, ports),
        };
        if self.ended.len() >= MOST_KNOWN || self.classes.len() >= MOST_KNOWN {
            self.ended.clear();
            self.classes.clear();
        }
        self.ended.remove(&id);
        self.classes.insert(id, ask.traffic_class);
        id
    }

    /// Returns how a request ended, once: its round trip, or that no answer came. `None`: it has not ended.
    pub(crate) fn take_end(&mut self, id: u16) -> Option<Option<u64>> {
        self.ended.remove(&id)
    }

    pub(super) fn know(&mut self, peer: IpAddr, own: IpAddr) {
        if self.own.len() >= MOST_KNOWN {
            self.own.clear();
        }
        self.own.insert(peer, own);
    }

    pub(super) fn path(&self, packet: &EndpointPacket, class: u8, udp_port: u16) -> Option<Path> {
        let source = *self.own.get(&packet.peer)?;
        let source_port = packet.departure.entropy.source_port();
        let flow = Flow { source, destination: packet.peer, source_port, destination_port: udp_port };
        Some(Path { flow, traffic_class: class, hop_limit: HOP_LIMIT, flow_label: 0 })
    }
}
