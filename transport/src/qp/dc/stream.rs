//! A stream of an initiator: its messages leave in the order of posting, and complete in it.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;

use super::header::{Header, Kind, Reason};
use super::message::{Active, Turn, Waiting};
use crate::host::{Host, Transmit};
use crate::qp::outbound::Progress;
use crate::qp::settings::Settings;
use crate::types::{SendFlags, WcStatus};
use crate::wire::{Psn, Qpn, rnr_timer_ns, transport_timer_ns};

/// Messages of a stream that are under way at once.
const MOST_ACTIVE: usize = 64;
/// Targets of which the next message's number is kept, where no message is under way.
const MOST_WAYS: usize = 4096;
/// The shortest wait for an answer, also with a shorter `timeout`: a peer may be a process that waits for a
/// core.
const LEAST_WAIT_NS: u64 = 4_000_000;
/// The wait doubles as often as this.
const MOST_DOUBLINGS: u32 = 2;

/// The numbers of messages from a stream to a target.
#[derive(Debug, Clone, Copy)]
struct Way {
    epoch: u64,
    next: u64,
}

/// What becomes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Works,
    /// A message ended in error: what is posted is flushed.
    Failed,
}

#[derive(Debug)]
pub(super) struct Stream {
    /// Its number.
    id: u16,
    waiting: VecDeque<Waiting>,
    active: VecDeque<Active>,
    ways: BTreeMap<(IpAddr, Qpn), Way>,
    /// Of the newest way; the next one's is larger.
    last_epoch: u64,
    pub(super) state: State,
    /// Requests of all streams that ended without a completion since the last one: lent by the initiator.
    pub(super) unreported: u32,
    /// When what is not answered is sent again.
    deadline_ns: u64,
    /// Nothing is sent before; 0: it may be.
    held_until_ns: u64,
    repetitions: u32,
    /// Where the target said that something is missing, so that it is sent again once.
    went_back_to: Option<(u64, u32)>,
}

impl Stream {
    pub(super) fn new(id: u16) -> Stream {
        Stream {
            id,
            waiting: VecDeque::new(),
            active: VecDeque::new(),
            ways: BTreeMap::new(),
            last_epoch: 0,
            state: State::Works,
            unreported: 0,
            deadline_ns: u64::MAX,
            held_until_ns: 0,
            repetitions: 0,
            went_back_to: None,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.waiting.len() + self.active.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    pub(super) fn post(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// It works again: what it sends from now on has nothing to do with what was before.
    pub(super) fn reset(&mut self) {
        self.state = State::Works;
        self.ways.clear();
        (self.held_until_ns, self.repetitions, self.went_back_to) = (0, 0, None);
    }

    /// Whether something may leave that has not left.
    pub(super) fn wants_to_send(&self) -> bool {
        if self.held_until_ns != 0 {
            return false;
        }
        let may_begin = self.waiting.front().is_some_and(|waiting| self.admits(waiting));
        may_begin || self.active.iter().any(Active::has_unsent)
    }

    /// Parts that were sent and not answered.
    pub(super) fn parts_under_way(&self) -> u32 {
        self.active.iter().map(Active::parts_under_way).sum()
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        if self.active.is_empty() {
            return None;
        }
        Some(if self.held_until_ns != 0 { self.held_until_ns } else { self.deadline_ns })
    }

    /// Whether a request may come under way now: those to another target have to be answered first.
    fn admits(&self, waiting: &Waiting) -> bool {
        let same = |active: &Active| active.is_to(&waiting.to);
        self.active.len() < MOST_ACTIVE && self.active.back().is_none_or(same)
    }

    fn activate(&mut self, settings: &Settings, now_ns: u64) {
        while self.waiting.front().is_some_and(|waiting| self.admits(waiting)) {
            let Some(waiting) = self.waiting.pop_front() else { return };
            let name = (waiting.to.path.flow.destination, waiting.to.qpn);
            if self.ways.len() >= MOST_WAYS && !self.ways.contains_key(&name) {
                // Nothing is under way to any but the newest: a message to another waits for the answers.
                self.ways.clear();
            }
            let epoch = now_ns.max(self.last_epoch + 1);
            let way = self.ways.entry(name).or_insert(Way { epoch, next: 0 });
            self.last_epoch = self.last_epoch.max(way.epoch);
            if self.active.is_empty() {
                self.deadline_ns = now_ns.saturating_add(wait_ns(settings, 0));
                (self.repetitions, self.went_back_to) = (0, None);
            }
            self.active.push_back(Active::new(settings, waiting, (way.epoch, way.next)));
            way.next += 1;
        }
    }

    pub(super) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
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
            let mut turn = Turn { settings, stream, floor, room_parts, next_psn, transmission };
            match active.transmit(&mut turn, host, sink) {
                Ok(Progress::Blocked) => return Progress::Blocked,
                Ok(Progress::Idle) => {}
                Err(_) => {
                    active.fail(WcStatus::LocProtErr);
                    break;
                }
            }
            if active.has_unsent() {
                // What follows would arrive before its turn.
                break;
            }
        }
        self.retire(settings, host);
        Progress::Idle
    }

    /// Messages at the front that have ended complete.
    fn retire<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        while self.state == State::Works {
            let Some(status) = self.active.front().and_then(Active::ending) else { return };
            let Some(active) = self.active.pop_front() else { return };
            let status = active.judged(settings, status, host);
            active.complete(settings, status, &mut self.unreported, host);
            if status != WcStatus::Success {
                self.fail(settings, host);
            }
        }
    }

