//! Queue pairs: the protocol state machines of RC, UC, UD and XRC.
//!
//! [`QueuePair`] is the complete state of one queue pair. It is driven from outside:
//! [`QueuePair::post_send`], [`QueuePair::handle_packet`], [`QueuePair::handle_timeout`] and
//! [`QueuePair::modify`] are its inputs; [`QueuePair::transmit_requests`], [`QueuePair::transmit_responses`]
//! and [`QueuePair::deadline_ns`] return its outputs.
//!
//! * `requester` + `completer`: send queue → request packets, responses → completions
//! * `receive`: the checks that every packet must pass
//! * `responder` + `response`: request packets → memory and receive queue, → response packets (RC, XRC);
//!   `unreliable`: the receiving side of UC; `datagram`: of UD
//! * `inbound`: messages put together from packets, for all services; `outbound`: packets written, for all
//! * `numbered`: services that number their messages in datagrams: `srd`, reliable and without order; `dc`,
//!   in order from an initiator to any target
//! * `frame`: the Ethernet frames of raw packet queue pairs, which are no RoCE packets
//! * `by_lane`: the short way of messages about which nothing has to be decided
//! * `migration`: the alternate path, and when it is used
//! * `window`: how much may be in flight; `dcqcn`: how fast it leaves; `congestion`: the reaction to
//!   congestion marks
//! * `transition`: the state table of `modify_qp`

mod adaptive_timeout;
mod alternate;
mod attributes;
mod by_lane;
mod completer;
mod congestion;
mod datagram;
mod dc;
mod dcqcn;
#[cfg(test)]
mod exactly_once_tests;
mod frame;
mod inbound;
mod lane;
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
mod statistics;
pub mod transition;
mod unreliable;
mod window;

use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::sync::Arc;
use core::net::IpAddr;

use crate::event::{QpEvent, StateChangeActor, Topic};
use crate::host::{Host, PeerProgress, QpContext, Transmit};
use crate::path::Flow;
use crate::types::{
    AsyncEventType, Cause, DcStreams, Peer, QpCapacity, QpState, QpType, VendorService, WcStatus,
};
use crate::wire::Qpn;

pub use crate::path::Arrival;
pub use crate::types::{MAX_MESSAGE_BYTES, PostError};
pub use adaptive_timeout::AdaptiveTimeout;
pub use alternate::AlternatePath;
pub use attributes::{AttributeMask, ModifyLimits, QpAttributes};
pub use datagram::GRH_BYTES;
pub use dcqcn::{Congestion, CongestionAlgorithm, DcqcnParameters, NotificationParameters, ReactionPoint};
pub use frame::FrameDropped;
pub use lane::{LaneBatch, LaneData, LaneSend, may_arrive_by_lane, may_leave_by_lane};
pub use modify::ResolvedPath;
pub use numbered_part::NumberedPart;
pub use outbound::Progress;
pub use response::Urgency;
pub use settings::QpConfig;
pub use snapshot::{MessageSnapshot, ReplaySnapshot, ResponderSnapshot, TargetSnapshot};
pub use srd::SrdOrder;
pub use statistics::QpStatistics;
pub use transition::{ErrorClass, ModifyError};

use alternate::Migration;
use congestion::Notifier;
use inbound::Inbound;
use numbered::Numbered;
use peer_port::PeerPort;
use requester::{Requester, SendFailure};
use responder::Responder;
use settings::QpSettings;
use unreliable::UnreliableReceiver;

/// The receiving side, by transport service.
#[derive(Debug)]
enum ReceivingSide {
    Reliable(Responder),
    Unreliable(UnreliableReceiver),
    Datagram(Inbound),
}

/// A queue pair: its state and its protocol machines.
#[derive(Debug)]
pub struct QueuePair {
    settings: QpSettings,
    capacity: QpCapacity,
    port_mtu_bytes: usize,
    state: QpState,
    attributes: QpAttributes,
    requester: Requester,
    receiver: ReceivingSide,
    /// State of a queue pair of SRD or DC, used instead of `requester` and `receiver`.
    numbered: Option<Box<Numbered>>,
    notifier: Notifier,
    peer_port: PeerPort,
    /// Number of packets of the path MTU that the peer is assumed to have room for.
    window_limit_packets: u32,
    migration: Migration,
    /// True if SQD was reached with started messages still unanswered.
    draining: bool,
}

