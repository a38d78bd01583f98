//! Queue pairs: the protocol state machines of RC, UC, UD and XRC.
//!
//! [`QueuePair`] is the whole of one queue pair. It is driven from outside: [`QueuePair::post_send`],
//! [`QueuePair::handle_packet`], [`QueuePair::handle_timeout`] and [`QueuePair::modify`] put something
//! in; [`QueuePair::transmit_requests`], [`QueuePair::transmit_responses`] and
//! [`QueuePair::deadline_ns`] say what follows.
//!
//! * `requester` + `completer`: send queue → request packets, responses → completions
//! * `receive`: the checks that every packet must pass
//! * `responder` + `response`: request packets → memory and receive queue, → response packets (RC, XRC);
//!   `unreliable`: the receiving side of UC; `datagram`: of UD
//! * `inbound`: messages put together from packets, for all services; `outbound`: packets written, for all
//! * `numbered`: services that number their messages in datagrams: `srd`, reliable and without order;
//!   `dc`, in order from an initiator to any target
//! * `frame`: the Ethernet frames of raw packet queue pairs, which are no packets
//! * `migration`: the alternate path, and when it is used
//! * `window`: how much may be in flight; `dcqcn`: how fast it leaves; `congestion`: what marks lead to
//! * `transition`: the state table of `modify_qp`

mod alternate;
mod attributes;
mod completer;
mod congestion;
mod datagram;
mod dc;
mod dcqcn;
#[cfg(test)]
mod exactly_once_tests;
mod figures;
mod frame;
mod inbound;
mod migration;
mod modify;
#[cfg(test)]
mod network_kit;
mod numbered;
mod numbered_part;
mod outbound;
mod peer_port;
mod post;
mod receive;
mod requester;
mod responder;
mod response;
mod send_queue;
mod settings;
mod snapshot;
mod srd;
pub mod transition;
mod unreliable;
mod window;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::IpAddr;

use crate::event::{Actor, QpEvent, Topic};
use crate::host::{Host, PeerProgress, QpContext, Transmit};
use crate::path::Flow;
use crate::types::{
    AsyncEventType, Cause, DcStreams, OwnService, Peer, QpCapacity, QpState, QpType, WcStatus,
};
use crate::wire::Qpn;

pub use crate::path::Arrival;
pub use crate::types::{MAX_MESSAGE_BYTES, PostError};
pub use alternate::AlternatePath;
pub use attributes::{AttributeMask, ModifyLimits, QpAttributes};
pub use datagram::GRH_BYTES;
pub use dcqcn::{Congestion, CongestionAlgorithm, DcqcnParameters, NotificationParameters, ReactionPoint};
pub use figures::Figures;
pub use frame::FrameDropped;
pub use modify::ResolvedPath;
pub use numbered_part::NumberedPart;
pub use outbound::Progress;
pub use response::Urgency;
pub use settings::QpConfig;
pub use snapshot::{MessageSnapshot, ReplaySnapshot, ResponderSnapshot, TargetSnapshot};
pub use srd::SrdOrder;
pub use transition::{ErrorClass, ModifyError};

use alternate::Migration;
use congestion::Notifier;
use inbound::Inbound;
use numbered::Numbered;
use peer_port::PeerPort;
use requester::{Requester, SendFailure};
use responder::Responder;
use settings::Settings;
use unreliable::UnreliableReceiver;

/// The receiving side, by transport service.
#[derive(Debug)]
enum Receiver {
    Reliable(Responder),
    Unreliable(UnreliableReceiver),
    Datagram(Inbound),
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
    /// Of a queue pair of SRD or DC, in place of `requester` and `receiver`.
    numbered: Option<Box<Numbered>>,
    notifier: Notifier,
    peer_port: PeerPort,
    /// Packets of the path MTU that the peer is trusted to hold.
    window_limit_packets: u32,
    migration: Migration,
    /// SQD was reached with started messages still unanswered.
    draining: bool,
}

