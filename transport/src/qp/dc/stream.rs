//! A stream of an initiator: its messages leave in the order of posting, and complete in that order.

use alloc::collections::{BTreeMap, TryReserveError, VecDeque};
use core::net::IpAddr;

use super::header::{DcHeader, DcPacketKind, DcReason};
use super::message::{DcActiveMessage, DcQueuedRequest, DcSendContext};
use crate::host::{Host, Transmit};
use crate::qp::outbound::Progress;
use crate::qp::settings::QpSettings;
use crate::types::{SendFlags, WcStatus};
use crate::wire::{Psn, Qpn, rnr_timer_ns, transport_timer_ns};

/// Largest number of outstanding messages of a stream.
const MAX_ACTIVE: usize = 64;
/// Largest number of targets without outstanding messages whose next message number is remembered.
const MAX_SEQUENCES: usize = 4096;
/// Shortest timeout in nanoseconds, even with a shorter `timeout` attribute: the peer may be a process that
/// waits for a core.
const MIN_WAIT_NS: u64 = 4_000_000;
/// Largest number of times that the timeout doubles.
const MAX_DOUBLINGS: u32 = 2;

/// The numbering of the messages from a stream to a target.
#[derive(Debug, Clone, Copy)]
struct TargetSequence {
    epoch: u64,
    next: u64,
}

/// State of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamState {
    Works,
    /// A message ended in error: posted requests are flushed.
    Failed,
}

#[derive(Debug)]
pub(super) struct DcStream {
    /// Number of the stream.
    id: u16,
    waiting: VecDeque<DcQueuedRequest>,
    active: VecDeque<DcActiveMessage>,
    sequences: BTreeMap<(IpAddr, Qpn), TargetSequence>,
    /// Epoch of the newest message sequence; the next one's is larger.
    last_epoch: u64,
    pub(super) state: StreamState,
    /// Number of requests of all streams that ended without a completion since the last one; set by the
    /// initiator for each call.
    pub(super) unreported: u32,
    /// Time at which unanswered parts are sent again.
    deadline_ns: u64,
    /// Time before which no part is sent; 0 for no such time.
    held_until_ns: u64,
    repetitions: u32,
    /// Message and part that the target reported as missing, so that they are sent again only once.
    last_go_back: Option<(u64, u32)>,
}

impl DcStream {
    pub(super) fn new(id: u16) -> DcStream {
        DcStream {
            id,
            waiting: VecDeque::new(),
            active: VecDeque::new(),
            sequences: BTreeMap::new(),
            last_epoch: 0,
            state: StreamState::Works,
            unreported: 0,
            deadline_ns: u64::MAX,
            held_until_ns: 0,
            repetitions: 0,
            last_go_back: None,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.waiting.len() + self.active.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    pub(super) fn post(&mut self, waiting: DcQueuedRequest) -> Result<(), TryReserveError> {
        self.waiting.try_reserve(1)?;
        self.waiting.push_back(waiting);
        Ok(())
    }

    /// Makes the stream work again: what it sends from now on is independent of what was before.
    pub(super) fn reset(&mut self) {
        self.state = StreamState::Works;
        self.sequences.clear();
        (self.held_until_ns, self.repetitions, self.last_go_back) = (0, 0, None);
    }

    /// Reports whether a part that was not sent may be sent now.
    pub(super) fn wants_to_send(&self) -> bool {
        if self.held_until_ns != 0 {
            return false;
        }
        let may_begin = self.waiting.front().is_some_and(|waiting| self.admits(waiting));
        may_begin || self.active.iter().any(DcActiveMessage::has_unsent)
    }

    /// Counts the parts that were sent and not answered.
    pub(super) fn parts_under_way(&self) -> u32 {
        self.active.iter().map(DcActiveMessage::parts_under_way).sum()
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        if self.active.is_empty() {
            return None;
        }
        Some(if self.held_until_ns != 0 { self.held_until_ns } else { self.deadline_ns })
    }

    /// Reports whether a request may be started now: requests to another target have to be answered first.
    fn admits(&self, waiting: &DcQueuedRequest) -> bool {
        let same = |active: &DcActiveMessage| active.is_to(&waiting.to);
        self.active.len() < MAX_ACTIVE && self.active.back().is_none_or(same)
    }

    fn activate(&mut self, settings: &QpSettings, now_ns: u64) {
        while self.waiting.front().is_some_and(|waiting| self.admits(waiting)) {
            let Some(waiting) = self.waiting.pop_front() else { return };
            let name = (waiting.to.path.flow.destination, waiting.to.qpn);
            if self.sequences.len() >= MAX_SEQUENCES && !self.sequences.contains_key(&name) {
                // Only the newest target has outstanding messages: a message to another waits for the
                // answers.
                self.sequences.clear();
            }
            let epoch = now_ns.max(self.last_epoch + 1);
            let sequence = self.sequences.entry(name).or_insert(TargetSequence { epoch, next: 0 });
            self.last_epoch = self.last_epoch.max(sequence.epoch);
            if self.active.is_empty() {
                self.deadline_ns = now_ns.saturating_add(wait_ns(settings, 0));
                (self.repetitions, self.last_go_back) = (0, None);
            }
            self.active.push_back(DcActiveMessage::new(settings, waiting, (sequence.epoch, sequence.next)));
            sequence.next += 1;
        }
    }

    pub(super) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        (draining, now_ns): (bool, u64),
        room_parts: &mut u32,
        next_psn: &mut Psn,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        if !draining {
            self.activate(settings, now_ns);
        }
        if self.held_until_ns != 0 {
            return Progress::Idle;
        }
        let (mut returning, most_returning) = (0, settings.read_depth());
        let floor = self.active.front().map_or(0, |oldest| oldest.number());
        for active in &mut self.active {
            if active.has_failed() {
                break;
            }
            if active.returns() && !active.has_ended() {
                returning += 1;
            }
            let is_fenced =
                active.flags().contains(SendFlags::FENCE) && returning > usize::from(active.returns());
            if !active.has_begun() && (is_fenced || (active.returns() && returning > most_returning)) {
                break;
            }
            let (stream, transmission) = (self.id, self.repetitions + 1);
            let mut turn = DcSendContext { settings, stream, floor, room_parts, next_psn, transmission };
            match active.transmit(&mut turn, host, sink) {
                Ok(Progress::Blocked) => return Progress::Blocked,
                Ok(Progress::Idle) => {}
                Err(_) => {
                    active.fail(WcStatus::LocProtErr);
                    break;
                }
            }
            if active.has_unsent() {
                // Later parts would arrive out of turn.
                break;
            }
        }
        self.retire(settings, host);
        Progress::Idle
    }

    /// Completes the messages at the front that have ended.
    fn retire<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        while self.state == StreamState::Works {
            let Some(status) = self.active.front().and_then(DcActiveMessage::ending) else { return };
            let Some(active) = self.active.pop_front() else { return };
            let status = active.judged(settings, status, host);
            active.complete(settings, status, &mut self.unreported, host);
            if status != WcStatus::Success {
                self.fail(settings, host);
            }
        }
    }