    /// A message ended in error: everything behind it is flushed.
    fn fail<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        self.state = State::Failed;
        self.flush(settings, host);
    }

    pub(super) fn flush<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        let active = core::mem::take(&mut self.active).into_iter();
        let waiting = core::mem::take(&mut self.waiting).into_iter();
        let waiting = waiting.map(|waiting| Active::new(settings, waiting, (0, 0)));
        for active in active.chain(waiting) {
            active.complete(settings, WcStatus::WrFlushErr, &mut self.unreported, host);
        }
        self.deadline_ns = u64::MAX;
    }

    /// An answer came.
    pub(super) fn handle<H: Host>(
        &mut self,
        settings: &Settings,
        from: (IpAddr, Qpn),
        (header, data): (&Header, &[u8]),
        now_ns: u64,
        host: &mut H,
    ) {
        let is_of_it = |active: &Active| active.is_of(from, header.epoch);
        if !self.active.front().is_some_and(is_of_it) {
            return;
        }
        let mut is_news = false;
        if matches!(header.kind, Kind::Ack | Kind::Behind | Kind::NotReady | Kind::Refused) {
            for active in &mut self.active {
                is_news |= active.hear(header.message, header.part);
            }
        }
        let concerned = self.active.iter_mut().find(|active| active.number() == header.message);
        match (header.kind, concerned) {
            (Kind::Data | Kind::Value, Some(active)) => {
                is_news |= active.store(settings, header, data, host);
            }
            (Kind::Refused, Some(active)) => {
                is_news = true;
                active.fail(Reason::of(header.reason).status());
            }
            (Kind::NotReady, Some(active)) if self.held_until_ns == 0 => {
                if active.waits_for_receive() {
                    self.held_until_ns = now_ns.saturating_add(rnr_timer_ns(header.rnr_timer));
                } else {
                    active.fail(WcStatus::RnrRetryExcErr);
                }
                is_news = true;
                self.go_back(header.message);
            }
            (Kind::Behind, _) if self.went_back_to != Some((header.message, header.part)) => {
                self.went_back_to = Some((header.message, header.part));
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

    /// Everything from a message on is sent again, but for what has come back.
    fn go_back(&mut self, message: u64) {
        self.active.iter_mut().filter(|active| active.number() >= message).for_each(Active::go_back);
    }

    pub(super) fn handle_timeout<H: Host>(&mut self, settings: &Settings, now_ns: u64, host: &mut H) {
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
        self.went_back_to = None;
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

/// How long to wait for an answer.
fn wait_ns(settings: &Settings, repetitions: u32) -> u64 {
    let Some(timer_ns) = transport_timer_ns(settings.timeout) else { return u64::MAX };
    timer_ns.max(LEAST_WAIT_NS).saturating_mul(1 << repetitions.min(MOST_DOUBLINGS))
}
