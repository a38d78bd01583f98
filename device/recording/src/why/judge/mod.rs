//! Decides why a message took its time, stretch by stretch, by what the traces have as evidence.

mod failed;
mod lost;
mod paths;
mod waits;

use std::collections::HashMap;

use pumice_transport::types::SendOpcode;

use super::cause::{CauseKind, MessageCause, time};
use super::fact_index::{FactIndex, LastingFaultMatch, cause_of};
use super::loss::{MessageIndex, Owner};
use super::timeline_index::{QpIndex, TimelineIndex};
use super::times::{PartKind, TimeSpan, duration_ns, spans};
use crate::format::TracedFaultAction;
use crate::timeline::{Message, SetbackKind, Timeline, TimelineProcess, TracedQueuePair};

/// Maximum number of messages over which a cause is followed from one to another.
const DEPTH: u8 = 32;

/// Maximum number of earlier messages that are examined.
const REACH: usize = 1 << 12;

/// The verdict on a message: why it took its time, and which stretches of time the cause took.
#[derive(Debug, Clone)]
pub(super) struct CauseVerdict {
    pub(super) cause: MessageCause,
    pub(super) ns: u64,
    pub(super) stretches: Vec<(u64, u64)>,
}

/// Judges messages of a timeline, each once.
pub(super) struct Judge<'a> {
    timeline: &'a Timeline,
    pub(super) timeline_index: &'a TimelineIndex<'a>,
    fact_index: &'a FactIndex<'a>,
    known: HashMap<MessageIndex, CauseVerdict>,
}

/// A message and its position.
#[derive(Clone, Copy)]
struct JudgedMessage<'a> {
    index: MessageIndex,
    owner: Owner<'a>,
    process: &'a TimelineProcess,
    qp: &'a TracedQueuePair,
    found: &'a QpIndex<'a>,
    message: &'a Message,
    end_ns: u64,
}

