//! The check for connections of which the program resets one end, connects that end again, and leaves the
//! other end as it was.

use std::collections::BTreeMap;

use pumice_model::event::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::types::{Cause, DropReason, Peer, QpState, WcStatus};
use pumice_transport::wire::{NakCode, Syndrome};

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::RESET_AT_ONE_END;
use crate::check::notified::{Check, Hint, PerQueue, QueueName};
use crate::check::queues::Modified;

/// Maximum number of connected pairs of queue pairs that are remembered.
const MAX_PAIRS: usize = 1 << 12;

/// The check for a queue pair that was reset and connected again while packets show that its peer was not. It
/// is reported once for each queue pair.
#[derive(Debug, Default)]
pub(super) struct OneSidedResets {
    queue_pairs: PerQueue<ResetState>,
    /// Numbers of resets of both ends of a connection when both were last known to be connected. The key is
    /// the two queue pair numbers, the lower one first, and the value has the same order.
    pairs: BTreeMap<(u32, u32), (u32, u32)>,
    /// True once a queue pair was reset: posts need not be recorded before that.
    has_resets: bool,
}

#[derive(Debug, Default)]
struct ResetState {
    resets: u32,
    /// The peer that the queue pair was connected to before it was reset.
    before: Option<Peer>,
    /// The peer that the queue pair is connected to now.
    now: Option<Peer>,
    /// True if a request was posted since the queue pair was last reset and its peer last went to RTR.
    has_posted: bool,
    is_reported: bool,
}

impl ResetState {
    /// Reports whether the queue pair was reset and then connected to the same peer as before.
    fn is_connected_again(&self) -> bool {
        let of = |peer: &Option<Peer>| peer.as_ref().map(|peer| (peer.qpn, peer.address));
        self.resets > 0 && self.now.is_some() && of(&self.now) == of(&self.before)
    }
}

impl Check for OneSidedResets {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queue_pairs.forget(of);
        match of {
            Some(QueueName::Qp(number)) => {
                self.pairs.retain(|(low, high), _| *low != number && *high != number)
            }
            Some(_) => {}
            None => self.pairs.clear(),
        }
    }

    fn state_changed(&mut self, context: &mut CheckContext, number: u32, to: QpState, peer: Option<Peer>) {
        if !context.qps.contains_key(&number) {
            return;
        }
        let own = self.queue_pairs.of(QueueName::Qp(number));
        match to {
            QpState::Reset => {
                self.has_resets = true;
                own.has_posted = false;
                own.resets = own.resets.saturating_add(1);
                own.before = own.now.take().or(own.before.take());
            }
            QpState::Rtr if peer.is_some() => own.now = peer,
            _ => {}
        }
    }

    fn qp_modified(&mut self, context: &mut CheckContext, modified: &Modified<'_>) {
        if modified.facts.is_done && modified.to == Some(QpState::Rtr) {
            self.note_pair(context, modified.number);
        }
    }

    fn send_posted(&mut self, _: &mut CheckContext, number: u32, _: bool) {
        if self.has_resets {
            self.queue_pairs.of(QueueName::Qp(number)).has_posted = true;
        }
    }

    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        let Event::Qp { qp, event } = event else { return };
        if !self.has_resets {
            return;
        }
        let number = qp.qpn.value();
        match event {
            QpEvent::OutOfSequence { .. }
            | QpEvent::DuplicateRequest { .. }
            | QpEvent::NakReceived { syndrome: Syndrome::Nak(NakCode::Sequence), .. } => {
                self.check_pair(context, number);
            }
            QpEvent::Logged(Cause::PacketDropped {
                reason: DropReason::BeforeStart { .. } | DropReason::BeyondStart { .. },
                ..
            }) => {
                self.check_pair(context, number);
                self.check_peer(context, number, "what the peer sends does not begin at its rq_psn");
            }
            _ => {}
        }
    }

    fn logged(&mut self, context: &mut CheckContext, number: u32, cause: &Cause, _: Option<&Hint>) {
        let Cause::SendFailed(failed) = cause else { return };
        if failed.status != WcStatus::RetryExcErr || failed.was_acknowledged {
            return;
        }
        self.check_pair(context, number);
        // A peer that does not answer at all may have died.
        if failed.ignored_answers.answers > 0 {
            let sign = "the peer's answers have acknowledged nothing of what it has sent since";
            self.check_peer(context, number, sign);
        }
    }
}

