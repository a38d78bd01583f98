//! Queue pairs: the protocol state machines of RC, UC, UD and XRC.
//!
//! [`QueuePair`] is the whole of one queue pair. It is driven from outside: [`QueuePair::post_send`],
//! [`QueuePair::handle_packet`], [`QueuePair::handle_timeout`] and [`QueuePair::modify`] put something
//! in; [`QueuePair::transmit_requests`], [`QueuePair::transmit_responses`] and
//! [`QueuePair::deadline_ns`] say what follows.
//!
//! * `requester` + `completer`: send queue → request packets, responses → completions
//! * `responder` + `response`: request packets → memory and receive queue, → response packets (RC, XRC)
//! * `unreliable`: the receiving side of UC; `datagram`: UD
//! * `window`: how much may be in flight; `transition`: the state table of `modify_qp`

mod attributes;
mod completer;
mod congestion;
mod datagram;
mod modify;
mod peer_port;
mod post;
mod requester;
mod responder;
mod response;
mod send_queue;
mod settings;
mod snapshot;
pub mod transition;
mod unreliable;
mod window;

use core::net::IpAddr;

use crate::event::{Actor, PacketIdentity, QpEvent, Topic};
use crate::host::{Counter, Host, PeerProgress, QpContext, RecvWqe, Transmit};
use crate::path::Flow;
use crate::types::{
    AsyncEventType, Cause, DropReason, Peer, QpCapacity, QpState, QpType, SendFlags, SendRequest, WcOpcode,
    WcStatus, WorkCompletion,
};
use crate::wire::{Packet, Psn, Qpn, Service};

pub use attributes::{AttributeMask, ModifyLimits, QpAttributes};
pub use datagram::GRH_BYTES;
pub use modify::ResolvedPath;
pub use post::{MAX_MESSAGE_BYTES, PostError};
pub use requester::Progress;
pub use response::Urgency;
pub use snapshot::{MessageSnapshot, ReplaySnapshot, ResponderSnapshot, TargetSnapshot};
pub use transition::{ErrorClass, ModifyError};

use congestion::Notifier;
use peer_port::PeerPort;
use requester::{Requester, SendFailure};
use responder::Responder;
use settings::Settings;
use unreliable::{BufferFailure, UnreliableReceiver};

/// How a packet came: what the IP header said.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Addresses and ports.
    pub flow: &'a Flow,
    /// TOS / traffic class; the low two bits are ECN.
    pub traffic_class: u8,
    /// TTL / hop limit.
    pub hop_limit: u8,
}

/// What a queue pair is made with.
#[derive(Debug, Clone)]
pub struct QpConfig {
    /// The device's names for what it is attached to.
    pub context: QpContext,
    /// Transport service.
    pub qp_type: QpType,
    /// Queue sizes, as granted.
    pub capacity: QpCapacity,
    /// All send requests make completions.
    pub signal_all: bool,
    /// Receives come from an SRQ.
    pub has_srq: bool,
    /// Longest datagram payload in bytes (UD): the port's active MTU.
    pub port_mtu_bytes: usize,
}

/// The receiving side, by transport service.
#[derive(Debug)]
enum Receiver {
    Reliable(Responder),
    Unreliable(UnreliableReceiver),
    Datagram(RecvWqe),
}

/// One queue pair.
#[derive(Debug)]
pub struct QueuePair {
    settings: Settings,
    capacity: QpCapacity,
    port_mtu_bytes: usize,
    state: QpState,
    attributes: QpAttributes,
    requester: Requester,
    receiver: Receiver,
    notifier: Notifier,
    peer_port: PeerPort,
    /// Packets of the path MTU that the peer is trusted to hold.
    window_limit_packets: u32,
    /// SQD was reached with started messages still unanswered.
    draining: bool,
    /// Times that it was reset.
    epoch: u32,
}

