//! The requester: turns the send queue into request packets.
//!
//! One cursor walks the queue; a retransmission moves it back to the oldest unacknowledged PSN
//! (go-back-N). Everything before `acked` is answered, everything before the cursor is in flight.

mod request;

use alloc::collections::VecDeque;

use super::send_queue::{SendQueue, SendWqe};
use super::settings::Settings;
use super::window::Window;
use crate::event::{QpEvent, Repetition};
use crate::host::{Host, MemoryError, RemoteKey, Transmit};
use crate::types::{
    Cause, FailedSend, Heard, MemoryFault, Peer, QpType, SendFlags, SendOpcode, Sge, WcStatus, WorkCompletion,
};
use crate::wire::{Psn, transport_timer_ns};

use request::Request;

/// Evidence of loss keeps early retransmission on for this long.
const LOSSY_NS: u64 = 1_000_000_000;
/// How long a peer without a processor is waited for at most: that it has none may be a wrong claim.
const STARVED_PATIENCE_NS: u64 = 20_000_000_000;
/// Between two looks whether it has had one, at least.
const STARVED_LOOK_NS: u64 = 10_000_000;
/// Retries that are left when the peer's process is looked at: from here on a timeout is spent on the last
/// transmission, or ends the request.
const LAST_RETRIES: u8 = 1;

/// The request at the head of the send queue failed: the queue pair goes to ERR (or SQE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendFailure {
    pub(crate) status: WcStatus,
    /// The failure is local and harms only the send side (UC, UD): SQE.
    pub(crate) local: bool,
}

/// What is left to do after a transmit call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing to send until something happens.
    Idle,
    /// The sink had no room: call again.
    Blocked,
}

/// A READ, atomic, FLUSH or ATOMIC WRITE request on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outstanding {
    /// PSN of the request and of its first response.
    pub(crate) first_psn: Psn,
    /// Responses it asked for.
    pub(crate) count: u32,
    /// It was sent before: answers to the earlier request may still come, cut differently.
    pub(crate) repeated: bool,
}

#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) queue: SendQueue,
    /// PSN of the next posted request.
    pub(crate) next_psn: Psn,
    /// Oldest PSN not yet acknowledged.
    pub(crate) acked: Psn,
    /// PSN after the newest one ever sent.
    pub(crate) sent_end: Psn,
    /// Entry being sent, and its next packet.
    pub(crate) cursor: u64,
    pub(crate) cursor_packet: u32,
    /// Entries before this one have been started.
    pub(crate) started: u64,
    pub(crate) outstanding: VecDeque<Outstanding>,
    pub(crate) retries_left: u8,
    pub(crate) rnr_retries_left: u8,
    pub(crate) timer_ns: Option<u64>,
    /// When that timer was started.
    timer_began_ns: u64,
    /// Since when the peer is waited for because it has no processor.
    starved_since_ns: Option<u64>,
    pub(crate) rnr_until_ns: Option<u64>,
    pub(crate) early_timer_ns: Option<u64>,
    pub(crate) early_backoff: u32,
    pub(crate) lossy_until_ns: u64,
    /// An implied NAK was acted on; others are ignored until progress.
    pub(crate) implied_nak_seen: bool,
    /// An RNR NAK came, and neither progress nor a sequence NAK after it.
    pub(crate) refused_for_now: bool,
    pub(crate) window: Window,
    /// Most response packets that one READ request asks for.
    pub(crate) read_limit_packets: u32,
    /// Answers that brought no progress, since there was some.
    pub(crate) heard: Heard,
    /// PSN of the first request after RTR.
    pub(crate) first_psn: Psn,
    /// What was wrong with the memory or key of the request that fails next.
    pub(crate) fault: Option<MemoryFault>,
    /// The entry that failed locally, waiting for those before it to complete.
    pub(crate) local_failure: Option<(u64, WcStatus)>,
    /// Unsignaled requests completed since the last completion was made.
    unreported: u32,
    packets_since_ack_request: u32,
}

