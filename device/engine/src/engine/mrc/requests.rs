//! The engine's work for queue pair 2: packets of endpoint requests, and what follows from them.

use std::sync::Arc;

use pumice_model::port::batch::ReceivedBatch;
use pumice_transport::host::Transmit as _;
use pumice_transport::mrc::endpoint::{ENDPOINT_QPN, EndpointEvent};
use pumice_transport::mrc::entropy::{MrcArrival, TrafficClass};
use pumice_transport::mrc::wire::{MrcBody, MrcPacket};

use super::endpoint::ENDPOINT_INDEX;
use super::table::MrcTable;
use crate::engine::batch::BatchSink;
use crate::engine::schedule::Deadlines;
use crate::engine::turns::Turns;

impl MrcTable {
    /// Passes a packet to queue pair 2.
    pub(super) fn receive_request(
        &mut self,
        now_ns: u64,
        received: &ReceivedBatch<'_>,
        arrival: &MrcArrival,
        bytes: &[u8],
    ) {
        let desk = self.endpoint.get_or_insert_with(Box::default);
        let Ok(packet) = MrcPacket::parse(bytes) else { return };
        desk.know(received.flow.source, received.flow.destination);
        desk.endpoint.handle_packet(now_ns, received.flow.source, arrival, &packet);
    }

    /// Sends what queue pair 2 has to send. What finds no room is lost, as in the network.
    pub(super) fn transmit_requests(
        &mut self,
        now_ns: u64,
        sink: &mut BatchSink<'_>,
        deadlines: &mut Deadlines,
    ) {
        let control = self.classes.dscp(TrafficClass::Control) << 2;
        let Some(desk) = &mut self.endpoint else { return };
        while let Some(packet) = desk.endpoint.poll_transmit(now_ns) {
            let number = packet.headers.bth.psn.value() as u16;
            let is_request = matches!(packet.headers.body, MrcBody::EndpointRequest(_));
            let class = desk.classes.get(&number).copied().filter(|_| is_request).unwrap_or(control);
            let Some(path) = desk.path(&packet, class, self.udp_port) else { continue };
            let Some(room) = sink.begin(&Arc::new(path), ENDPOINT_QPN, packet.headers.packet_len(0)) else {
                break;
            };
            let _ = packet.headers.emit(0, room);
            sink.seal();
        }
        deadlines.register(ENDPOINT_INDEX, desk.endpoint.deadline_ns());
    }

    /// Handles what queue pair 2 reports, and determines what it has to do next.
    pub(super) fn note_endpoint(&mut self, turns: &mut Turns) {
        let MrcTable { endpoint, entries, .. } = self;
        let Some(desk) = endpoint else { return };
        while let Some(event) = desk.endpoint.poll_event() {
            match event {
                EndpointEvent::PortStatus { peer, planes } => {
                    for (index, entry) in entries.iter_mut().filter(|(_, entry)| entry.is_towards(peer)) {
                        if let Some(qp) = &mut entry.qp {
                            qp.set_remote_planes(planes);
                            turns.touched.push(*index);
                        }
                    }
                }
                EndpointEvent::Answered { request_id, rtt_ns, .. }
                | EndpointEvent::PortsAnswered { request_id, rtt_ns, .. } => {
                    desk.ended.insert(request_id, Some(rtt_ns));
                }
                EndpointEvent::Unanswered { request_id, .. } => {
                    desk.ended.insert(request_id, None);
                }
                EndpointEvent::PeerSilent { .. } => {}
            }
        }
        if desk.endpoint.wants_to_send() {
            turns.senders.push(ENDPOINT_INDEX);
        }
        turns.deadlines.register(ENDPOINT_INDEX, desk.endpoint.deadline_ns());
    }
}