impl QueuePair {
    /// A queue pair in RESET.
    pub fn new(config: QpConfig) -> QueuePair {
        let settings = Settings::new(&config);
        let attributes = QpAttributes { cap: config.capacity, ..QpAttributes::default() };
        QueuePair {
            requester: Requester::new(config.capacity.max_send_wr),
            receiver: Receiver::new(config.qp_type),
            settings,
            capacity: config.capacity,
            port_mtu_bytes: config.port_mtu_bytes,
            state: QpState::Reset,
            attributes,
            notifier: Notifier::default(),
            peer_port: PeerPort::default(),
            window_limit_packets: 64,
            draining: false,
            epoch: 0,
        }
    }

    /// The device's names for what it is attached to.
    pub fn context(&self) -> &QpContext {
        &self.settings.context
    }

    /// Transport service.
    pub fn qp_type(&self) -> QpType {
        self.settings.qp_type
    }

    /// State now.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Granted queue sizes.
    pub fn capacity(&self) -> &QpCapacity {
        &self.capacity
    }

    /// Whether its receives come from an SRQ.
    pub fn has_srq(&self) -> bool {
        self.settings.has_srq
    }

    /// Request PSNs in flight.
    pub fn in_flight(&self) -> u32 {
        self.requester.in_flight()
    }

