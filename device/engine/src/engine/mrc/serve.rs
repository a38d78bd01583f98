//! The engine's work for MRC queue pairs: packets, timers, turns to send.

use pumice_memory::MappingCheck;
use pumice_model::port::Port;
use pumice_model::port::batch::ReceivedBatch;
use pumice_transport::event::{QpEvent, Topic};
use pumice_transport::host::{Counter, Host};
use pumice_transport::mrc::MrcProgress;
use pumice_transport::mrc::constants::OTHER_PORT;
use pumice_transport::mrc::endpoint::ENDPOINT_QPN;
use pumice_transport::mrc::entropy::{Entropy, MrcArrival};
use pumice_transport::mrc::wire::MrcOpcode;
use pumice_transport::types::QpState;
use pumice_transport::wire::{IcrcVerdict, Opcode, icrc, peek};

use super::endpoint::ENDPOINT_INDEX;
use super::table::MrcTable;
use crate::engine::batch::BatchSink;
use crate::engine::queue_pairs::QueuePairs;
use crate::engine::schedule::Ready;
use crate::engine::timers::peer_progress;
use crate::engine::turns::Turns;
use crate::resources::{MappingCheckPolicy, Resources};

/// ECN bits of a packet that a switch has marked.
const MARKED: u8 = 3;

