//! Packets that arrive for a queue pair: the checks that every packet must pass, and their dispatch.

use super::inbound::BufferFailure;
use super::peer_port::{Fit, PacketOrigin, PortVerdict};
use super::{Arrival, QueuePair, ReceivingSide, datagram};
use crate::event::{PacketIdentity, QpEvent, StateChangeActor, Topic};
use crate::host::{Counter, Host};
use crate::path::Flow;
use crate::types::{AsyncEventType, Cause, DropReason, QpState};
use crate::wire::{Packet, Psn};

impl QueuePair {
    /// Handles a packet whose ICRC is correct and whose destination is this queue pair.
    pub fn handle_packet<H: Host>(
        &mut self,
        now_ns: u64,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        if host.listens(Topic::Packets) {
            self.emit_received(arrival, packet, host);
        }
        if !self.settings.is_migrated {
            self.watch_migration(arrival, packet, host);
        }
        match self.check_packet(arrival, packet) {
            Ok(true) => {}
            Ok(false) if self.admits_port(now_ns, arrival, packet, host) => {}
            Ok(false) => {
                self.drop_packet(Counter::RxWrongPort, arrival, packet, host);
                return;
            }
            Err(reason) => {
                self.drop_packet(reason, arrival, packet, host);
                return;
            }
        }
        //= statement:51
        //| A CNP changes neither PSN nor state, and is not acknowledged.
        if packet.info().service.is_notification() {
            self.requester.handle_cnp(&self.settings, now_ns, host);
            return;
        }
        if self.notifier.observe(&self.settings, arrival.traffic_class, now_ns) {
            host.emit(&self.settings.context, QpEvent::CongestionMarked { psn: packet.bth().psn });
        }
        if let Some(numbered) = &mut self.numbered {
            numbered.handle(&self.settings, now_ns, arrival, packet, host);
            self.end_if_failed(host);
            self.finish_drain(host);
            return;
        }
        if packet.info().is_request {
            self.handle_request(arrival, packet, host);
        } else {
            let outcome = self.requester.handle_response(&self.settings, now_ns, packet, host);
            if let Err(failure) = outcome {
                self.fail_send(failure, host);
            }
            self.finish_drain(host);
        }
    }

    /// Reports a packet that arrived for the queue pair.
    #[cold]
    fn emit_received<H: Host>(&self, arrival: &Arrival<'_>, packet: &Packet<'_>, host: &mut H) {
        let info = packet.info();
        let is_answer = !info.is_request && !info.service.is_notification();
        if is_answer && !host.listens(Topic::Answers) {
            return;
        }
        let psn = packet.bth().psn;
        let first = if info.is_request {
            (self.state >= QpState::Rtr && self.settings.qp_type.is_connected())
                .then(|| Psn::new(self.attributes.rq_psn))
        } else {
            Some(self.requester.psns.first_psn)
        };
        let event = QpEvent::PacketReceived {
            is_answer,
            opcode: packet.bth().opcode,
            psn,
            relative_psn: first.map(|first| PacketIdentity::relative(psn, first)),
            length_bytes: packet.bytes().len() as u32,
            source: packet.deth().map(|deth| deth.source),
            flow: arrival.flow,
        };
        host.emit_uncounted(&self.settings.context, &event);
    }

    /// Counts a packet that is dropped, and logs the reason if it points to a mistake of a program.
    #[cold]
    fn drop_packet<H: Host>(
        &self,
        counter: Counter,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        host.emit(&self.settings.context, QpEvent::dropped(packet, counter));
        let Flow { source, destination: to, .. } = *arrival.flow;
        let reason = match (counter, &self.settings.path) {
            // A packet that comes after ERR, or to a queue pair that was connected before, is nothing
            // unusual.
            (Counter::RxWrongState, _)
                if matches!(self.state, QpState::Reset | QpState::Init) && self.settings.connection == 0 =>
            {
                DropReason::NotReceiving { state: self.state }
            }
            (Counter::RxWrongAddress, Some(path)) if source != path.flow.destination => {
                DropReason::NotThePeer { peer: path.flow.destination }
            }
            (Counter::RxWrongAddress, Some(path)) => DropReason::NotItsAddress { to, own: path.flow.source },
            (Counter::RxWrongService, _) => DropReason::OtherService { own: self.settings.qp_type.name() },
            (Counter::RxBadPkey, _) => {
                DropReason::OtherPartition { given: packet.bth().pkey, own: self.settings.pkey }
            }
            _ => return,
        };
        if packet.info().is_request {
            let (opcode, psn) = (packet.bth().opcode, packet.bth().psn);
            host.log(&self.settings.context, Cause::PacketDropped { source, opcode, psn, reason });
        }
    }

