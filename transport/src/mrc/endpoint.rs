//! Queue pair 2 of a host, which sends and answers EV probes and port status updates.

use alloc::collections::VecDeque;
use core::net::IpAddr;

use super::constants::{
    EV_PROBE_TIMEOUT_NS, MAX_ENDPOINT_REQUESTS, PORT_UPDATE_ATTEMPTS, PORT_UPDATE_INTERVAL_NS,
};
use super::entropy::{MrcArrival, MrcOutgoingPacket, Planes, TrafficClass};
use super::paths::Ev;
use super::wire::{Eeth, EndpointOperation, Erth, MrcBody, MrcBth, MrcHeaders, MrcOpcode, MrcPacket, Tseth};
use crate::wire::{Psn, Qpn};

/// Number of the queue pair that endpoint requests and responses are sent to.
pub const ENDPOINT_QPN: Qpn = Qpn::new(2);

/// An event that the endpoint reports to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointEvent {
    /// A peer reported which of its ports are up. The device passes this to all queue pairs towards the peer.
    PortStatus {
        /// Address of the peer.
        peer: IpAddr,
        /// Ports of the peer that are up.
        planes: Planes,
    },
    /// An EV probe was answered.
    Answered {
        /// The number that [`Endpoint::probe`] returned.
        request_id: u16,
        /// The queue pair that asked for the probe.
        owner: Qpn,
        /// The path that was tested.
        ev: Ev,
        /// Round trip of the probe.
        rtt_ns: u64,
    },
    /// An EV probe was not answered in time.
    Unanswered {
        /// The number that [`Endpoint::probe`] returned.
        request_id: u16,
        /// The queue pair that asked for the probe.
        owner: Qpn,
        /// The path that was tested.
        ev: Ev,
    },
    /// A port status update was answered.
    PortsAnswered {
        /// The number that [`Endpoint::update_ports`] returned.
        request_id: u16,
        /// The path that the update took.
        ev: Ev,
        /// Round trip of the update.
        rtt_ns: u64,
    },
    /// A peer did not answer a port status update.
    PeerSilent {
        /// Address of the peer.
        peer: IpAddr,
    },
}

#[derive(Debug, Clone, Copy)]
struct PendingRequest {
    id: u16,
    peer: IpAddr,
    owner: Qpn,
    ev: Ev,
    operation: EndpointOperation,
    planes: Planes,
    /// Time of the last transmission; `None` if the request is to be sent.
    sent_ns: Option<u64>,
    attempts: u8,
}

impl PendingRequest {
    /// Returns the time at which the request is retransmitted or given up.
    fn deadline_ns(&self) -> Option<u64> {
        let wait = match self.operation {
            EndpointOperation::EvProbe => EV_PROBE_TIMEOUT_NS,
            EndpointOperation::PortStatusUpdate => {
                PORT_UPDATE_INTERVAL_NS << self.attempts.saturating_sub(1).min(PORT_UPDATE_ATTEMPTS)
            }
        };
        self.sent_ns.map(|sent_ns| sent_ns.saturating_add(wait))
    }
}

#[derive(Debug, Clone, Copy)]
struct PendingResponse {
    peer: IpAddr,
    psn: Psn,
    ev: Ev,
    eeth: Eeth,
}

/// A packet that an endpoint sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointPacket {
    /// Address of the host that the packet is for.
    pub peer: IpAddr,
    /// Path and traffic class of the packet.
    pub departure: MrcOutgoingPacket,
    /// Headers of the packet, which has no payload.
    pub headers: MrcHeaders,
}

/// Endpoint requests of this host and of its peers.
#[derive(Debug)]
pub struct Endpoint {
    pkey: u16,
    requests: VecDeque<PendingRequest>,
    responses: VecDeque<PendingResponse>,
    events: VecDeque<EndpointEvent>,
    next_id: u16,
}

impl Endpoint {
    /// Creates an endpoint of a partition.
    pub fn new(pkey: u16) -> Endpoint {
        Endpoint {
            pkey,
            requests: VecDeque::new(),
            responses: VecDeque::new(),
            events: VecDeque::new(),
            next_id: 0,
        }
    }