impl MrcTable {
    /// Passes a packet to its queue pair, or drops and counts it. Returns false, and does nothing, if it is
    /// no packet of MRC, or the device has no MRC queue pairs.
    #[cold]
    pub(crate) fn receive(
        &mut self,
        now_ns: u64,
        (received, position, bytes): (&ReceivedBatch<'_>, usize, &[u8]),
        resources: &mut Resources,
        checks: MappingCheckPolicy,
        touched: &mut Ready,
    ) -> bool {
        let is_mrc = bytes.first().is_some_and(|byte| MrcOpcode::from_byte(*byte).is_some());
        if !is_mrc || self.is_closed() {
            return false;
        }
        let source = received.flow.source;
        let trim = self.classes.trim(received.traffic_class >> 2);
        if trim.is_none() && received.has_icrc {
            match icrc::verify(&received.flow, position as u16, bytes) {
                IcrcVerdict::Exact => {}
                IcrcVerdict::Recovered { .. } => resources.count(Counter::RxIcrcRecovered, 1),
                IcrcVerdict::Bad => {
                    resources.drop_packet(Counter::RxBadIcrc, source, None);
                    return true;
                }
            }
        }
        let arrival = MrcArrival {
            entropy: Entropy::of(0, received.flow.source_port),
            plane: self.plane_of(received.flow.source_port),
            congested: received.traffic_class & MARKED == MARKED,
            trim,
        };
        let destination = peek::destination(bytes);
        if destination == Some(ENDPOINT_QPN) {
            self.receive_request(now_ns, received, &arrival, bytes);
            touched.push(ENDPOINT_INDEX);
            return true;
        }
        let found = destination.and_then(|qpn| self.rss_queue_pair(qpn));
        let Some((index, entry)) = found else {
            resources.drop_packet(Counter::RxUnknownQpn, source, None);
            return true;
        };
        entry.activity.traffic.received(bytes.len());
        entry.activity.active_ns = now_ns;
        let Some(qp) = &mut entry.qp else {
            resources.drop_packet(Counter::RxWrongService, source, None);
            return true;
        };
        let mut host = resources.host(checks.of_connections());
        if host.listens(Topic::Packets) {
            let opcode = Opcode::from_byte(bytes.first().copied().unwrap_or_default());
            let event = QpEvent::PacketReceived {
                is_answer: MrcOpcode::from_byte(opcode.byte()).is_some_and(|known| !known.is_write()),
                opcode,
                psn: peek::psn(bytes).unwrap_or_default(),
                relative_psn: None,
                length_bytes: bytes.len() as u32,
                source: None,
                flow: &received.flow,
            };
            host.emit_uncounted(&entry.context, &event);
        }
        if qp.handle_datagram(now_ns, &arrival, bytes, &mut host).is_err() {
            host.drop_packet(Counter::RxBadLength, source, None);
        }
        touched.push(index);
        true
    }

    /// Gives a queue pair its turn to send. `senders` gets it again if it has more than fits now; returns
    /// whether another turn can send that. `held` gets it if its receiver has no room.
    #[cold]
    pub(crate) fn transmit<H: Host>(
        &mut self,
        (index, now_ns): (u32, u64),
        host: &mut H,
        sink: &mut BatchSink<'_>,
        turns: &mut Turns,
    ) -> bool {
        if index == ENDPOINT_INDEX {
            self.transmit_requests(now_ns, sink, &mut turns.deadlines);
            return false;
        }
        let Some(entry) = self.at_mut(index) else { return false };
        let progress = entry.transmit(now_ns, host, sink);
        turns.deadlines.register(index, entry.deadline_ns());
        if progress == MrcProgress::Idle {
            return false;
        }
        match sink.held {
            true => turns.held.push(index),
            false => turns.senders.push(index),
        }
        !sink.held && !sink.builder.is_stalled()
    }

    /// Receives packets of MRC from the other UDP port that its texts name as well, from now on. Where
    /// another program has that port, packets come to the usual one alone.
    #[cold]
    pub(crate) fn listen(&mut self, port: &mut dyn Port) {
        if !std::mem::replace(&mut self.listens, true) {
            let _ = port.listen_also(OTHER_PORT);
        }
    }

    /// Determines what an MRC queue pair has to do next.
    #[cold]
    pub(crate) fn note(
        &mut self,
        index: u32,
        queue_pairs: &mut QueuePairs,
        resources: &mut Resources,
        turns: &mut Turns,
    ) {
        if index == ENDPOINT_INDEX {
            return self.note_endpoint(turns);
        }
        self.note_changes(index, resources);
        // An RC queue pair fails with its twin.
        let failed = self.at_mut(index).filter(|entry| entry.state() == QpState::Err);
        if let Some(qpn) = failed.and_then(|entry| entry.twin_of)
            && let Some((index, entry)) = queue_pairs.by_number(qpn)
            && entry.qp.state() != QpState::Err
        {
            let _ = entry.with(&mut resources.host(MappingCheck::Assumed), |qp, host| {
                qp.enter_error(None, host);
            });
            turns.touched.push(index);
        }
        let Some(entry) = self.at_mut(index) else { return };
        if entry.wants_to_send() {
            turns.senders.push(index);
        }
        turns.deadlines.register(index, entry.deadline_ns());
    }

    /// Runs the timers of an MRC queue pair, as far as they are due. The port was last found empty at
    /// `drained_ns`.
    #[cold]
    pub(crate) fn expire(
        &mut self,
        index: u32,
        (now_ns, drained_ns): (u64, u64),
        checks: MappingCheckPolicy,
        resources: &mut Resources,
        port: &mut dyn Port,
        turns: &mut Turns,
    ) {
        if index == ENDPOINT_INDEX {
            if let Some(desk) = &mut self.endpoint {
                desk.endpoint.handle_timeout(now_ns);
            }
            turns.touched.push(index);
            return;
        }
        let Some(entry) = self.at_mut(index) else { return };
        let due_ns = entry.deadline_ns();
        if due_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            entry.activity.active_ns = now_ns;
            let peer = entry.peer().map(|peer| (peer.address, entry.peer));
            if let Some(qp) = &mut entry.qp {
                let doubts =
                    qp.peer_silent_since_ns(now_ns).map(|(since_ns, due_ns)| (since_ns, Some(due_ns)));
                let progress = peer_progress(doubts, peer, (now_ns, drained_ns), port);
                qp.handle_timeout(now_ns, progress, &mut resources.host(checks.of_connections()));
            }
            turns.touched.push(index);
        } else {
            turns.deadlines.register(index, due_ns);
        }
    }
}
