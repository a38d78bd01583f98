//! An MRC queue pair: its requester, its responder and its states.

use core::fmt;

use super::entropy::{MrcArrival, MrcNetwork, Planes};
use super::paths::{Ev, PathSet, ReversePaths};
use super::requester::{MrcFailure, MrcRequester, SendProgress};
use super::responder::{DataArrival, MrcResponder};
use super::semantics::PostedMessage;
use super::wire::{MrcBody, MrcBth, MrcPacket, MrcPacketError, TrimmedPacket};
use super::{MrcCallContext, MrcSettings, MrcStatistics, RequesterAttributes, ResponderAttributes};
use crate::event::{QpEvent, StateChangeActor, Topic};
use crate::host::{Host, PeerProgress};
use crate::types::{
    AsyncEventType, Cause, MrcBreach, QpState, SendFlags, SendOpcode, SendRequest, WcOpcode, WcStatus,
    WorkCompletion,
};

/// The reason why a request is not posted. No part of the request is retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MrcPostError {
    /// The queue pair cannot take requests in its state.
    WrongState {
        /// State of the queue pair.
        state: QpState,
    },
    /// The operation is none of WRITE and WRITE with immediate, which are all that MRC has.
    WrongOpcode {
        /// The operation.
        opcode: SendOpcode,
    },
    /// The message is longer than 2^32 - 1 bytes.
    MessageTooLong {
        /// Length of the message in bytes.
        given: u64,
    },
    /// All entries hold requests that have not completed.
    QueueFull {
        /// Depth of the queue.
        depth: u32,
        /// True if none of the requests is signaled, so that no completion can free an entry.
        all_unsignaled: bool,
    },
}

impl fmt::Display for MrcPostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MrcPostError::WrongState { state } => {
                write!(f, "the queue pair is in {state:?}: bring it to RTS with mrc_modify_qp before posting")
            }
            MrcPostError::WrongOpcode { opcode } => {
                write!(
                    f,
                    "MRC has no {opcode:?}: post RDMA_WRITE or RDMA_WRITE_WITH_IMM, or use an RC queue pair"
                )
            }
            MrcPostError::MessageTooLong { given } => {
                write!(f, "the message has {given} bytes, and 4294967295 is the most: post it in pieces")
            }
            MrcPostError::QueueFull { depth, all_unsignaled: false } => {
                write!(f, "all {depth} entries of the send queue are in use: poll completions before posting")
            }
            MrcPostError::QueueFull { depth, all_unsignaled: true } => {
                write!(f, "all {depth} entries hold unsignaled requests: signal one of them now and then")
            }
        }
    }
}

impl core::error::Error for MrcPostError {}

/// The state of a queue pair after [`MrcQueuePair::transmit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MrcProgress {
    /// The queue pair has nothing to send until an event.
    Idle,
    /// The network had no room. The caller must call again.
    Blocked,
}

/// An MRC queue pair.
///
/// The owner passes packets to [`handle_datagram`](MrcQueuePair::handle_datagram) and time to
/// [`handle_timeout`](MrcQueuePair::handle_timeout). After each of them, it calls
/// [`transmit`](MrcQueuePair::transmit) as long as [`wants_to_send`](MrcQueuePair::wants_to_send) returns
/// true.
#[derive(Debug)]
pub struct MrcQueuePair {
    settings: MrcSettings,
    state: QpState,
    responder: Option<MrcResponder>,
    requester: Option<MrcRequester>,
    reverse: ReversePaths,
    statistics: MrcStatistics,
    local: Planes,
    remote: Planes,
    ev_probe_ns: u64,
    has_received: bool,
}

impl MrcQueuePair {
    /// Creates a queue pair in the state INIT.
    pub fn new(settings: MrcSettings) -> MrcQueuePair {
        MrcQueuePair {
            settings,
            state: QpState::Init,
            responder: None,
            requester: None,
            reverse: ReversePaths::default(),
            statistics: MrcStatistics::default(),
            local: Planes::ALL,
            remote: Planes::ALL,
            ev_probe_ns: 0,
            has_received: false,
        }
    }