    fn add_request(
        &mut self,
        peer: IpAddr,
        owner: Qpn,
        ev: Ev,
        operation: EndpointOperation,
        planes: Planes,
    ) -> u16 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        if self.requests.len() >= MAX_ENDPOINT_REQUESTS
            && let Some(oldest) = self.requests.pop_front()
        {
            self.give_up(&oldest);
        }
        self.requests.push_back(PendingRequest {
            id,
            peer,
            owner,
            ev,
            operation,
            planes,
            sent_ns: None,
            attempts: 0,
        });
        id
    }

    /// Requests an EV probe of a path to a peer, and returns the number of the request.
    pub fn probe(&mut self, peer: IpAddr, owner: Qpn, ev: Ev) -> u16 {
        self.add_request(peer, owner, ev, EndpointOperation::EvProbe, Planes(0))
    }

    /// Requests that a peer is notified which ports are up, by a path that is up. Returns the number of the
    /// request. An older update to the same peer is dropped.
    pub fn update_ports(&mut self, peer: IpAddr, ev: Ev, planes: Planes) -> u16 {
        let is_older = |request: &PendingRequest| {
            request.peer == peer && request.operation == EndpointOperation::PortStatusUpdate
        };
        self.requests.retain(|request| !is_older(request));
        self.add_request(peer, ENDPOINT_QPN, ev, EndpointOperation::PortStatusUpdate, planes)
    }

    fn push_event(&mut self, event: EndpointEvent) {
        if self.events.len() >= MAX_ENDPOINT_REQUESTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn give_up(&mut self, request: &PendingRequest) {
        let PendingRequest { id, owner, ev, peer, .. } = *request;
        self.push_event(match request.operation {
            EndpointOperation::EvProbe => EndpointEvent::Unanswered { request_id: id, owner, ev },
            EndpointOperation::PortStatusUpdate => EndpointEvent::PeerSilent { peer },
        });
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }

    /// Handles a packet that a host sent to queue pair 2. Other packets are ignored.
    pub fn handle_packet(&mut self, now_ns: u64, peer: IpAddr, arrival: &MrcArrival, packet: &MrcPacket<'_>) {
        let bth = &packet.headers.bth;
        if bth.destination != ENDPOINT_QPN || (bth.pkey ^ self.pkey) & 0x7fff != 0 {
            return;
        }
        match &packet.headers.body {
            MrcBody::EndpointRequest(erth) => {
                if erth.operation == EndpointOperation::PortStatusUpdate {
                    self.push_event(EndpointEvent::PortStatus {
                        peer,
                        planes: Planes(erth.port_status_mask),
                    });
                }
                if self.responses.len() >= MAX_ENDPOINT_REQUESTS {
                    self.responses.pop_front();
                }
                let eeth = Eeth { operation_bits: erth.operation as u8, timestamp: erth.tseth.timestamp };
                let ev = Ev { entropy: arrival.entropy, plane: arrival.plane };
                self.responses.push_back(PendingResponse { peer, psn: bth.psn, ev, eeth });
            }
            MrcBody::EndpointResponse(_) => self.answered(now_ns, peer, bth.psn.value() as u16),
            _ => {}
        }
    }

    fn answered(&mut self, now_ns: u64, peer: IpAddr, id: u16) {
        let is_it =
            |request: &PendingRequest| request.id == id && request.peer == peer && request.sent_ns.is_some();
        let Some(request) =
            self.requests.iter().position(is_it).and_then(|index| self.requests.remove(index))
        else {
            return;
        };
        let rtt_ns = now_ns.saturating_sub(request.sent_ns.unwrap_or(now_ns));
        let PendingRequest { id, owner, ev, .. } = request;
        self.push_event(match request.operation {
            EndpointOperation::EvProbe => EndpointEvent::Answered { request_id: id, owner, ev, rtt_ns },
            EndpointOperation::PortStatusUpdate => {
                EndpointEvent::PortsAnswered { request_id: id, ev, rtt_ns }
            }
        });
    }

    /// Returns the time at which [`Endpoint::handle_timeout`] is to be called.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.requests.iter().filter_map(PendingRequest::deadline_ns).min()
    }

    /// Schedules the retransmission of overdue updates, and gives up overdue probes.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        for _ in 0..self.requests.len() {
            let Some(mut request) = self.requests.pop_front() else { return };
            let is_over =
                request.operation == EndpointOperation::EvProbe || request.attempts >= PORT_UPDATE_ATTEMPTS;
            match request.deadline_ns().is_some_and(|due| due <= now_ns) {
                true if is_over => {
                    self.give_up(&request);
                    continue;
                }
                true => request.sent_ns = None,
                false => {}
            }
            self.requests.push_back(request);
        }
    }

    /// Reports whether [`Endpoint::poll_transmit`] has something to send.
    pub fn wants_to_send(&self) -> bool {
        !self.responses.is_empty() || self.requests.iter().any(|request| request.sent_ns.is_none())
    }

    /// Returns the next packet to send. The caller must have room for it.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<EndpointPacket> {
        if let Some(response) = self.responses.pop_front() {
            let bth = self.bth(MrcOpcode::EndpointResponse, response.psn);
            let headers = MrcHeaders { bth, body: MrcBody::EndpointResponse(response.eeth) };
            return Some(packet(response.peer, response.ev, TrafficClass::Control, headers));
        }
        let index = self.requests.iter().position(|request| request.sent_ns.is_none())?;
        let request = self.requests.get_mut(index)?;
        (request.sent_ns, request.attempts) = (Some(now_ns), request.attempts.saturating_add(1));
        let PendingRequest { peer, ev, operation, planes, id, .. } = *request;
        let erth = Erth { operation, vendor_info: 0, port_status_mask: planes.0, tseth: Tseth::at(now_ns) };
        let class = match operation {
            EndpointOperation::EvProbe => TrafficClass::NoTrim,
            EndpointOperation::PortStatusUpdate => TrafficClass::Control,
        };
        let bth = self.bth(MrcOpcode::EndpointRequest, Psn::new(id.into()));
        Some(packet(peer, ev, class, MrcHeaders { bth, body: MrcBody::EndpointRequest(erth) }))
    }

    fn bth(&self, opcode: MrcOpcode, psn: Psn) -> MrcBth {
        MrcBth { pkey: self.pkey, ..MrcBth::new(opcode, ENDPOINT_QPN, psn) }
    }
}

fn packet(peer: IpAddr, ev: Ev, class: TrafficClass, headers: MrcHeaders) -> EndpointPacket {
    let departure = MrcOutgoingPacket { entropy: ev.entropy, plane: ev.plane, class };
    EndpointPacket { peer, departure, headers }
}