/// Returns the key of a pair, and whether the first number is the lower one.
const fn key_of(one: u32, other: u32) -> ((u32, u32), bool) {
    if one <= other { ((one, other), true) } else { ((other, one), false) }
}

impl OneSidedResets {
    /// Returns the other end of a connection and the numbers of resets of both ends, this one first; `None`
    /// if the other end is in another process.
    fn resets_of(&mut self, context: &CheckContext, number: u32) -> Option<(u32, (u32, u32))> {
        let other = context.qps.get(&number).filter(|qp| qp.peer_is_here)?.destination?;
        let is_mutual = context.qps.get(&other)?.destination == Some(number);
        let of = |per_queue: &mut PerQueue<ResetState>, number| per_queue.of(QueueName::Qp(number)).resets;
        let both = (of(&mut self.queue_pairs, number), of(&mut self.queue_pairs, other));
        is_mutual.then_some((other, both))
    }

    /// Handles a queue pair that was connected. If its peer is connected too, the two are recorded as a pair;
    /// a known pair is updated if both ends were reset since.
    fn note_pair(&mut self, context: &CheckContext, number: u32) {
        let Some((other, (own, its))) = self.resets_of(context, number) else { return };
        self.queue_pairs.of(QueueName::Qp(other)).has_posted = false;
        let receives =
            |qp: u32| context.qps.get(&qp).is_some_and(|qp| matches!(qp.state, QpState::Rtr | QpState::Rts));
        if other == number || !receives(other) || self.pairs.len() >= MAX_PAIRS {
            return;
        }
        let (key, is_first) = key_of(number, other);
        let now = if is_first { (own, its) } else { (its, own) };
        let known = self.pairs.entry(key).or_insert(now);
        if now.0 > known.0 && now.1 > known.1 {
            *known = now;
        }
    }

    /// Handles packets that do not fit the state of a queue pair: reports the end that was reset alone, if
    /// both ends are in this process.
    fn check_pair(&mut self, context: &mut CheckContext, number: u32) {
        let Some((other, (own, its))) = self.resets_of(context, number) else { return };
        let (key, is_first) = key_of(number, other);
        let Some(known) = self.pairs.get(&key).copied() else { return };
        let (own_known, its_known) = if is_first { known } else { (known.1, known.0) };
        let (reset, left) = match (own > own_known, its > its_known) {
            (true, false) => (number, other),
            (false, true) => (other, number),
            _ => return,
        };
        let has_posted =
            |per_queue: &mut PerQueue<ResetState>, number| per_queue.of(QueueName::Qp(number)).has_posted;
        let is_news = has_posted(&mut self.queue_pairs, reset) || has_posted(&mut self.queue_pairs, left);
        let record = self.queue_pairs.of(QueueName::Qp(reset));
        if !is_news || record.now.is_none() || std::mem::replace(&mut record.is_reported, true) {
            return;
        }
        let (Some(reset), Some(left)) = (context.qps.get(&reset), context.qps.get(&left)) else { return };
        let numbers = format!(
            "{} was reset and connected again, here; its peer, {}, was not: it counts PSNs on from before, \
             and takes what comes for repetitions, or for what follows a gap",
            reset.name, left.name
        );
        let related = vec![related(format!("{} was connected here", left.name), &left.calls.to_rtr)];
        let (object, stack) = (reset.name.clone(), reset.calls.to_rtr.clone());
        context.found(&RESET_AT_ONE_END, FindingParts { object, numbers, stack, related });
    }

    /// Handles a sign that the peer of a queue pair, in another process, does not know that this end was
    /// reset: reports it if this end was reset and connected to the same peer again.
    fn check_peer(&mut self, context: &mut CheckContext, number: u32, sign: &str) {
        let Some(qp) = context.qps.get(&number).filter(|qp| !qp.peer_is_here) else { return };
        let own = self.queue_pairs.of(QueueName::Qp(number));
        if !own.is_connected_again() || std::mem::replace(&mut own.is_reported, true) {
            return;
        }
        let numbers = format!(
            "{} was reset and connected again to the queue pair that was its peer before, and {sign}: was \
             the other end reset as well?",
            qp.name
        );
        let related = vec![related(format!("{} was made here", qp.name), &qp.calls.made)];
        let (object, stack) = (qp.name.clone(), qp.calls.to_rtr.clone());
        context.found(&RESET_AT_ONE_END, FindingParts { object, numbers, stack, related });
    }
}