impl JudgedMessage<'_> {
    /// Reports whether the peer had no receive request before and after a stretch of time.
    fn is_refused_in(&self, span: &TimeSpan) -> bool {
        let mut refused = self
            .message
            .setbacks
            .iter()
            .filter(|one| one.is_own && matches!(one.kind, SetbackKind::ReceiverNotReady { .. }));
        let first = refused.next().is_some_and(|one| one.at_ns <= span.from_ns);
        first && refused.next_back().is_some_and(|one| one.at_ns >= span.to_ns)
    }
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        timeline: &'a Timeline,
        timeline_index: &'a TimelineIndex<'a>,
        fact_index: &'a FactIndex<'a>,
    ) -> Judge<'a> {
        Judge { timeline, timeline_index, fact_index, known: HashMap::new() }
    }

    /// Judges why the message at this index took its time, or failed.
    pub(super) fn judge(&mut self, index: MessageIndex) -> Option<CauseVerdict> {
        self.judge_within(index, DEPTH)
    }

    fn case(&self, index: MessageIndex) -> Option<JudgedMessage<'a>> {
        let process = self.timeline.processes.get(index.0)?;
        let qp = process.queue_pairs.get(index.1)?;
        let message = qp.messages.get(index.2)?;
        let owner = Owner {
            timeline: self.timeline,
            timeline_index: self.timeline_index,
            process: index.0,
            queue_pair: index.1,
        };
        let end_ns = message.posted_ns.saturating_add(duration_ns(process, message));
        let found = owner.found()?;
        Some(JudgedMessage { index, owner, process, qp, found, message, end_ns })
    }

    fn judge_within(&mut self, index: MessageIndex, depth: u8) -> Option<CauseVerdict> {
        if let Some(known) = self.known.get(&index) {
            return Some(known.clone());
        }
        let case = self.case(index)?;
        let judgement = self.decide(&case, depth);
        self.known.insert(index, judgement.clone());
        Some(judgement)
    }

    fn decide(&mut self, case: &JudgedMessage<'a>, depth: u8) -> CauseVerdict {
        let mut all: Vec<CauseVerdict> = Vec::new();
        for span in spans(case.message, case.end_ns) {
            let (cause, ns) = self.of_span(case, &span, depth);
            // A stall explains only its own length.
            let from_ns =
                if cause.kind == CauseKind::Scheduler { span.to_ns.saturating_sub(ns) } else { span.from_ns };
            let stretch = (from_ns, span.to_ns);
            match all.iter_mut().find(|one| one.cause.is_same(&cause)) {
                Some(one) => {
                    one.ns = one.ns.saturating_add(ns);
                    one.stretches.push(stretch);
                }
                None => all.push(CauseVerdict { cause, ns, stretches: vec![stretch] }),
            }
        }
        let whole = || vec![(case.message.posted_ns, case.end_ns)];
        let whole_ns = case.end_ns.saturating_sub(case.message.posted_ns);
        if let Some(cause) = self.of_failure(case, &all) {
            return CauseVerdict { cause, ns: whole_ns, stretches: whole() };
        }
        // A planned cause goes before an observed one, if its time is long enough to report.
        let best = |planned: bool| {
            let fits = all.iter().filter(|one| one.cause.rule.is_some() == planned);
            fits.max_by_key(|one| one.ns)
        };
        let planned = best(true).filter(|one| one.ns >= whole_ns / 8);
        planned.or_else(|| best(false)).or_else(|| best(true)).cloned().unwrap_or_else(|| CauseVerdict {
            cause: MessageCause::new(CauseKind::Network, case.index.0, "nothing held it up"),
            ns: 0,
            stretches: whole(),
        })
    }

    /// Returns the cause of a stretch of a message's time, and how much of the stretch it took.
    fn of_span(&mut self, case: &JudgedMessage<'a>, span: &TimeSpan, depth: u8) -> (MessageCause, u64) {
        let stretch = (span.from_ns, span.to_ns);
        let process = case.index.0;
        if let Some(cause) = self.of_incident(case, stretch, None) {
            return (cause, span.ns());
        }
        let of_calls = [TracedFaultAction::CallSlowed];
        let of_polls =
            [TracedFaultAction::CallSlowed, TracedFaultAction::EventLate, TracedFaultAction::EventsMerged];
        let kinds: &[TracedFaultAction] = if span.kind == PartKind::Poll { &of_polls } else { &of_calls };
        let slowed = self.fact_index.lasting(process, stretch, |fact| kinds.contains(&fact.what));
        if let Some(LastingFaultMatch { fact, ns, .. }) = slowed.filter(|one| one.ns >= span.ns() / 2) {
            return (cause_of(fact, process), ns);
        }
        let cause = match span.kind {
            PartKind::SendQueue => self.of_send_queue(case, span, depth),
            PartKind::Timeout | PartKind::Silence | PartKind::Loss => self.of_loss(case, span, depth),
            PartKind::ReceiverNotReady => self.of_receiver(case, span, depth),
            PartKind::PeerStarved => {
                let sentence = format!("the peer's process had no processor for {}", time(span.ns()));
                MessageCause::new(CauseKind::PeerStarved, process, sentence)
            }
            PartKind::Network if case.is_refused_in(span) => self.of_receiver(case, span, depth),
            PartKind::Network => self.of_network(case, span),
            PartKind::Completion => self.of_completion(case, span, depth),
            PartKind::Poll => {
                let sentence =
                    format!("the completion was there, and the program polled it {} later", time(span.ns()));
                MessageCause::new(CauseKind::PollsLate, process, sentence)
            }
        };
        self.or_scheduler(case, span, cause)
    }

    /// Replaces a cause that is the program's, or unknown, by the scheduler if the process had no processor.
    fn or_scheduler(
        &self,
        case: &JudgedMessage<'a>,
        span: &TimeSpan,
        cause: MessageCause,
    ) -> (MessageCause, u64) {
        let is_open = cause.kind.is_ordinary()
            || matches!(cause.kind, CauseKind::PollsLate | CauseKind::PeerSilent | CauseKind::LossUnknown);
        if cause.rule.is_some() || !is_open {
            return (cause, span.ns());
        }
        let stretch = (span.from_ns, span.to_ns);
        let peer = case.owner.peer().map_or(case.index.0, |peer| peer.process);
        let longest =
            [case.index.0, peer].map(|process| (self.fact_index.stalled_ns(process, stretch), process));
        let ((ns, whole_ns), process) = longest.into_iter().max().unwrap_or(((0, 0), case.index.0));
        if ns < span.ns() / 2 || ns == 0 {
            return (cause, span.ns());
        }
        let name = self.timeline.processes.get(process).map(|one| &one.header);
        let name = name.map_or_else(String::new, |header| format!("{} {}", header.program, header.process));
        let sentence = format!(
            "the process ({name}) had no processor for {} (stopped, or the scheduler ran others): it went on \
             so much later than it meant to",
            time(whole_ns)
        );
        (MessageCause::new(CauseKind::Scheduler, process, sentence), ns)
    }
}

fn needs_response(opcode: u8) -> bool {
    SendOpcode::from_number(u32::from(opcode)).is_some_and(|opcode| opcode.info().needs_response())
}
