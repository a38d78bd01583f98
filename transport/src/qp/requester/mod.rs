//! The requester: turns the send queue into request packets.
//!
//! One cursor walks the queue; a retransmission moves it back to the oldest unacknowledged PSN
//! (go-back-N). Everything before `acked` is answered, everything before the cursor is in flight.

mod complete;
mod injected;
mod lane;
mod request;
mod timers;
mod transmit;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::dcqcn::Pacer;
use super::send_queue::SendQueue;
use super::settings::QpSettings;
use super::window::SendWindow;
use crate::event::{QpEvent, RetransmitReason, Transmissions};
use crate::host::Host;
use crate::types::{IgnoredAnswers, MemoryFault, WcStatus};
use crate::wire::{NakCode, Psn, Syndrome};

/// Error of the request at the head of the send queue: the queue pair goes to ERR (or SQE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendFailure {
    pub(crate) status: WcStatus,
    /// True if the failure is local and affects only the send side (UC, UD): SQE.
    pub(crate) local: bool,
}

impl SendFailure {
    /// Creates the failure of a request that the peer refused.
    pub(crate) const fn refused(code: NakCode) -> SendFailure {
        let status = match code {
            //= linux:rxe_comp.c#check_ack
            //| Each code of a NAK has a status of its own.
            NakCode::InvalidRequest => WcStatus::RemInvReqErr,
            NakCode::RemoteAccess => WcStatus::RemAccessErr,
            NakCode::InvalidReadRequest => WcStatus::RemInvRdReqErr,
            NakCode::Sequence | NakCode::RemoteOperation => WcStatus::RemOpErr,
        };
        SendFailure { status, local: false }
    }
}

/// A request on the wire that needs a response of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outstanding {
    /// PSN of the request and of its first response.
    pub(crate) first_psn: Psn,
    /// Number of responses that it asked for.
    pub(crate) count: u32,
    /// True if it was sent before: answers to the earlier request may still arrive, split differently.
    pub(crate) repeated: bool,
}

/// An action of a fault plan when all packets before one are acknowledged.
#[derive(Debug, Clone, Copy)]
struct InjectedAnswer {
    /// PSN of the packet.
    psn: Psn,
    answer: InjectedEffect,
}

#[derive(Debug, Clone, Copy)]
enum InjectedEffect {
    /// A NAK or RNR NAK in the peer's name.
    Refusal(Syndrome),
    /// The host is notified.
    Halt,
    /// The host was notified, and has not let it continue.
    Halted,
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
    /// Number of the first entry that has not been started.
    pub(crate) started: u64,
    pub(crate) outstanding: VecDeque<Outstanding>,
    pub(crate) retries_left: u8,
    pub(crate) rnr_retries_left: u8,
    pub(crate) timer_ns: Option<u64>,
    /// Time at which that timer was started.
    timer_began_ns: u64,
    /// Time since which the requester waits for a peer that has no processor.
    starved_since_ns: Option<u64>,
    /// True if no process had the peer's number when the last retry was used up.
    peer_is_absent: bool,
    /// Number of expirations of the transport timer since the last progress.
    pub(crate) silences: u32,
    pub(crate) rnr_until_ns: Option<u64>,
    pub(crate) early_timer_ns: Option<u64>,
    pub(crate) early_backoff: u32,
    pub(crate) lossy_until_ns: u64,
    /// True if an implied NAK was acted on; others are ignored until progress.
    pub(crate) implied_nak_seen: bool,
    /// True if an RNR NAK came, and neither progress nor a sequence NAK after it.
    pub(crate) refused_for_now: bool,
    pub(crate) window: SendWindow,
    /// Pacer of the packets, if congestion control is by rate, or the program has limited it.
    pub(crate) pacer: Option<Box<Pacer>>,
    /// Largest number of response packets that one READ request asks for.
    pub(crate) read_limit_packets: u32,
    /// Answers without progress since the last progress.
    pub(crate) ignored_answers: IgnoredAnswers,
    /// PSN of the first request after RTR.
    pub(crate) first_psn: Psn,
    /// Fault of the memory or key of the request that fails next.
    pub(crate) fault: Option<MemoryFault>,
    /// Number of transmissions of each PSN; recorded only if the host subscribes to packets.
    pub(crate) transmissions: Transmissions,
    /// Action of a fault plan in the peer's name, or on the device; no packet beyond its packet is sent
    /// before it.
    injected: Option<InjectedAnswer>,
    /// Entry that failed locally, which waits for those before it to complete.
    pub(crate) local_failure: Option<(u64, WcStatus)>,
    /// Status that the host gives the entry at the head, which is done.
    pub(crate) judged: Option<WcStatus>,
    /// True if data of a completed request did not fit its signatures: the queue pair has to stop.
    pub(crate) has_bad_signature: bool,
    /// Number of unsignaled requests completed since the last completion was made.
    unreported: u32,
    packets_since_ack_request: u32,
    /// True if it was logged that READs and atomics need another `max_rd_atomic`.
    pub(crate) doubts_depth: bool,
}

