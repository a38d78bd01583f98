//! The requester: turns the send queue into request packets.
//!
//! One cursor walks the queue; a retransmission moves it back to the oldest unacknowledged PSN
//! (go-back-N). Everything before `acked` is answered, everything before the cursor is in flight.

mod complete;
mod injected;
mod lane;
mod request;
mod state;
mod timers;
mod transmit;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use state::{EarlyTimer, FruitlessAnswers, PendingFailures, Retries, SendPosition, SendPsns};

use super::dcqcn::Pacer;
use super::send_queue::SendQueue;
use super::settings::QpSettings;
use super::window::SendWindow;
use crate::event::{QpEvent, RetransmitReason, Transmissions};
use crate::host::Host;
use crate::types::{IgnoredAnswers, WcStatus};
use crate::wire::{NakCode, Psn};

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

/// The send side of a queue pair: its requests, and what it knows about their packets.
#[derive(Debug)]
pub(crate) struct Requester {
    /// The requests that were posted.
    pub(crate) queue: SendQueue,
    /// The PSNs between which packets are sent.
    pub(crate) psns: SendPsns,
    /// The place in the queue from which packets are sent.
    pub(crate) position: SendPosition,
    /// The requests on the wire that need responses of their own.
    pub(crate) outstanding: VecDeque<Outstanding>,
    /// The timers, and the retries that are left.
    pub(crate) retries: Retries,
    /// The timer of paths that lose packets.
    pub(crate) early: EarlyTimer,
    /// The answers that made no progress.
    pub(crate) fruitless: FruitlessAnswers,
    /// The window of congestion control.
    pub(crate) window: SendWindow,
    /// Pacer of the packets, if congestion control is by rate, or the program has limited it.
    pub(crate) pacer: Option<Box<Pacer>>,
    /// Largest number of response packets that one READ request asks for.
    pub(crate) read_limit_packets: u32,
    /// The failures that wait.
    pub(crate) failures: PendingFailures,
    /// Number of transmissions of each PSN; recorded only if the host subscribes to packets.
    pub(crate) transmissions: Transmissions,
    /// Number of unsignaled requests completed since the last completion was made.
    unreported: u32,
    /// True if it was logged that READs and atomics need another `max_rd_atomic`.
    pub(crate) doubts_depth: bool,
}

impl Requester {
    pub(crate) fn new(capacity: u32, settings: &QpSettings) -> Requester {
        let connected = settings.qp_type.is_connected();
        Requester {
            queue: SendQueue::new(capacity),
            psns: SendPsns::default(),
            position: SendPosition::default(),
            outstanding: VecDeque::new(),
            retries: Retries::default(),
            early: EarlyTimer::default(),
            fruitless: FruitlessAnswers::default(),
            window: SendWindow::new(64),
            pacer: Pacer::of(&settings.congestion).filter(|_| connected).map(Box::new),
            read_limit_packets: 64,
            failures: PendingFailures::default(),
            transmissions: Transmissions::default(),
            unreported: 0,
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
        self.psns.next_psn = sq_psn;
        self.psns.first_psn = sq_psn;
        self.fruitless.ignored_answers = IgnoredAnswers::default();
        self.psns.acked = sq_psn;
        self.psns.sent_end = sq_psn;
        self.failures.injected = None;
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
        position.since(self.psns.acked).max(0) as u32
    }

    /// Returns the PSN at the cursor.
    #[inline]
    pub(crate) fn cursor_psn(&self) -> Psn {
        match self.queue.entry(self.position.cursor) {
            Some(wqe) => wqe.span.first_psn.plus(self.position.cursor_packet),
            None => self.psns.next_psn,
        }
    }

    /// Moves the cursor back to the oldest unacknowledged packet.
    pub(crate) fn rewind(&mut self, settings: &QpSettings, why: RetransmitReason, host: &mut impl Host) {
        let (psn, packet_count) = (self.psns.acked, self.in_flight());
        host.emit(&settings.context, QpEvent::SentAgain { psn, packet_count, why });
        self.reset_cursor();
        self.outstanding.clear();
        // The local failure is found again, after the packets that are sent again now.
        self.failures.local_failure = None;
        self.window.forget_sample();
        self.position.packets_since_ack_request = 0;
    }

    /// Sets the cursor to the oldest unacknowledged packet.
    fn reset_cursor(&mut self) {
        self.position.cursor = self.queue.head();
        //= statement:19
        //| The transmission starts again at the oldest packet that is not acknowledged.
        self.position.cursor_packet = match self.queue.entry(self.position.cursor) {
            Some(wqe) if !wqe.is_local() => self.psns.acked.since(wqe.span.first_psn).max(0) as u32,
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
        for number in self.position.started..self.queue.tail() {
            let Some(wqe) = self.queue.entry_mut(number) else { break };
            if wqe.wr_id == wr_id {
                wqe.cancel();
                count += 1;
            }
            wqe.span.first_psn = psn;
            psn = wqe.end_psn();
        }
        self.psns.next_psn = psn;
        count
    }

    /// Reports whether a transmit call could send a packet (it may still find the window full).
    #[inline]
    pub(crate) fn wants_to_send(&self, draining: bool) -> bool {
        //= statement:45
        //| A queue pair in SQD starts no new message.
        let end = if draining { self.position.started } else { self.queue.tail() };
        if self.position.cursor >= end {
            return false;
        }
        let waits = self.failures.local_failure.is_some()
            || self.failures.judged.is_some()
            || self.waits_for_injected_answer();
        self.retries.rnr_until_ns.is_none() && !waits && self.held_until_ns().is_none()
    }
}