    /// Moves the queue pair from INIT to RTR: from now on it accepts packets of the peer. Does nothing in
    /// another state.
    pub fn to_rtr(&mut self, attributes: &ResponderAttributes) {
        if self.state == QpState::Init {
            self.responder = Some(MrcResponder::new(&self.settings, attributes));
            self.state = QpState::Rtr;
        }
    }

    /// Moves the queue pair from RTR to RTS: from now on it executes requests. Does nothing in another state.
    pub fn to_rts(&mut self, attributes: RequesterAttributes) {
        if self.state == QpState::Rtr {
            let mut requester = MrcRequester::new(&self.settings, attributes);
            requester.paths_mut().set_local_planes(self.local);
            requester.paths_mut().set_remote_planes(self.remote);
            self.requester = Some(requester);
            self.state = QpState::Rts;
        }
    }

    /// Moves the queue pair to ERROR: all posted requests complete as flushed. `cause` is logged; that of the
    /// program is [`Cause::Modified`].
    pub fn to_error<H: Host>(&mut self, cause: Option<Cause>, host: &mut H) {
        if self.state == QpState::Err {
            return;
        }
        if let Some(cause) = cause.filter(|_| self.settings.reports_states) {
            host.log(&self.settings.context, cause);
        }
        let is_program = cause == Some(Cause::Modified);
        let by = if is_program { StateChangeActor::Program } else { StateChangeActor::Device };
        self.fail(None, by, host);
    }

    fn fail<H: Host>(&mut self, failure: Option<MrcFailure>, by: StateChangeActor, host: &mut H) {
        if self.state == QpState::Err {
            return;
        }
        let from = core::mem::replace(&mut self.state, QpState::Err);
        self.report_state(from, by, host);
        if let Some(requester) = &mut self.requester {
            requester.fail(&self.settings, failure, host);
        }
        host.flush_recv_queue(&self.settings.context);
    }

    /// Reports the change from a state to the present one.
    pub fn report_state<H: Host>(&self, from: QpState, by: StateChangeActor, host: &mut H) {
        let MrcSettings { connection, reports_states, max_send_wr: requests, .. } = self.settings;
        if reports_states && from != self.state && host.listens(Topic::States) {
            let (to, peer, reads) = (self.state, self.settings.peer(), 0);
            let event = QpEvent::StateChanged { from, to, by, connection, peer, requests, reads };
            host.emit(&self.settings.context, event);
        }
    }

    /// Returns the state: INIT, RTR, RTS or ERROR.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Returns the settings with which the queue pair was created.
    pub fn settings(&self) -> &MrcSettings {
        &self.settings
    }

    /// Returns the counters of the queue pair.
    pub fn statistics(&self) -> MrcStatistics {
        self.statistics
    }

    /// Returns the paths; `None` before RTS.
    pub fn paths(&self) -> Option<&PathSet> {
        self.requester.as_ref().map(MrcRequester::paths)
    }

    /// Returns the paths for changes by a controller and for reading changes of states; `None` before RTS.
    pub fn paths_mut(&mut self) -> Option<&mut PathSet> {
        self.requester.as_mut().map(MrcRequester::paths_mut)
    }

    /// Returns the congestion window in bytes; 0 before RTS.
    pub fn congestion_window_bytes(&self) -> u64 {
        self.requester.as_ref().map_or(0, MrcRequester::congestion_window_bytes)
    }

    /// Returns the smoothed round trip; `None` until one is measured.
    pub fn rtt_ns(&self) -> Option<u64> {
        self.requester.as_ref().and_then(MrcRequester::rtt_ns)
    }

    /// Returns the number of data packets in flight, and that of packets that the peer's window has.
    pub fn flight_packets(&self) -> (u32, u32) {
        self.requester.as_ref().map_or((0, 0), MrcRequester::flight_packets)
    }

    /// Returns the number of requests that were posted.
    pub fn posted(&self) -> u64 {
        self.requester.as_ref().map_or(0, |requester| requester.queue().posted())
    }

    /// Returns the number of requests that no completion has ended.
    pub fn unreported(&self) -> u64 {
        self.requester.as_ref().map_or(0, |requester| requester.queue().unreported())
    }

    /// Returns the number of requests that have not completed.
    pub fn outstanding(&self) -> usize {
        self.requester.as_ref().map_or(0, |requester| requester.queue().len())
    }