    /// Makes the checks that every packet must pass, of each opcode; a failure is a silent drop. Returns
    /// false if the packet does not come from the known UDP port of the peer.
    #[inline(always)]
    fn check_packet(&self, arrival: &Arrival<'_>, packet: &Packet<'_>) -> Result<bool, Counter> {
        //= linux:rxe_recv.c#check_type_state
        //| A packet of another transport than the queue pair has is dropped without an answer.
        let service = packet.info().service;
        if !service.is_notification() && service != self.settings.service() {
            return Err(Counter::RxWrongService);
        }
        let request = packet.info().is_request;
        // Services without responses have no responses in the table of opcodes. XRC queue pairs may have only
        // one side.
        //= statement:8
        //| A packet that the queue pair cannot serve gets no answer.
        let qp_type = self.settings.qp_type;
        let has_side = if request { qp_type.is_responder() } else { qp_type.has_send_queue() };
        // Initiators of DC get their answers in datagrams.
        if !has_side && !service.is_notification() && !qp_type.is_numbered() {
            return Err(Counter::RxWrongService);
        }
        //= linux:rxe_recv.c#check_type_state
        //| Requests need a state from RTR on, and responses need RTS.
        let receptive = if request {
            matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
        } else {
            matches!(self.state, QpState::Rts | QpState::Sqd)
        };
        if !receptive {
            return Err(Counter::RxWrongState);
        }
        //= linux:rxe_recv.c#check_keys
        //| A packet of another partition is dropped and counted.
        if !pkey_matches(packet.bth().pkey, self.settings.pkey) {
            return Err(Counter::RxBadPkey);
        }
        if self.settings.qp_type.is_connected() {
            let Some(path) = &self.settings.path else { return Err(Counter::RxWrongState) };
            //= linux:rxe_recv.c#check_addr
            //| A connected queue pair takes packets only from the address of its peer.
            if arrival.flow.source != path.flow.destination || arrival.flow.destination != path.flow.source {
                return Err(Counter::RxWrongAddress);
            }
            return Ok(self.peer_port.is(arrival.flow.source_port));
        }
        let is_numbered = qp_type.is_numbered() && !service.is_notification();
        if is_numbered && arrival.flow.source_port != arrival.flow.destination_port {
            // Messages of SRD and DC leave from the port that receives (`RocePaths`).
            return Err(Counter::RxWrongPort);
        }
        Ok(true)
    }

    fn handle_request<H: Host>(&mut self, arrival: &Arrival<'_>, packet: &Packet<'_>, host: &mut H) {
        //= statement:52
        //| The first packet in RTR is received and raises COMM_EST once.
        let first = self.state == QpState::Rtr && self.receiver.establish();
        if first {
            host.event(&self.settings.context, AsyncEventType::CommEst);
        }
        match &mut self.receiver {
            ReceivingSide::Reliable(responder) => {
                if responder.handle_request(&self.settings, packet, host).is_err() {
                    // Requests before the refused one are still answered, then the NAK is sent.
                    self.flush(StateChangeActor::Responder, host);
                }
            }
            ReceivingSide::Unreliable(receiver) => {
                if let Err(failure) = receiver.handle_request(&self.settings, packet, host) {
                    self.fail_receive(failure, packet, host);
                }
            }
            ReceivingSide::Datagram(inbound) => {
                let outcome = datagram::handle_datagram(&self.settings, arrival, packet, inbound, host);
                if let Err(failure) = outcome {
                    self.fail_receive(failure, packet, host);
                }
            }
        }
    }

    /// Handles a receive request of an unreliable service that cannot hold its message.
    fn fail_receive<H: Host>(&mut self, failure: BufferFailure, packet: &Packet<'_>, host: &mut H) {
        let BufferFailure { status, detail } = failure;
        let cause = Cause::ReceiveFailed { status, psn: packet.bth().psn, detail };
        host.log(&self.settings.context, cause);
        self.complete_held_recv(status, host);
        self.enter_error_by(StateChangeActor::Responder, host);
    }

    /// Reports whether a packet is handled although it comes from another UDP port than the peer's, or before
    /// the peer's port is known.
    #[cold]
    pub(super) fn admits_port<H: Host>(
        &mut self,
        now_ns: u64,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> bool {
        let Some(path) = &self.settings.path else { return false };
        let (given, roce_port) = (arrival.flow.source_port, arrival.flow.destination_port);
        let origin = PacketOrigin { port: given, roce_port, own_port: path.flow.source_port };
        let fit = self.fit(packet);
        match self.peer_port.judge(now_ns, origin, fit) {
            PortVerdict::Accept => true,
            PortVerdict::Drop => false,
            PortVerdict::DropGuess => {
                let (psn, expected) = (packet.bth().psn, self.peer_port.known());
                host.log(&self.settings.context, Cause::WrongPort { psn, given, expected });
                false
            }
        }
    }

    /// Reports whether a packet is the request that a reliable queue pair accepts next.
    pub fn expects(&self, packet: &Packet<'_>) -> bool {
        match &self.receiver {
            ReceivingSide::Reliable(responder) => {
                packet.info().is_request && packet.bth().psn == responder.expected
            }
            ReceivingSide::Unreliable(_) | ReceivingSide::Datagram(_) => false,
        }
    }

    /// Rates how well a packet fits what the peer is expected to send next.
    pub(super) fn fit(&self, packet: &Packet<'_>) -> Fit {
        let psn = packet.bth().psn;
        let starts = packet.info().position.begins();
        if packet.info().service.is_notification() {
            // A notification only slows this side down, and NICs may send it from a port of its own.
            return Fit::Behind;
        }
        if !packet.info().is_request {
            return self.requester.fit(packet, self.peer_port.known().is_some());
        }
        match &self.receiver {
            ReceivingSide::Reliable(responder) => Fit::of_request(psn, responder.expected),
            // UC repeats no packet: the first message that arrives may have any PSN.
            ReceivingSide::Unreliable(_) if starts && self.peer_port.known().is_none() => Fit::Exact,
            ReceivingSide::Unreliable(receiver) => match Fit::of_request(psn, receiver.expected) {
                Fit::Near if starts => Fit::Exact,
                Fit::Behind => Fit::Far,
                fit => fit,
            },
            ReceivingSide::Datagram(_) => Fit::Behind,
        }
    }
}

/// Reports whether two P_Keys match: their low 15 bits do, are not 0, and one of them is a full member.
pub(super) fn pkey_matches(a: u16, b: u16) -> bool {
    //= linux:rxe_recv.c#check_keys
    //| Two P_Keys match if their low 15 bits are equal and one of them has full membership.
    a & 0x7fff == b & 0x7fff && a & 0x7fff != 0 && (a | b) & 0x8000 != 0
}