impl QueuePair {
    /// Creates a queue pair in RESET.
    pub fn new(config: QpConfig) -> QueuePair {
        let settings = QpSettings::new(&config);
        let attributes = QpAttributes { cap: config.capacity, ..QpAttributes::default() };
        QueuePair {
            requester: Requester::new(config.capacity.max_send_wr, &settings),
            receiver: ReceivingSide::new(config.qp_type),
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

    /// Allocates memory for all entries of the send queue, so that posting one buffer or short inline data
    /// allocates nothing.
    ///
    /// # Errors
    /// Fails if there is no memory for them.
    pub fn make_room(&mut self) -> Result<(), TryReserveError> {
        if self.numbered.is_some() {
            // Requests of numbered services wait in a queue of their own.
            return Ok(());
        }
        self.requester.queue.make_room()
    }

    /// Gives the send queue to the device, for this many requests of its own; the program has none of them.
    pub fn serve_device(&mut self, requests: u32) {
        self.requester.queue = send_queue::SendQueue::new(requests);
    }

    /// Returns the numbers of the device's objects that it is attached to.
    pub fn context(&self) -> &QpContext {
        &self.settings.context
    }

    /// Returns the transport service.
    pub fn qp_type(&self) -> QpType {
        self.settings.qp_type
    }

    /// Returns the state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Returns the granted queue sizes.
    pub fn capacity(&self) -> &QpCapacity {
        &self.capacity
    }

    /// Sets the parameters of a vendor's service, if the queue pair is of its type; `order` is the order in
    /// which messages of SRD leave. Call it before the first message.
    pub fn set_vendor_service(&mut self, own: VendorService, order: SrdOrder) {
        if own.qp_type() == self.settings.qp_type {
            self.numbered = Some(Box::new(Numbered::of(own, order, self.capacity.max_send_wr)));
        }
    }

    /// Reports whether WRITEs with immediate data that arrive take no receive request.
    pub fn takes_unsolicited(&self) -> bool {
        self.numbered.as_ref().is_some_and(|numbered| numbered.takes_unsolicited())
    }

    /// Returns the source address of the newest message of SRD from a queue pair of this number.
    pub fn srd_source(&self, qpn: Qpn) -> Option<IpAddr> {
        self.numbered.as_ref()?.source_of(qpn)
    }

    /// Returns the streams that an initiator of DC was made with.
    pub fn dc_streams(&self) -> Option<DcStreams> {
        self.numbered.as_ref()?.streams()
    }

    /// Makes a failed stream of an initiator of DC work again, and the queue pair with it.
    pub fn reset_dc_stream(&mut self, id: u16) {
        if let Some(numbered) = &mut self.numbered {
            numbered.reset_stream(id);
        }
    }

    /// Returns the destination of a connected queue pair.
    pub fn flow(&self) -> Option<&Flow> {
        self.settings.path.as_ref().map(|path| &path.flow)
    }

    /// Sets the UDP port from which a connected queue pair sends.
    pub fn set_source_port(&mut self, source_port: u16) {
        if let Some(path) = &mut self.settings.path {
            Arc::make_mut(path).flow.source_port = source_port;
        }
    }

    /// Reports whether its receives come from an SRQ.
    pub fn has_srq(&self) -> bool {
        self.settings.has_srq
    }

    /// Returns the number of request PSNs in flight.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.requester.in_flight()
    }

    /// Flushes a receive request that was posted to this queue pair's own RQ while it was in ERR.
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
        if self.try_migrate(failure, host) {
            return;
        }
        self.requester.fail(&self.settings, failure, host);
        if failure.local && matches!(self.state, QpState::Rts | QpState::Sqd) {
            self.change_state(QpState::Sqe, StateChangeActor::Requester, host);
            self.draining = false;
        } else {
            self.enter_error_by(StateChangeActor::Requester, host);
        }
    }