    /// Sets which ports of this side are up.
    pub fn set_local_planes(&mut self, planes: Planes) {
        self.local = planes;
        if let Some(requester) = &mut self.requester {
            requester.paths_mut().set_local_planes(planes);
        }
    }

    /// Sets which ports of the peer are up, as its port status update reports.
    pub fn set_remote_planes(&mut self, planes: Planes) {
        self.remote = planes;
        if let Some(requester) = &mut self.requester {
            requester.paths_mut().set_remote_planes(planes);
        }
    }

    /// Sets the window that the responder grants, in units of 128 PSNs. Has an effect only with dynamic MPR.
    pub fn set_window(&mut self, units: u8) {
        if let Some(responder) = &mut self.responder {
            responder.set_window(units);
        }
    }

    /// Sets the penalty that SACKs impose on the peer's congestion window, in 1/128 of the bytes that arrive.
    pub fn set_penalty(&mut self, penalty: u8, restores: bool) {
        if let Some(responder) = &mut self.responder {
            responder.set_penalty(penalty, restores);
        }
    }

    /// Posts a request. In the state ERROR it completes as flushed.
    ///
    /// # Errors
    /// The request cannot be posted.
    pub fn post_send<H: Host>(
        &mut self,
        request: &SendRequest<'_>,
        host: &mut H,
    ) -> Result<(), MrcPostError> {
        let imm = match request.opcode {
            SendOpcode::RdmaWrite => None,
            SendOpcode::RdmaWriteWithImm => Some(request.imm_data),
            opcode => {
                let breach = MrcBreach::Operation { opcode };
                host.emit(&self.settings.context, QpEvent::RuleBroken(breach));
                return Err(MrcPostError::WrongOpcode { opcode });
            }
        };
        let given = if request.flags.contains(SendFlags::INLINE) {
            request.inline_data.len() as u64
        } else {
            request.sges.iter().map(|sge| u64::from(sge.length)).sum()
        };
        let length = u32::try_from(given).map_err(|_| MrcPostError::MessageTooLong { given })?;
        match (self.state, &mut self.requester) {
            (QpState::Rts, Some(requester)) => {
                if requester.queue().is_full() {
                    let all_unsignaled = requester.queue().all_unsignaled();
                    return Err(MrcPostError::QueueFull { depth: self.settings.max_send_wr, all_unsignaled });
                }
                let posted = requester.post(request, length, imm);
                report_post(&self.settings, requester, (request, length), posted, host);
                Ok(())
            }
            (QpState::Err, requester) => {
                if let Some(requester) = requester {
                    let posted = requester.count(length);
                    report_post(&self.settings, requester, (request, length), posted, host);
                }
                let completion = WorkCompletion {
                    wr_id: request.wr_id,
                    status: WcStatus::WrFlushErr,
                    opcode: WcOpcode::RdmaWrite,
                    qp_num: self.settings.context.qpn.value(),
                    ..WorkCompletion::default()
                };
                host.complete_send(&self.settings.context, completion, 1);
                Ok(())
            }
            (state, _) => Err(MrcPostError::WrongState { state }),
        }
    }

    /// Handles a packet for this queue pair, from BTH to ICRC. The caller has checked the ICRC, except that
    /// of a trimmed packet.
    ///
    /// # Errors
    /// The bytes are no packet of MRC; they had no effect.
    pub fn handle_datagram<H: Host>(
        &mut self,
        now_ns: u64,
        arrival: &MrcArrival,
        bytes: &[u8],
        host: &mut H,
    ) -> Result<(), MrcPacketError> {
        let parsed = match arrival.trim {
            Some(trim) => TrimmedPacket::parse(bytes).map(|trimmed| {
                self.handle_trimmed(now_ns, arrival, trim, &trimmed, host);
            }),
            None => MrcPacket::parse(bytes).map(|packet| self.handle_packet(now_ns, arrival, &packet, host)),
        };
        self.statistics.dropped += u64::from(parsed.is_err());
        parsed
    }

    fn is_for_me(&self, bth: &MrcBth) -> bool {
        let is_partition = (bth.pkey ^ self.settings.pkey) & 0x7fff == 0;
        is_partition && bth.destination == self.settings.context.qpn
    }