impl Requester {
    pub(crate) fn new(capacity: u32, settings: &QpSettings) -> Requester {
        let connected = settings.qp_type.is_connected();
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
            peer_is_absent: false,
            silences: 0,
            rnr_until_ns: None,
            early_timer_ns: None,
            early_backoff: 0,
            lossy_until_ns: 0,
            implied_nak_seen: false,
            refused_for_now: false,
            window: SendWindow::new(64),
            pacer: Pacer::of(&settings.congestion).filter(|_| connected).map(Box::new),
            read_limit_packets: 64,
            ignored_answers: IgnoredAnswers::default(),
            first_psn: Psn::new(0),
            fault: None,
            transmissions: Transmissions::default(),
            injected: None,
            local_failure: None,
            judged: None,
            has_bad_signature: false,
            unreported: 0,
            packets_since_ack_request: 0,
            doubts_depth: false,
        }
    }

    /// Counts the requests that were posted and whose end no completion has reported yet.
    pub(crate) fn unreported_count(&self) -> u64 {
        let in_queue = self.queue.tail().saturating_sub(self.queue.head());
        in_queue.saturating_add(u64::from(self.unreported))
    }

    /// Starts the requester at RTR → RTS: numbering begins at `sq_psn`.
    pub(crate) fn start(&mut self, settings: &QpSettings, sq_psn: Psn, window_limit_packets: u32) {
        //= linux:rxe_qp.c#rxe_qp_from_attr
        //| The first request packet has the PSN of sq_psn.
        self.next_psn = sq_psn;
        self.first_psn = sq_psn;
        self.ignored_answers = IgnoredAnswers::default();
        self.acked = sq_psn;
        self.sent_end = sq_psn;
        self.injected = None;
        self.window = SendWindow::new(window_limit_packets);
        self.reload_retries(settings);
    }

    /// Limits the rate of a queue pair without congestion control to this many kbit/s; 0 ends the limit.
    pub(crate) fn limit_rate(&mut self, kbits_per_second: u32) {
        let rate = u64::from(kbits_per_second) * 1000;
        self.pacer = (rate > 0).then(|| Box::new(Pacer::at_rate(rate)));
    }

    /// Handles a CNP: the window shrinks, or the rate falls.
    #[cold]
    pub(crate) fn handle_cnp<H: Host>(&mut self, settings: &QpSettings, now_ns: u64, host: &mut H) {
        host.emit(&settings.context, QpEvent::CnpReceived);
        match &mut self.pacer {
            Some(pacer) => pacer.handle_cnp(now_ns, &settings.context, host),
            None => self.window.on_cnp(now_ns),
        }
    }

    /// Returns the time until which the rate holds back packets that could leave otherwise.
    #[inline]
    pub(crate) fn held_until_ns(&self) -> Option<u64> {
        self.pacer.as_ref().and_then(|pacer| pacer.held_until_ns())
    }

    /// Returns the number of PSNs in flight.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        let position = self.cursor_psn();
        position.since(self.acked).max(0) as u32
    }

    /// Returns the PSN at the cursor.
    #[inline]
    pub(crate) fn cursor_psn(&self) -> Psn {
        match self.queue.entry(self.cursor) {
            Some(wqe) => wqe.first_psn.plus(self.cursor_packet),
            None => self.next_psn,
        }
    }

    /// Moves the cursor back to the oldest unacknowledged packet.
    pub(crate) fn rewind(&mut self, settings: &QpSettings, why: RetransmitReason, host: &mut impl Host) {
        let (psn, packet_count) = (self.acked, self.in_flight());
        host.emit(&settings.context, QpEvent::SentAgain { psn, packet_count, why });
        self.reset_cursor();
        self.outstanding.clear();
        // The local failure is found again, after the packets that are sent again now.
        self.local_failure = None;
        self.window.forget_sample();
        self.packets_since_ack_request = 0;
    }

    /// Sets the cursor to the oldest unacknowledged packet.
    fn reset_cursor(&mut self) {
        self.cursor = self.queue.head();
        //= statement:19
        //| The transmission starts again at the oldest packet that is not acknowledged.
        self.cursor_packet = match self.queue.entry(self.cursor) {
            Some(wqe) if !wqe.is_local() => self.acked.since(wqe.first_psn).max(0) as u32,
            _ => 0,
        };
    }

    /// Cancels the requests with this identifier that have not begun, and returns their number: they have no
    /// effect when their turn comes. All that has begun has completed. Requests after them get the PSNs that
    /// the canceled ones would have had.
    #[cold]
    pub(crate) fn cancel(&mut self, wr_id: u64) -> u32 {
        let mut count = 0;
        let mut psn = self.cursor_psn();
        for number in self.started..self.queue.tail() {
            let Some(wqe) = self.queue.entry_mut(number) else { break };
            if wqe.wr_id == wr_id {
                wqe.cancel();
                count += 1;
            }
            wqe.first_psn = psn;
            psn = wqe.end_psn();
        }
        self.next_psn = psn;
        count
    }

    /// Reports whether a transmit call could send a packet (it may still find the window full).
    #[inline]
    pub(crate) fn wants_to_send(&self, draining: bool) -> bool {
        let waits = self.local_failure.is_some() || self.judged.is_some() || self.waits_for_injected_answer();
        if self.rnr_until_ns.is_some() || waits || self.held_until_ns().is_some() {
            return false;
        }
        //= statement:45
        //| A queue pair in SQD starts no new message.
        let end = if draining { self.started } else { self.queue.tail() };
        self.cursor < end
    }
}