    fn change_state<H: Host>(&mut self, to: QpState, by: StateChangeActor, host: &mut H) {
        let from = core::mem::replace(&mut self.state, to);
        self.emit_state(from, by, host);
    }

    /// Reports the change from a state to the present one.
    fn emit_state<H: Host>(&self, from: QpState, by: StateChangeActor, host: &mut H) {
        let to = self.state;
        if from != to && host.listens(Topic::States) {
            let peer = self.peer().map(|(address, qpn)| Peer { address, qpn });
            let (connection, requests) = (self.settings.connection, self.capacity.max_send_wr);
            let reads = self.settings.max_rd_atomic;
            let event = QpEvent::StateChanged { from, to, by, connection, peer, requests, reads };
            host.emit(&self.settings.context, event);
        }
    }

    /// Moves to ERR and flushes: sends, the receive request in use, the RQ. Idempotent. READs of the peer are
    /// given up; acknowledgements that are queued are still sent.
    pub fn enter_error<H: Host>(&mut self, cause: Option<Cause>, host: &mut H) {
        if self.state == QpState::Err || self.state == QpState::Reset {
            return;
        }
        let by =
            if cause == Some(Cause::Modified) { StateChangeActor::Program } else { StateChangeActor::Device };
        if let Some(cause) = cause {
            host.log(&self.settings.context, cause);
        }
        self.enter_error_by(by, host);
    }

    fn enter_error_by<H: Host>(&mut self, by: StateChangeActor, host: &mut H) {
        if self.state == QpState::Err || self.state == QpState::Reset {
            return;
        }
        if let ReceivingSide::Reliable(responder) = &mut self.receiver {
            responder.responses.drop_data();
        }
        self.flush(by, host);
    }

    fn flush<H: Host>(&mut self, by: StateChangeActor, host: &mut H) {
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

    /// Moves a queue pair that numbers its messages to ERR, if an error of it requires that.
    fn end_if_failed<H: Host>(&mut self, host: &mut H) {
        if self.numbered.as_ref().is_some_and(|numbered| numbered.has_failed()) {
            self.enter_error_by(StateChangeActor::Requester, host);
        }
    }

    /// Returns the time, in ns, since when the peer has been silent, if [`QueuePair::handle_timeout`] is
    /// about to spend its last retry, or to fail. The caller then checks whether the peer's process has had a
    /// processor since.
    pub fn peer_silent_since_ns(&self, now_ns: u64) -> Option<u64> {
        self.requester.peer_silent_since_ns(now_ns)
    }

    /// Returns the time at which the transport timer expires, in ns, if it runs.
    pub fn timer_due_ns(&self) -> Option<u64> {
        self.requester.timer_due_ns()
    }

    /// Returns address and queue pair number of the peer, once they were set.
    pub fn peer(&self) -> Option<(IpAddr, Qpn)> {
        self.settings.path.as_ref().map(|path| (path.flow.destination, self.settings.destination))
    }

    /// Handles a deadline of [`QueuePair::deadline_ns`] that may have passed. `peer` is needed only when
    /// [`QueuePair::peer_silent_since_ns`] returns a time.
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

    /// Returns the time at which [`QueuePair::handle_timeout`] has to be called, in ns.
    #[inline]
    pub fn deadline_ns(&self) -> Option<u64> {
        if let Some(numbered) = &self.numbered {
            return numbered.deadline_ns();
        }
        self.requester.deadline_ns()
    }

    /// Continues a queue pair that stopped because of a fate with `halted`.
    #[cold]
    pub fn go_on(&mut self) {
        self.requester.go_on();
    }

    /// Reports whether [`QueuePair::transmit_requests`] has anything to try.
    #[inline]
    pub fn wants_to_send(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Sqd)
            && match &self.numbered {
                Some(numbered) => numbered.wants_to_send(),
                None => self.requester.wants_to_send(self.state == QpState::Sqd),
            }
    }