impl QueuePair {
    /// A queue pair in RESET.
    pub fn new(config: QpConfig) -> QueuePair {
        let settings = Settings::new(&config);
        let attributes = QpAttributes { cap: config.capacity, ..QpAttributes::default() };
        QueuePair {
            requester: Requester::new(config.capacity.max_send_wr, &settings),
            receiver: Receiver::new(config.qp_type),
            numbered: Numbered::of_type(config.qp_type, config.capacity.max_send_wr).map(Box::new),
            settings,
            capacity: config.capacity,
            port_mtu_bytes: config.port_mtu_bytes,
            state: QpState::Reset,
            attributes,
            notifier: Notifier::default(),
            peer_port: PeerPort::default(),
            window_limit_packets: 64,
            migration: Migration::default(),
            draining: false,
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

    /// What it was made with beside what all have, if its type is that of the service; `order`: in which
    /// order messages of SRD leave. Nothing is on its way yet.
    pub fn set_own(&mut self, own: OwnService, order: SrdOrder) {
        if own.qp_type() == self.settings.qp_type {
            self.numbered = Some(Box::new(Numbered::of(own, order, self.capacity.max_send_wr)));
        }
    }

    /// WRITEs with immediate data that arrive take no receive request.
    pub fn takes_unsolicited(&self) -> bool {
        self.numbered.as_ref().is_some_and(|numbered| numbered.takes_unsolicited())
    }

    /// The address that the newest message of SRD from a queue pair of this number came from.
    pub fn srd_source(&self, qpn: Qpn) -> Option<IpAddr> {
        self.numbered.as_ref()?.source_of(qpn)
    }

    /// The streams that an initiator of DC was made with.
    pub fn dc_streams(&self) -> Option<DcStreams> {
        self.numbered.as_ref()?.streams()
    }

    /// A stream of an initiator of DC that has failed works again, and the queue pair with it.
    pub fn reset_dc_stream(&mut self, id: u16) {
        if let Some(numbered) = &mut self.numbered {
            numbered.reset_stream(id);
        }
    }

    /// Where a connected queue pair sends to.
    pub fn flow(&self) -> Option<&Flow> {
        self.settings.path.as_ref().map(|path| &path.flow)
    }

    /// A connected queue pair sends from this UDP port from now on.
    pub fn set_source_port(&mut self, source_port: u16) {
        if let Some(path) = &mut self.settings.path {
            Arc::make_mut(path).flow.source_port = source_port;
        }
    }

    /// Whether its receives come from an SRQ.
    pub fn has_srq(&self) -> bool {
        self.settings.has_srq
    }

    /// Request PSNs in flight.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.requester.in_flight()
    }

    /// A receive request was posted to this queue pair's own RQ while it was in ERR: it is flushed.
    pub fn flush_posted_receives<H: Host>(&mut self, host: &mut H) {
        if self.state == QpState::Err {
            host.flush_recv_queue(&self.settings.context);
        }
    }

    /// Completes the receive request that a partly received message holds, if there is one.
    fn complete_held_recv<H: Host>(&mut self, status: WcStatus, host: &mut H) {
        self.receiver.inbound_mut().fail(&self.settings, status, host);
    }

    fn fail_send<H: Host>(&mut self, failure: SendFailure, host: &mut H) {
        if self.migrates_instead(failure, host) {
            return;
        }
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
            let (connection, requests) = (self.settings.connection, self.capacity.max_send_wr);
            let reads = self.settings.max_rd_atomic;
            let event = QpEvent::StateChanged { from, to, by, connection, peer, requests, reads };
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
        if let Some(numbered) = &mut self.numbered {
            numbered.flush(&self.settings, host);
        }
        self.complete_held_recv(WcStatus::WrFlushErr, host);
        match self.settings.qp_type {
            qp_type if !qp_type.is_responder() => {}
            //= statement:44
            //| LAST_WQE_REACHED comes once when a queue pair on a shared receive queue enters ERR.
            _ if self.settings.has_srq || self.settings.is_xrc() => {
                host.event(&self.settings.context, AsyncEventType::QpLastWqeReached);
            }
            //= linux:rxe_resp.c#flush_recv_queue
            //| The receive requests of a queue pair in ERR are flushed.
            _ => host.flush_recv_queue(&self.settings.context),
        }
    }

    /// A queue pair that numbers its messages goes to ERR, if an error has come that it does so by.
    fn end_if_failed<H: Host>(&mut self, host: &mut H) {
        if self.numbered.as_ref().is_some_and(|numbered| numbered.has_failed()) {
            self.enter_error_by(Actor::Requester, host);
        }
    }

    /// Whether [`QueuePair::handle_timeout`] is about to spend its last retry, or to fail: since when the
    /// peer has been silent, in ns. Look then whether the peer's process has had a processor since.
    pub fn doubts_peer_since_ns(&self, now_ns: u64) -> Option<u64> {
        self.requester.doubts_peer_since_ns(now_ns)
    }

    /// When the transport timer expires, in ns, if it runs.
    pub fn timer_due_ns(&self) -> Option<u64> {
        self.requester.timer_due_ns()
    }

    /// Address and queue pair number of the peer, once they were set.
    pub fn peer(&self) -> Option<(IpAddr, Qpn)> {
        self.settings.path.as_ref().map(|path| (path.flow.destination, self.settings.destination))
    }

    /// A deadline given by [`QueuePair::deadline_ns`] may have passed. `peer` is asked for only when
    /// [`QueuePair::doubts_peer_since_ns`] says so.
    pub fn handle_timeout<H: Host>(&mut self, now_ns: u64, peer: PeerProgress, host: &mut H) {
        if let Some(numbered) = &mut self.numbered {
            numbered.handle_timeout(&self.settings, now_ns, host);
            self.end_if_failed(host);
            return;
        }
        let expired = self.requester.handle_timeout(&self.settings, now_ns, peer, host);
        if let Err(failure) = expired {
            self.fail_send(failure, host);
        }
    }

    /// When [`QueuePair::handle_timeout`] wants to be called, in ns.
    #[inline]
    pub fn deadline_ns(&self) -> Option<u64> {
        if let Some(numbered) = &self.numbered {
            return numbered.deadline_ns();
        }
        self.requester.deadline_ns()
    }

    /// The queue pair goes on that stood still because of a fate with `halted`.
    #[cold]
    pub fn go_on(&mut self) {
        self.requester.go_on();
    }

    /// Whether [`QueuePair::transmit_requests`] has anything to try.
    #[inline]
    pub fn wants_to_send(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Sqd)
            && match &self.numbered {
                Some(numbered) => numbered.wants_to_send(),
                None => self.requester.wants_to_send(self.state == QpState::Sqd),
            }
    }