impl Requester {
    pub(crate) fn new(capacity: u32) -> Requester {
        Requester {
            queue: SendQueue::new(capacity),
            next_psn: Psn::new(0),
            acked: Psn::new(0),
            sent_end: Psn::new(0),
            cursor: 0,
            cursor_packet: 0,
            started: 0,
            outstanding: VecDeque::new(),
            retries_left: 0,
            rnr_retries_left: 0,
            timer_ns: None,
            timer_began_ns: 0,
            starved_since_ns: None,
            rnr_until_ns: None,
            early_timer_ns: None,
            early_backoff: 0,
            lossy_until_ns: 0,
            implied_nak_seen: false,
            refused_for_now: false,
            window: Window::new(64),
            read_limit_packets: 64,
            heard: Heard::default(),
            first_psn: Psn::new(0),
            fault: None,
            local_failure: None,
            unreported: 0,
            packets_since_ack_request: 0,
        }
    }

    /// RTR → RTS: numbering starts at `sq_psn`.
    pub(crate) fn start(&mut self, settings: &Settings, sq_psn: Psn, window_limit_packets: u32) {
        self.next_psn = sq_psn;
        self.first_psn = sq_psn;
        self.heard = Heard::default();
        self.acked = sq_psn;
        self.sent_end = sq_psn;
        self.window = Window::new(window_limit_packets);
        self.reload_retries(settings);
    }

    pub(crate) fn reload_retries(&mut self, settings: &Settings) {
        self.retries_left = settings.retry_count;
        self.rnr_retries_left = settings.rnr_retry;
        self.starved_since_ns = None;
    }