    fn handle_trimmed<H: Host>(
        &mut self,
        now_ns: u64,
        arrival: &MrcArrival,
        trim: super::entropy::Trim,
        trimmed: &TrimmedPacket,
        host: &mut H,
    ) {
        let is_up = matches!(self.state, QpState::Rtr | QpState::Rts);
        let is_for_me = is_up && self.is_for_me(&trimmed.bth);
        let MrcQueuePair { settings, responder, reverse, statistics, .. } = self;
        let mut turn = MrcCallContext { settings, now_ns, statistics, reverse, host };
        match responder {
            Some(responder) if is_for_me => responder.handle_trimmed(&mut turn, arrival, trim, trimmed),
            _ => turn.statistics.dropped += 1,
        }
    }

    /// Handles a packet whose headers were parsed.
    pub fn handle_packet<H: Host>(
        &mut self,
        now_ns: u64,
        arrival: &MrcArrival,
        packet: &MrcPacket<'_>,
        host: &mut H,
    ) {
        let bth = &packet.headers.bth;
        let is_for_me = self.is_for_me(bth);
        let MrcQueuePair { settings, responder, requester, reverse, statistics, state, has_received, .. } =
            self;
        if is_for_me && *state == QpState::Rtr && !core::mem::replace(has_received, true) {
            host.event(&settings.context, AsyncEventType::CommEst);
        }
        let mut turn = MrcCallContext { settings, now_ns, statistics, reverse, host };
        let mut failed = Ok(());
        let mut refused = Ok(());
        let is_up = matches!(state, QpState::Rtr | QpState::Rts);
        match (&packet.headers.body, requester, responder) {
            (MrcBody::Write(_), _, Some(responder)) if is_for_me && *state == QpState::Err => {
                responder.repeat_refusal(arrival);
            }
            _ if !is_for_me || !is_up => turn.statistics.dropped += 1,
            (MrcBody::Write(write), _, Some(responder)) => {
                let packet_bytes = packet.headers.packet_len(packet.payload.len());
                let nominal_bytes = super::requester::nominal_bytes(packet_bytes);
                let incoming = DataArrival { arrival, bth, write, payload: packet.payload, nominal_bytes };
                refused = responder.handle_write(&mut turn, &incoming);
            }
            (MrcBody::Probe(peth), _, Some(responder)) => {
                responder.handle_probe(turn.settings, arrival, peth);
            }
            (MrcBody::Sack(seth, cc_state), Some(requester), _) => {
                requester.handle_sack(&mut turn, bth, seth, cc_state);
            }
            (MrcBody::Nack(neth), Some(requester), _) => failed = requester.handle_nack(&mut turn, neth),
            (MrcBody::Acknowledge(aeth), Some(requester), _) => {
                failed = requester.handle_acknowledge(&mut turn, bth.psn, aeth);
            }
            _ => turn.statistics.dropped += 1,
        }
        if let Err(failure) = failed {
            self.fail(Some(failure), StateChangeActor::Requester, host);
        }
        if let Err(refusal) = refused {
            self.fail(None, StateChangeActor::Responder, host);
            host.event(&self.settings.context, refusal.event);
        }
    }

    /// Returns the time at which [`MrcQueuePair::handle_timeout`] is to be called.
    pub fn deadline_ns(&self) -> Option<u64> {
        let requester = self.requester.as_ref().filter(|_| self.state == QpState::Rts);
        requester.and_then(MrcRequester::deadline_ns)
    }

    /// Returns the time since which the peer has been silent, if the acknowledgement timer has expired and
    /// its last retry, or the request itself, is about to be spent on it; and the time at which it expired.
    pub fn peer_silent_since_ns(&self, now_ns: u64) -> Option<(u64, u64)> {
        let requester = self.requester.as_ref().filter(|_| self.state == QpState::Rts)?;
        Some((requester.peer_silent_since_ns(now_ns)?, requester.timer_ns()?))
    }