    /// Sends requests as far as window, order and the sink allow.
    // As a call of its own it would save and restore the registers of an engine's loop for each queue pair.
    #[inline(always)]
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
        if let Some(numbered) = &mut self.numbered {
            let progress = numbered.transmit_requests(&self.settings, draining, now_ns, host, sink);
            self.end_if_failed(host);
            self.finish_drain(host);
            return progress;
        }
        let outcome = self.requester.transmit(&self.settings, draining, now_ns, host, sink);
        let progress = outcome.unwrap_or_else(|failure| {
            self.fail_send(failure, host);
            Progress::Idle
        });
        self.finish_drain(host);
        progress
    }

    /// How urgently [`QueuePair::transmit_responses`] wants to be called.
    #[inline]
    pub fn response_urgency(&self) -> Urgency {
        let responses = match &self.receiver {
            Receiver::Reliable(responder) => {
                responder.responses.urgency(self.requester.held_until_ns().is_some())
            }
            _ => self.numbered.as_ref().map_or(Urgency::None, |numbered| numbered.urgency()),
        };
        if self.notifier.is_pending() { responses.max(Urgency::Acknowledgement) } else { responses }
    }

    /// Sends queued acknowledgements, READ and atomic responses, and CNPs.
    pub fn transmit_responses<H: Host, T: Transmit>(
        &mut self,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        if self.notifier.transmit(&self.settings, host, sink) == Progress::Blocked {
            return Progress::Blocked;
        }
        if let Some(numbered) = &mut self.numbered {
            return numbered.transmit_answers(&self.settings, host, sink);
        }
        let Receiver::Reliable(responder) = &mut self.receiver else { return Progress::Idle };
        let pacer = self.requester.pacer.as_deref_mut();
        match responder.responses.transmit(&self.settings, now_ns, pacer, host, sink) {
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

    /// After a request whose local data does not fit its signatures the send queue stops in SQD, before the
    /// next request with a fence at the latest, and SQ_DRAINED tells of it.
    pub const fn stop_at_bad_signature(&mut self) {
        self.settings.stops_at_bad_signature = true;
    }

    /// Cancels the requests with this identifier that have not begun: they complete as if they had done their
    /// work, and do nothing. How many they are; `None`: the send queue is not drained in SQD.
    pub fn cancel_sends(&mut self, wr_id: u64) -> Option<u32> {
        let has_stopped = self.state == QpState::Sqd && !self.draining && self.numbered.is_none();
        has_stopped.then(|| self.requester.cancel(wr_id))
    }

    /// Data of a request did not fit its signatures.
    #[cold]
    fn stop<H: Host>(&mut self, host: &mut H) {
        self.requester.has_bad_signature = false;
        if self.state == QpState::Rts {
            self.change_state(QpState::Sqd, Actor::Requester, host);
            (self.draining, self.attributes.en_sqd_async_notify) = (true, true);
        }
    }

    /// SQD: raises SQ_DRAINED once the started messages are answered.
    fn finish_drain<H: Host>(&mut self, host: &mut H) {
        if self.requester.has_bad_signature {
            self.stop(host);
        }
        let is_idle = self.numbered.as_ref().is_none_or(|numbered| numbered.is_idle());
        if self.draining && is_idle && self.requester.queue.head() >= self.requester.started {
            self.draining = false;
            //= statement:45
            //| SQ_DRAINED comes once, if it was asked for.
            if self.attributes.en_sqd_async_notify {
                host.event(&self.settings.context, AsyncEventType::SqDrained);
            }
        }
    }
}

impl Receiver {
    fn new(qp_type: QpType) -> Receiver {
        if qp_type.is_reliable() {
            Receiver::Reliable(Responder::new())
        } else if qp_type.is_connected() {
            Receiver::Unreliable(UnreliableReceiver::new())
        } else {
            Receiver::Datagram(Inbound::new())
        }
    }

    /// The message in progress and its receive request.
    fn inbound_mut(&mut self) -> &mut Inbound {
        match self {
            Receiver::Reliable(responder) => &mut responder.inbound,
            Receiver::Unreliable(receiver) => &mut receiver.inbound,
            Receiver::Datagram(inbound) => inbound,
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