    /// Sends requests as far as window, order and the sink allow.
    // As a separate call it would save and restore the registers of an engine's loop for each queue pair.
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

    /// Returns how urgently [`QueuePair::transmit_responses`] has to be called.
    #[inline]
    pub fn response_urgency(&self) -> Urgency {
        let responses = match &self.receiver {
            ReceivingSide::Reliable(responder) => {
                responder.responses.urgency(|| self.requester.held_until_ns().is_some())
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
        let ReceivingSide::Reliable(responder) = &mut self.receiver else { return Progress::Idle };
        let pacer = self.requester.pacer.as_deref_mut();
        match responder.responses.transmit(&self.settings, now_ns, pacer, host, sink) {
            Ok(progress) => progress,
            Err(psn) => {
                responder.refuse_read(psn);
                if self.state != QpState::Err {
                    host.event(&self.settings.context, AsyncEventType::QpAccessErr);
                    self.flush(StateChangeActor::Responder, host);
                }
                Progress::Blocked
            }
        }
    }

    /// Makes the send queue stop in SQD after a request whose local data does not fit its signatures, before
    /// the next request with a fence at the latest, and raise SQ_DRAINED.
    pub const fn stop_at_bad_signature(&mut self) {
        self.settings.stops_at_bad_signature = true;
    }

    /// Makes the queue pair place data out of order, and its context say so.
    pub const fn place_out_of_order(&mut self) {
        self.settings.context.out_of_order = true;
    }

    /// Cancels the requests with this identifier that have not begun: they complete with success, and have no
    /// effect. Returns their number; `None` if the send queue is not drained in SQD.
    pub fn cancel_sends(&mut self, wr_id: u64) -> Option<u32> {
        let has_stopped = self.state == QpState::Sqd && !self.draining && self.numbered.is_none();
        has_stopped.then(|| self.requester.cancel(wr_id))
    }

    /// Stops the send queue because data of a request did not fit its signatures.
    #[cold]
    fn stop<H: Host>(&mut self, host: &mut H) {
        self.requester.failures.has_bad_signature = false;
        if self.state == QpState::Rts {
            self.change_state(QpState::Sqd, StateChangeActor::Requester, host);
            (self.draining, self.attributes.en_sqd_async_notify) = (true, true);
        }
    }

    /// Raises SQ_DRAINED in SQD once the started messages are answered.
    fn finish_drain<H: Host>(&mut self, host: &mut H) {
        if self.requester.failures.has_bad_signature {
            self.stop(host);
        }
        let is_idle = self.numbered.as_ref().is_none_or(|numbered| numbered.is_idle());
        if self.draining && is_idle && self.requester.queue.head() >= self.requester.position.started {
            self.draining = false;
            //= statement:45
            //| SQ_DRAINED comes once, if it was asked for.
            if self.attributes.en_sqd_async_notify {
                host.event(&self.settings.context, AsyncEventType::SqDrained);
            }
        }
    }
}

impl ReceivingSide {
    fn new(qp_type: QpType) -> ReceivingSide {
        if qp_type.is_reliable() {
            ReceivingSide::Reliable(Responder::new())
        } else if qp_type.is_connected() {
            ReceivingSide::Unreliable(UnreliableReceiver::new())
        } else {
            ReceivingSide::Datagram(Inbound::new())
        }
    }

    /// Returns the message in progress and its receive request.
    fn inbound_mut(&mut self) -> &mut Inbound {
        match self {
            ReceivingSide::Reliable(responder) => &mut responder.inbound,
            ReceivingSide::Unreliable(receiver) => &mut receiver.inbound,
            ReceivingSide::Datagram(inbound) => inbound,
        }
    }

    /// Records the first packet in RTR; returns true if it was the first.
    fn establish(&mut self) -> bool {
        let established = match self {
            ReceivingSide::Reliable(responder) => &mut responder.communication_established,
            ReceivingSide::Unreliable(receiver) => &mut receiver.communication_established,
            ReceivingSide::Datagram(_) => return false,
        };
        !core::mem::replace(established, true)
    }
}