    /// PSNs in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        let position = self.cursor_psn();
        position.since(self.acked).max(0) as u32
    }

    /// PSN that the cursor stands at.
    pub(crate) fn cursor_psn(&self) -> Psn {
        match self.queue.entry(self.cursor) {
            Some(wqe) => wqe.first_psn.plus(self.cursor_packet),
            None => self.next_psn,
        }
    }

    /// Puts the cursor back to the oldest unacknowledged packet.
    pub(crate) fn rewind(&mut self, settings: &Settings, why: Repetition, host: &mut impl Host) {
        let (psn, packet_count) = (self.acked, self.in_flight());
        host.emit(&settings.context, QpEvent::SentAgain { psn, packet_count, why });
        self.cursor = self.queue.head();
        self.cursor_packet = match self.queue.entry(self.cursor) {
            Some(wqe) if !wqe.opcode.is_local() => self.acked.since(wqe.first_psn).max(0) as u32,
            _ => 0,
        };
        self.outstanding.clear();
        // Its turn comes again, after what is sent again now.
        self.local_failure = None;
        self.window.forget_sample();
        self.packets_since_ack_request = 0;
    }

    /// Loss was seen (a sequence NAK, a gap in READ responses, silence).
    pub(crate) fn note_loss(&mut self, now_ns: u64) {
        self.lossy_until_ns = now_ns.saturating_add(LOSSY_NS);
    }

    /// Starts the timers if something that needs an answer is in flight and none runs.
    fn start_timers(&mut self, settings: &Settings, now_ns: u64) {
        if self.timer_ns.is_none() {
            self.timer_began_ns = now_ns;
            self.timer_ns = transport_timer_ns(settings.timeout).map(|ns| now_ns.saturating_add(ns));
        }
        if self.early_timer_ns.is_none() {
            self.arm_early_timer(now_ns);
        }
    }

    fn arm_early_timer(&mut self, now_ns: u64) {
        self.early_timer_ns = (now_ns < self.lossy_until_ns)
            .then(|| self.window.early_retransmit_ns())
            .flatten()
            .map(|ns| now_ns.saturating_add(ns << self.early_backoff.min(8)));
    }

    /// Something was acknowledged: timers start anew, or stop if nothing is in flight.
    pub(crate) fn restart_timers(&mut self, settings: &Settings, now_ns: u64) {
        self.timer_ns = None;
        self.early_timer_ns = None;
        self.early_backoff = 0;
        if self.in_flight() > 0 {
            self.start_timers(settings, now_ns);
        }
    }

    /// Since when the peer has been silent, if the transport timer has expired and its last retry, or the
    /// request itself, is about to be spent on it.
    pub(crate) fn doubts_peer_since_ns(&self, now_ns: u64) -> Option<u64> {
        let due = self.timer_ns.is_some_and(|at_ns| at_ns <= now_ns);
        let patient = self
            .starved_since_ns
            .is_none_or(|since_ns| now_ns.saturating_sub(since_ns) < STARVED_PATIENCE_NS);
        (due && patient && self.retries_left <= LAST_RETRIES).then_some(self.timer_began_ns)
    }

    /// The peer has no processor: its silence costs nothing, and is looked at again later.
    pub(crate) fn wait_for_starved_peer(&mut self, settings: &Settings, now_ns: u64) {
        self.starved_since_ns.get_or_insert(now_ns);
        let wait_ns = transport_timer_ns(settings.timeout).map(|ns| ns.max(STARVED_LOOK_NS));
        self.timer_ns = wait_ns.map(|ns| now_ns.saturating_add(ns));
    }

    /// Next deadline in ns.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        [self.timer_ns, self.rnr_until_ns, self.early_timer_ns].into_iter().flatten().min()
    }

    /// Whether a transmit call could do anything (it may still find the window full).
    pub(crate) fn wants_to_send(&self, draining: bool) -> bool {
        if self.rnr_until_ns.is_some() || self.local_failure.is_some() {
            return false;
        }
        let end = if draining { self.started } else { self.queue.tail() };
        self.cursor < end
    }

    /// Sends what the window, the sink and the rules of order allow.
    ///
    /// # Errors
    /// The request at the head of the queue failed locally.
    pub(crate) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        draining: bool,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Progress, SendFailure> {
        if self.rnr_until_ns.is_some() {
            return Ok(Progress::Idle);
        }
        loop {
            self.fail_if_due(settings)?;
            if self.local_failure.is_some() {
                return Ok(Progress::Idle);
            }
            if draining && self.cursor >= self.started {
                return Ok(Progress::Idle);
            }
            let Some(wqe) = self.queue.entry(self.cursor) else { return Ok(Progress::Idle) };
            if let Some(status) = wqe.fault() {
                self.local_failure = Some((self.cursor, status));
                continue;
            }
            if wqe.opcode.is_local() {
                if !self.execute_local(settings, host) {
                    return Ok(Progress::Idle);
                }
                continue;
            }
            if self.must_wait(settings, wqe) {
                return Ok(Progress::Idle);
            }
            match self.send_one(settings, now_ns, host, sink) {
                Sent::Packet => {}
                Sent::NoRoom => return Ok(Progress::Blocked),
                Sent::LocalError(status) => self.local_failure = Some((self.cursor, status)),
            }
            if settings.qp_type == QpType::Uc {
                self.complete_sent(settings, host);
            }
        }
    }

    /// A local failure is reported once everything before it has completed.
    pub(crate) fn fail_if_due(&self, settings: &Settings) -> Result<(), SendFailure> {
        match self.local_failure {
            Some((entry, status)) if entry == self.queue.head() => {
                Err(SendFailure { status, local: !settings.qp_type.is_reliable() })
            }
            _ => Ok(()),
        }
    }

    /// Window, fence and the limit of outstanding READs and atomics.
    fn must_wait(&self, settings: &Settings, wqe: &SendWqe) -> bool {
        if settings.qp_type == QpType::Uc {
            return false;
        }
        let fenced = wqe.flags.contains(SendFlags::FENCE) && self.cursor_packet == 0;
        if fenced && !self.outstanding.is_empty() {
            return true;
        }
        if wqe.opcode.needs_response() && self.outstanding.len() >= usize::from(settings.max_rd_atomic) {
            return true;
        }
        if wqe.opcode == SendOpcode::RdmaRead && !self.outstanding.is_empty() {
            // What comes back must fit this side's receive buffer, over all READs together.
            let wanted = wqe.packet_count.saturating_sub(self.cursor_packet).min(self.read_limit_packets);
            if self.in_flight() + wanted > self.read_limit_packets {
                return true;
            }
        }
        self.in_flight() >= self.window.packets()
    }

    /// LOCAL_INV and BIND_MW at the cursor. False: it has to wait.
    fn execute_local<H: Host>(&mut self, settings: &Settings, host: &mut H) -> bool {
        // LOCAL_INV waits for everything before it; BIND_MW only takes its turn.
        let first = self.cursor == self.queue.head();
        let cursor = self.cursor;
        let Some(wqe) = self.queue.entry_mut(cursor) else { return false };
        if !wqe.executed {
            let outcome = match (wqe.opcode, wqe.bind()) {
                (SendOpcode::BindWindow, Some(bind)) => host
                    .bind_window(&settings.context, &bind)
                    .map_err(|error| (WcStatus::MwBindErr, Some(error))),
                (SendOpcode::BindWindow, None) => Err((WcStatus::MwBindErr, None)),
                _ if !first => return false,
                _ => {
                    let key = RemoteKey {
                        rkey: wqe.invalidate_rkey,
                        pd: settings.context.pd,
                        qpn: settings.context.qpn,
                    };
                    // "Memory management operation error" of IBTA 11.6.2, for which verbs have this one status.
                    host.invalidate(key).map_err(|error| (WcStatus::MwBindErr, Some(error)))
                }
            };
            match outcome {
                Ok(()) => wqe.executed = true,
                Err((status, error)) => {
                    self.fault = error.map(|error| MemoryFault::unknown_place(error, false));
                    self.local_failure = Some((cursor, status));
                    return true;
                }
            }
        }
        self.cursor += 1;
        self.cursor_packet = 0;
        self.started = self.started.max(self.cursor);
        self.complete_ready(settings, host);
        true
    }

    fn send_one<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Sent {
        let Some(path) = settings.path.as_deref() else {
            return Sent::LocalError(WcStatus::LocQpOpErr);
        };
        let Some(wqe) = self.queue.entry(self.cursor) else { return Sent::NoRoom };
        let psn = wqe.first_psn.plus(self.cursor_packet);
        let window_left = self.window.packets().saturating_sub(self.in_flight()).max(1);
        let request = Request::of(settings, wqe, self.cursor_packet, self.read_limit_packets);
        let mut headers = request.headers(settings, wqe, psn);
        let reliable = settings.qp_type.is_reliable();
        headers.bth.ack_request = reliable
            && (request.ends_message
                || request.response_count.is_some()
                || window_left == 1
                || self.packets_since_ack_request + 1 >= self.window.ack_interval());

        let header_bytes = headers.len();
        let pad = usize::from(headers.bth.pad_count);
        let length = header_bytes + request.payload_bytes + pad + 4;
        let Some(packet) = sink.begin(path, settings.destination, length) else { return Sent::NoRoom };
        headers.emit(packet);
        let payload_end = header_bytes + request.payload_bytes;
        if request.payload_bytes > 0 {
            let Some(body) = packet.get_mut(header_bytes..payload_end) else { return Sent::NoRoom };
            let gathered = if wqe.is_inline() {
                let start = request.payload_offset as usize;
                match wqe.inline_data().get(start..start + body.len()) {
                    Some(data) => {
                        body.copy_from_slice(data);
                        Ok(())
                    }
                    None => Err(None),
                }
            } else {
                host.gather(settings.context.pd, wqe.sges(), request.payload_offset, body).map_err(Some)
            };
            if let Err(error) = gathered {
                sink.abandon();
                let Some(error) = error else { return Sent::LocalError(WcStatus::LocLenErr) };
                self.fault = Some(fault_of(settings.context.pd, wqe.sges(), error, false, host));
                return Sent::LocalError(WcStatus::LocProtErr);
            }
        }
        if let Some(padding) = packet.get_mut(payload_end..payload_end + pad) {
            padding.fill(0);
        }
        sink.seal();

        self.packets_since_ack_request =
            if headers.bth.ack_request { 0 } else { self.packets_since_ack_request + 1 };
        self.advance(settings, &request, psn, headers.bth.ack_request, now_ns);
        Sent::Packet
    }

    fn advance(&mut self, settings: &Settings, request: &Request, psn: Psn, ack_request: bool, now_ns: u64) {
        let count = request.response_count.unwrap_or(1);
        if request.response_count.is_some() {
            let repeated = psn.is_before(self.sent_end);
            self.outstanding.push_back(Outstanding { first_psn: psn, count, repeated });
        }
        let end = psn.plus(count);
        if end.is_after(self.sent_end) {
            self.sent_end = end;
            if ack_request {
                self.window.on_sent(psn, now_ns);
            }
        }
        self.cursor_packet += count;
        self.started = self.started.max(self.cursor + 1);
        if request.ends_message {
            self.cursor += 1;
            self.cursor_packet = 0;
        }
        if settings.qp_type.is_reliable() {
            self.start_timers(settings, now_ns);
        }
    }

    /// UC: handed to the network is done.
    fn complete_sent<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        self.acked = self.cursor_psn();
        self.complete_ready(settings, host);
    }

    /// Completes entries from the head while they are answered (or executed).
    pub(crate) fn complete_ready<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        while self.queue.head() < self.started {
            let Some(wqe) = self.queue.entry(self.queue.head()) else { return };
            let done =
                if wqe.opcode.is_local() { wqe.executed } else { !self.acked.is_before(wqe.end_psn()) };
            if !done {
                return;
            }
            self.complete_head(settings, WcStatus::Success, host);
        }
    }

    /// Completes and forgets the entry at the head.
    pub(crate) fn complete_head<H: Host>(&mut self, settings: &Settings, status: WcStatus, host: &mut H) {
        let Some(wqe) = self.queue.entry(self.queue.head()) else { return };
        if wqe.signaled || status != WcStatus::Success {
            let completion = WorkCompletion {
                wr_id: wqe.wr_id,
                status,
                opcode: wqe.wc_opcode(),
                byte_len: wqe.length_bytes,
                qp_num: settings.context.qpn.value(),
                src_qp: settings.destination.value(),
                ..WorkCompletion::default()
            };
            host.complete_send(&settings.context, completion, self.unreported + 1);
            self.unreported = 0;
        } else {
            self.unreported += 1;
        }
        self.queue.pop();
        let head = self.queue.head();
        if self.cursor < head {
            self.cursor = head;
            self.cursor_packet = 0;
        }
        self.started = self.started.max(head);
    }

    /// Fails the head with `status` and flushes the rest, in order.
    pub(crate) fn fail<H: Host>(&mut self, settings: &Settings, failure: SendFailure, host: &mut H) {
        let fault = self.fault.take();
        if let Some(wqe) = self.queue.entry(self.queue.head()) {
            let peer = settings
                .path
                .as_deref()
                .map(|path| Peer { address: path.flow.destination, qpn: settings.destination });
            let cause = Cause::SendFailed(FailedSend {
                status: failure.status,
                wr_id: wqe.wr_id,
                opcode: wqe.opcode,
                length_bytes: wqe.length_bytes,
                psn: self.acked,
                mtu_bytes: settings.mtu_bytes as u32,
                retry_count: settings.retry_count,
                rnr_retry: settings.rnr_retry,
                timeout: settings.timeout,
                peer: peer.filter(|_| settings.qp_type.is_connected()),
                remote: wqe.remote_range(),
                fault,
                heard: self.heard,
            });
            host.log(&settings.context, cause);
        }
        self.complete_head(settings, failure.status, host);
        self.flush(settings, host);
    }

    /// Flushes everything with `WR_FLUSH_ERR` and stops all timers.
    pub(crate) fn flush<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        while !self.queue.is_empty() {
            self.complete_head(settings, WcStatus::WrFlushErr, host);
        }
        self.cursor = self.queue.tail();
        self.cursor_packet = 0;
        self.started = self.queue.tail();
        self.acked = self.next_psn;
        self.outstanding.clear();
        self.timer_ns = None;
        self.rnr_until_ns = None;
        self.early_timer_ns = None;
        self.local_failure = None;
    }
}

/// Which element of a list could not be used, and why.
#[cold]
pub(crate) fn fault_of<H: Host>(
    pd: u32,
    sges: &[Sge],
    error: MemoryError,
    stores: bool,
    host: &mut H,
) -> MemoryFault {
    host.find_fault(pd, sges, stores).unwrap_or(MemoryFault::unknown_place(error, stores))
}

enum Sent {
    Packet,
    NoRoom,
    LocalError(WcStatus),
}