    /// Posts a send request. In ERR and SQE it completes as flushed at once. With `faults_complete`, faults that
    /// adapters find only later are explained now and end as the request's completion when its turn comes.
    ///
    /// # Errors
    /// The request is malformed, the state takes none, or the queue is full; nothing was kept.
    pub fn post_send<H: Host>(&mut self, request: &SendRequest<'_>, host: &mut H) -> Result<(), PostError> {
        if matches!(self.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostError::WrongState { state: self.state });
        }
        let (length_bytes, fault) = match post::check(&self.settings, &self.capacity, request) {
            Ok(length_bytes) => (length_bytes, None),
            Err(error) if !request.faults_complete => return Err(error),
            Err(error) => (0, Some((error.completion().ok_or(error)?, error))),
        };
        if self.requester.queue.is_full() {
            return Err(PostError::QueueFull { depth: self.capacity.max_send_wr });
        }
        let signaled = self.settings.signal_all || request.flags.contains(SendFlags::SIGNALED);
        let packet_count = if request.opcode.is_local() {
            0
        } else if self.settings.qp_type.is_datagram() {
            1
        } else {
            responder::packets_of(length_bytes, self.settings.mtu_bytes)
        };
        let first_psn = self.requester.next_psn;
        self.requester.queue.push(request, signaled, length_bytes, first_psn, packet_count);
        self.requester.next_psn = first_psn.plus(packet_count);
        if let Some((status, error)) = fault {
            self.requester.queue.fault_newest(status);
            let cause = Cause::RequestFaulty { wr_id: request.wr_id, status, error };
            host.log(&self.settings.context, cause);
        }
        if host.listens(Topic::Posts) {
            let (wr_id, opcode) = (request.wr_id, request.opcode);
            let message = self.requester.queue.tail().wrapping_sub(1);
            let psn = first_psn;
            let event = QpEvent::SendPosted { wr_id, message, opcode, length_bytes, psn, packet_count };
            host.emit(&self.settings.context, event);
        }
        if matches!(self.state, QpState::Err | QpState::Sqe) {
            self.requester.flush(&self.settings, host);
        }
        Ok(())
    }

    /// A receive request was posted to this queue pair's own RQ while it was in ERR: it is flushed.
    pub fn flush_posted_receives<H: Host>(&mut self, host: &mut H) {
        if self.state == QpState::Err {
            host.flush_recv_queue(&self.settings.context);
        }
    }

    /// A packet whose ICRC is right and whose destination is this queue pair.
    pub fn handle_packet<H: Host>(
        &mut self,
        now_ns: u64,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        if host.listens(Topic::Packets) {
            self.emit_received(packet, host);
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
        if packet.info().service == Service::Cnp {
            host.emit(&self.settings.context, QpEvent::CnpReceived);
            self.requester.window.on_cnp(now_ns);
            return;
        }
        if self.notifier.observe(arrival.traffic_class, now_ns) {
            host.emit(&self.settings.context, QpEvent::CongestionMarked { psn: packet.bth().psn });
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

    /// Tells of a packet that arrived for it.
    #[cold]
    fn emit_received<H: Host>(&self, packet: &Packet<'_>, host: &mut H) {
        let psn = packet.bth().psn;
        let first = if packet.info().is_request {
            (self.state >= QpState::Rtr && self.settings.qp_type.is_connected())
                .then(|| Psn::new(self.attributes.rq_psn))
        } else {
            Some(self.requester.first_psn)
        };
        let event = QpEvent::PacketReceived {
            opcode: packet.bth().opcode,
            psn,
            relative_psn: first.map(|first| PacketIdentity::relative(psn, first)),
            length_bytes: packet.bytes().len() as u32,
        };
        host.emit(&self.settings.context, event);
    }

    /// Counts a packet that is dropped, and says why if that points to a mistake of a program.
    #[cold]
    fn drop_packet<H: Host>(
        &self,
        counter: Counter,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        let (opcode, psn) = (packet.bth().opcode, packet.bth().psn);
        host.emit(&self.settings.context, QpEvent::Dropped { reason: counter, opcode, psn });
        let Flow { source, destination: to, .. } = *arrival.flow;
        let reason = match (counter, &self.settings.path) {
            // What comes after ERR, and to a queue pair that was connected before, is nothing unusual.
            (Counter::RxWrongState, _)
                if matches!(self.state, QpState::Reset | QpState::Init) && self.epoch == 0 =>
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
            host.log(&self.settings.context, Cause::PacketDropped { source, opcode, psn, reason });
        }
    }

    /// Checks that every packet must pass, whatever it asks for; a failure is a silent drop. False: it does not
    /// come from the UDP port that the peer's packets are known to come from.
    fn check_packet(&self, arrival: &Arrival<'_>, packet: &Packet<'_>) -> Result<bool, Counter> {
        let service = packet.info().service;
        if service != Service::Cnp && service != self.settings.service() {
            return Err(Counter::RxWrongService);
        }
        let request = packet.info().is_request;
        let direction_exists = match self.settings.qp_type {
            QpType::XrcInitiator => !request,
            QpType::XrcTarget => request,
            QpType::Uc | QpType::Ud | QpType::Gsi => request,
            QpType::Rc | QpType::XrcDuplex => true,
        };
        if !direction_exists && service != Service::Cnp {
            return Err(Counter::RxWrongService);
        }
        let receptive = if request {
            matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
        } else {
            matches!(self.state, QpState::Rts | QpState::Sqd)
        };
        if !receptive {
            return Err(Counter::RxWrongState);
        }
        if !pkey_matches(packet.bth().pkey, self.settings.pkey) {
            return Err(Counter::RxBadPkey);
        }
        if self.settings.qp_type.is_connected() {
            let Some(path) = &self.settings.path else { return Err(Counter::RxWrongState) };
            if arrival.flow.source != path.flow.destination || arrival.flow.destination != path.flow.source {
                return Err(Counter::RxWrongAddress);
            }
            return Ok(self.peer_port.is(arrival.flow.source_port));
        }
        Ok(true)
    }

    fn handle_request<H: Host>(&mut self, arrival: &Arrival<'_>, packet: &Packet<'_>, host: &mut H) {
        let first = self.state == QpState::Rtr && self.receiver.establish();
        if first {
            host.event(&self.settings.context, AsyncEventType::CommEst);
        }
        match &mut self.receiver {
            Receiver::Reliable(responder) => {
                if responder.handle_request(&self.settings, packet, host).is_err() {
                    // What was asked before the refused request is still answered, then the NAK.
                    self.flush(Actor::Responder, host);
                }
            }
            Receiver::Unreliable(receiver) => {
                if let Err(failure) = receiver.handle_request(&self.settings, packet, host) {
                    self.fail_receive(failure, packet, host);
                }
            }
            Receiver::Datagram(recv) => {
                let outcome = datagram::handle_datagram(&self.settings, arrival, packet, recv, host);
                if let Err(failure) = outcome {
                    self.fail_receive(failure, packet, host);
                }
            }
        }
    }

    /// A receive request of an unreliable service cannot hold its message.
    fn fail_receive<H: Host>(&mut self, failure: BufferFailure, packet: &Packet<'_>, host: &mut H) {
        let BufferFailure { status, detail } = failure;
        let cause = Cause::ReceiveFailed { status, psn: packet.bth().psn, detail };
        host.log(&self.settings.context, cause);
        self.complete_held_recv(status, host);
        self.enter_error_by(Actor::Responder, host);
    }

    /// Completes the receive request that a partly received message holds.
    fn complete_held_recv<H: Host>(&mut self, status: WcStatus, host: &mut H) {
        let recv = match &mut self.receiver {
            Receiver::Reliable(responder) => {
                if responder.holds_recv() {
                    responder.inbound = responder::Inbound::Idle;
                    responder.complete_recv(&self.settings, status, host);
                }
                return;
            }
            Receiver::Unreliable(receiver) => {
                if !core::mem::take(&mut receiver.recv_held) {
                    return;
                }
                &receiver.recv
            }
            Receiver::Datagram(recv) => recv,
        };
        let completion = WorkCompletion {
            wr_id: recv.wr_id,
            status,
            opcode: WcOpcode::Recv,
            qp_num: self.settings.context.qpn.value(),
            ..WorkCompletion::default()
        };
        host.complete_recv(&self.settings.context, recv.cq, completion, false);
    }

    fn fail_send<H: Host>(&mut self, failure: SendFailure, host: &mut H) {
        self.requester.fail(&self.settings, failure, host);
        if failure.local && matches!(self.state, QpState::Rts | QpState::Sqd) {
            self.change_state(QpState::Sqe, Actor::Requester, host);
            self.draining = false;
        } else {
            self.enter_error_by(Actor::Requester, host);
        }
    }

    fn change_state<H: Host>(&mut self, to: QpState, by: Actor, host: &mut H) {
        let from = core::mem::replace(&mut self.state, to);
        self.emit_state(from, by, host);
    }

    /// Tells of the change from a state to the one that it is in now.
    fn emit_state<H: Host>(&self, from: QpState, by: Actor, host: &mut H) {
        let to = self.state;
        if from != to && host.listens(Topic::States) {
            let peer = self.peer().map(|(address, qpn)| Peer { address, qpn });
            let event = QpEvent::StateChanged { from, to, by, connection: self.epoch, peer };
            host.emit(&self.settings.context, event);
        }
    }

    /// Moves to ERR and flushes: sends, the receive request in use, the RQ. Idempotent. READs of the
    /// peer are given up; acknowledgements that are queued still leave.
    pub fn enter_error<H: Host>(&mut self, cause: Option<Cause>, host: &mut H) {
        if self.state == QpState::Err || self.state == QpState::Reset {
            return;
        }
        let by = if cause == Some(Cause::Modified) { Actor::Program } else { Actor::Device };
        if let Some(cause) = cause {
            host.log(&self.settings.context, cause);
        }
        self.enter_error_by(by, host);
    }

    fn enter_error_by<H: Host>(&mut self, by: Actor, host: &mut H) {
        if self.state == QpState::Err || self.state == QpState::Reset {
            return;
        }
        if let Receiver::Reliable(responder) = &mut self.receiver {
            responder.responses.drop_data();
        }
        self.flush(by, host);
    }

    fn flush<H: Host>(&mut self, by: Actor, host: &mut H) {
        self.change_state(QpState::Err, by, host);
        self.draining = false;
        self.requester.flush(&self.settings, host);
        if !matches!(self.receiver, Receiver::Datagram(_)) {
            self.complete_held_recv(WcStatus::WrFlushErr, host);
        }
        match self.settings.qp_type {
            QpType::XrcInitiator => {}
            _ if self.settings.has_srq || self.settings.is_xrc() => {
                host.event(&self.settings.context, AsyncEventType::QpLastWqeReached);
            }
            _ => host.flush_recv_queue(&self.settings.context),
        }
    }

    /// Whether [`QueuePair::handle_timeout`] is about to spend its last retry, or to fail: since when the
    /// peer has been silent, in ns. Look then whether the peer's process has had a processor since.
    pub fn doubts_peer_since_ns(&self, now_ns: u64) -> Option<u64> {
        self.requester.doubts_peer_since_ns(now_ns)
    }

    /// Address and queue pair number of the peer, once they were set.
    pub fn peer(&self) -> Option<(IpAddr, Qpn)> {
        self.settings.path.as_ref().map(|path| (path.flow.destination, self.settings.destination))
    }

    /// A deadline given by [`QueuePair::deadline_ns`] may have passed. `peer` is asked for only when
    /// [`QueuePair::doubts_peer_since_ns`] says so.
    pub fn handle_timeout<H: Host>(&mut self, now_ns: u64, peer: PeerProgress, host: &mut H) {
        let expired = self.requester.handle_timeout(&self.settings, now_ns, peer, host);
        if let Err(failure) = expired {
            self.fail_send(failure, host);
        }
    }

    /// When [`QueuePair::handle_timeout`] wants to be called, in ns.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.requester.deadline_ns()
    }

    /// Whether [`QueuePair::transmit_requests`] has anything to try.
    pub fn wants_to_send(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Sqd)
            && self.requester.wants_to_send(self.state == QpState::Sqd)
    }

    /// Sends requests as far as window, order and the sink allow.
    pub fn transmit_requests<H: Host, T: Transmit>(
        &mut self,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return Progress::Idle;
        }
        let draining = self.state == QpState::Sqd;
        let outcome = if self.settings.qp_type.is_datagram() {
            if draining {
                Ok(Progress::Idle)
            } else {
                self.requester.transmit_datagrams(&self.settings, host, sink)
            }
        } else {
            self.requester.transmit(&self.settings, draining, now_ns, host, sink)
        };
        let progress = outcome.unwrap_or_else(|failure| {
            self.fail_send(failure, host);
            Progress::Idle
        });
        self.finish_drain(host);
        progress
    }

    /// How urgently [`QueuePair::transmit_responses`] wants to be called.
    pub fn response_urgency(&self) -> Urgency {
        let responses = match &self.receiver {
            Receiver::Reliable(responder) => responder.responses.urgency(),
            _ => Urgency::None,
        };
        if self.notifier.is_pending() { responses.max(Urgency::Acknowledgement) } else { responses }
    }

    /// Sends queued acknowledgements, READ and atomic responses, and CNPs.
    pub fn transmit_responses<H: Host, T: Transmit>(&mut self, host: &mut H, sink: &mut T) -> Progress {
        if self.notifier.transmit(&self.settings, host, sink) == Progress::Blocked {
            return Progress::Blocked;
        }
        let Receiver::Reliable(responder) = &mut self.receiver else { return Progress::Idle };
        match responder.responses.transmit(&self.settings, host, sink) {
            Ok(progress) => progress,
            Err(psn) => {
                responder.refuse_read(psn);
                if self.state != QpState::Err {
                    host.event(&self.settings.context, AsyncEventType::QpAccessErr);
                    self.flush(Actor::Responder, host);
                }
                Progress::Blocked
            }
        }
    }

    /// SQD: raises SQ_DRAINED once the started messages are answered.
    fn finish_drain<H: Host>(&mut self, host: &mut H) {
        if self.draining && self.requester.queue.head() >= self.requester.started {
            self.draining = false;
            if self.attributes.en_sqd_async_notify {
                host.event(&self.settings.context, AsyncEventType::SqDrained);
            }
        }
    }
}

impl Receiver {
    fn new(qp_type: QpType) -> Receiver {
        match qp_type {
            QpType::Uc => Receiver::Unreliable(UnreliableReceiver::new()),
            QpType::Ud | QpType::Gsi => Receiver::Datagram(RecvWqe::default()),
            _ => Receiver::Reliable(Responder::new()),
        }
    }

    /// Notes the first packet in RTR; true if it was the first.
    fn establish(&mut self) -> bool {
        let established = match self {
            Receiver::Reliable(responder) => &mut responder.communication_established,
            Receiver::Unreliable(receiver) => &mut receiver.communication_established,
            Receiver::Datagram(_) => return false,
        };
        !core::mem::replace(established, true)
    }
}

/// Two P_Keys match if their low 15 bits do, are not 0, and one of them is a full member.
fn pkey_matches(a: u16, b: u16) -> bool {
    a & 0x7fff == b & 0x7fff && a & 0x7fff != 0 && (a | b) & 0x8000 != 0
}