    /// Fails the stream because a message ended in error: all later requests are flushed.
    fn fail<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        self.state = StreamState::Failed;
        self.flush(settings, host);
    }

    pub(super) fn flush<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        let active = core::mem::take(&mut self.active).into_iter();
        let waiting = core::mem::take(&mut self.waiting).into_iter();
        let waiting = waiting.map(|waiting| DcActiveMessage::new(settings, waiting, (0, 0)));
        for active in active.chain(waiting) {
            active.complete(settings, WcStatus::WrFlushErr, &mut self.unreported, host);
        }
        self.deadline_ns = u64::MAX;
    }

    /// Handles an answer.
    pub(super) fn handle<H: Host>(
        &mut self,
        settings: &QpSettings,
        from: (IpAddr, Qpn),
        (header, data): (&DcHeader, &[u8]),
        now_ns: u64,
        host: &mut H,
    ) {
        let is_of_it = |active: &DcActiveMessage| active.is_of(from, header.epoch);
        if !self.active.front().is_some_and(is_of_it) {
            return;
        }
        let mut is_news = false;
        if matches!(
            header.kind,
            DcPacketKind::Ack | DcPacketKind::Behind | DcPacketKind::NotReady | DcPacketKind::Refused
        ) {
            for active in &mut self.active {
                is_news |= active.handle_progress(header.message, header.part);
            }
        }
        let concerned = self.active.iter_mut().find(|active| active.number() == header.message);
        match (header.kind, concerned) {
            (DcPacketKind::Data | DcPacketKind::Value, Some(active)) => {
                is_news |= active.store(settings, header, data, host);
            }
            (DcPacketKind::Refused, Some(active)) => {
                is_news = true;
                active.fail(DcReason::of(header.reason).status());
            }
            (DcPacketKind::NotReady, Some(active)) if self.held_until_ns == 0 => {
                if active.waits_for_receive() {
                    self.held_until_ns = now_ns.saturating_add(rnr_timer_ns(header.rnr_timer));
                } else {
                    active.fail(WcStatus::RnrRetryExcErr);
                }
                is_news = true;
                self.go_back(header.message);
            }
            (DcPacketKind::Behind, _) if self.last_go_back != Some((header.message, header.part)) => {
                self.last_go_back = Some((header.message, header.part));
                self.go_back(header.message);
            }
            _ => {}
        }
        if is_news {
            self.repetitions = 0;
            self.deadline_ns = now_ns.saturating_add(wait_ns(settings, 0));
        }
        self.retire(settings, host);
    }

    /// Sends everything from a message on again, except what has come back.
    fn go_back(&mut self, message: u64) {
        self.active.iter_mut().filter(|active| active.number() >= message).for_each(DcActiveMessage::go_back);
    }

    pub(super) fn handle_timeout<H: Host>(&mut self, settings: &QpSettings, now_ns: u64, host: &mut H) {
        if self.held_until_ns != 0 {
            if self.held_until_ns <= now_ns {
                self.held_until_ns = 0;
                self.deadline_ns = now_ns.saturating_add(wait_ns(settings, 0));
            }
            return;
        }
        if self.active.is_empty() || self.deadline_ns > now_ns {
            return;
        }
        self.repetitions += 1;
        self.last_go_back = None;
        if self.repetitions > settings.retry_count.into() {
            if let Some(oldest) = self.active.front_mut() {
                oldest.fail(WcStatus::RetryExcErr);
            }
            self.retire(settings, host);
            return;
        }
        self.go_back(0);
        self.deadline_ns = now_ns.saturating_add(wait_ns(settings, self.repetitions));
    }
}

/// Returns the timeout for an answer in nanoseconds.
fn wait_ns(settings: &QpSettings, repetitions: u32) -> u64 {
    let Some(timer_ns) = transport_timer_ns(settings.timeout) else { return u64::MAX };
    timer_ns.max(MIN_WAIT_NS).saturating_mul(1 << repetitions.min(MAX_DOUBLINGS))
}