    /// Handles the timers that are due. `peer` is what is known about the peer's process, if it is asked for
    /// by [`MrcQueuePair::peer_silent_since_ns`].
    pub fn handle_timeout<H: Host>(&mut self, now_ns: u64, peer: PeerProgress, host: &mut H) {
        let MrcQueuePair { settings, requester, reverse, statistics, state, .. } = self;
        let Some(requester) = requester.as_mut().filter(|_| *state == QpState::Rts) else { return };
        let mut turn = MrcCallContext { settings, now_ns, statistics, reverse, host };
        if let Err(failure) = requester.handle_timeout(&mut turn, peer) {
            self.fail(Some(failure), StateChangeActor::Requester, host);
        }
    }

    /// Reports whether [`MrcQueuePair::transmit`] has something to send.
    pub fn wants_to_send(&self) -> bool {
        let answers = self.responder.as_ref().is_some_and(|responder| !responder.answers().is_empty());
        let requester = self.requester.as_ref().filter(|_| self.state == QpState::Rts);
        answers || requester.is_some_and(|requester| requester.wants_to_send(&self.settings))
    }

    /// Sends everything that may be sent, answers first.
    pub fn transmit<H: Host, N: MrcNetwork>(
        &mut self,
        now_ns: u64,
        host: &mut H,
        network: &mut N,
    ) -> MrcProgress {
        let up = self.local.and(self.remote);
        if let Some(responder) = &mut self.responder {
            let (answers, cack_psn, completed) = responder.answers_mut();
            let numbers = (cack_psn, completed);
            let (ways, out) = ((&self.reverse, up), (&mut *host, &mut *network));
            if !answers.transmit(&self.settings, numbers, ways, &mut self.statistics, out) {
                return MrcProgress::Blocked;
            }
        }
        let Some(requester) = self.requester.as_mut().filter(|_| self.state == QpState::Rts) else {
            return MrcProgress::Idle;
        };
        match requester.transmit(&self.settings, now_ns, &mut self.statistics, host, network) {
            Ok(SendProgress::Idle) => MrcProgress::Idle,
            Ok(SendProgress::Blocked) => MrcProgress::Blocked,
            Err(failure) => {
                self.fail(Some(failure), StateChangeActor::Requester, host);
                MrcProgress::Idle
            }
        }
    }

    /// Returns a path to test with an EV probe, so that its answer confirms a reverse path. A probe is due
    /// once a round trip while data arrives and no data of this side is in flight to confirm one. The caller
    /// sends it with [`super::endpoint::Endpoint::probe`], and passes the answer to
    /// [`MrcQueuePair::confirm_reverse`].
    pub fn poll_ev_probe(&mut self, now_ns: u64) -> Option<Ev> {
        let data_ns = self.responder.as_ref()?.data_ns();
        let requester = self.requester.as_mut().filter(|_| self.state == QpState::Rts)?;
        let interval = requester.smooth_rtt_ns();
        let is_due = now_ns >= self.ev_probe_ns.saturating_add(interval);
        let is_fresh = self.reverse.confirmed_ns().saturating_add(interval) > now_ns;
        if !requester.is_idle() || !is_due || is_fresh || data_ns < self.ev_probe_ns || data_ns == 0 {
            return None;
        }
        self.ev_probe_ns = now_ns;
        let path = requester.paths_mut().choose(None)?;
        requester.paths().ev(path)
    }

    /// Records that an EV probe was answered, so that control packets may take its path.
    pub fn confirm_reverse(&mut self, now_ns: u64, ev: Ev) {
        self.reverse.confirm(now_ns, ev);
    }
}

/// Reports a request that was posted, and its length.
fn report_post<H: Host>(
    settings: &MrcSettings,
    requester: &MrcRequester,
    (request, length_bytes): (&SendRequest<'_>, u32),
    posted: PostedMessage,
    host: &mut H,
) {
    if !host.listens(Topic::Posts) {
        return;
    }
    let event = QpEvent::SendPosted {
        wr_id: request.wr_id,
        message: posted.ordinal,
        opcode: request.opcode,
        length_bytes,
        psn: requester.psn_of(posted.first),
        packet_count: posted.packets as u32,
        signaled: request.flags.contains(SendFlags::SIGNALED),
        inline: request.flags.contains(SendFlags::INLINE),
        request,
    };
    host.emit_uncounted(&settings.context, &event);
}
