//! Decides why a message took its time, stretch by stretch, by what the traces have as evidence.

use std::collections::HashMap;

use pumice_ground::link_words::LinkSettings;
use pumice_transport::types::SendOpcode;

use super::cause::{Cause, CauseKind};
use super::clues::{Clues, Lasting, cause_of};
use super::loss::{Arrows, Fate, Owner};
use super::story::MessageIndex;
use super::times::{PartKind, Span, duration_ns, spans};
use super::words::time;
use crate::trace::fault_detail::FaultWhat;
use crate::trace::timeline::{
    CongestionKind, FaultFact, Message, MomentKind, QueuePair, Setback, SetbackKind, Timeline,
    TimelineProcess,
};

/// How far one message's cause is followed to another's.
const DEPTH: u8 = 32;
/// Messages before one that are looked at.
const REACH: usize = 1 << 12;
/// Congestion is remembered for so long.
const CONGESTED_NS: u64 = 20_000_000;
/// Bytes that a packet has beside its payload, on a link, at least.
const HEADER_BYTES: u64 = 70;
/// The status of a request that was not executed, because one before it failed.
const FLUSHED: u8 = 5;
/// The status of a request to which no answer came.
const RETRIES_USED_UP: u8 = 12;
/// The status of a request for which the peer had no receive request.
const RECEIVER_NOT_READY: u8 = 13;

/// Why a message took its time, and which stretches of time the cause took.
#[derive(Debug, Clone)]
pub(super) struct Judgement {
    pub(super) cause: Cause,
    pub(super) ns: u64,
    pub(super) stretches: Vec<(u64, u64)>,
}

/// Judges messages of a timeline, each once.
pub(super) struct Judge<'a> {
    timeline: &'a Timeline,
    pub(super) arrows: &'a Arrows,
    clues: &'a Clues<'a>,
    known: HashMap<MessageIndex, Judgement>,
}

/// A message and where it is.
#[derive(Clone, Copy)]
struct Case<'a> {
    index: MessageIndex,
    owner: Owner<'a>,
    process: &'a TimelineProcess,
    qp: &'a QueuePair,
    message: &'a Message,
    end_ns: u64,
}

impl<'a> Judge<'a> {
    pub(super) fn new(timeline: &'a Timeline, arrows: &'a Arrows, clues: &'a Clues<'a>) -> Judge<'a> {
        Judge { timeline, arrows, clues, known: HashMap::new() }
    }

    /// Why the message at this index took its time, or failed.
    pub(super) fn judge(&mut self, index: MessageIndex) -> Option<Judgement> {
        self.judge_within(index, DEPTH)
    }

    fn case(&self, index: MessageIndex) -> Option<Case<'a>> {
        let process = self.timeline.processes.get(index.0)?;
        let qp = process.queue_pairs.get(index.1)?;
        let message = qp.messages.get(index.2)?;
        let owner =
            Owner { timeline: self.timeline, arrows: self.arrows, process: index.0, queue_pair: index.1 };
        let end_ns = message.posted_ns.saturating_add(duration_ns(process, message));
        Some(Case { index, owner, process, qp, message, end_ns })
    }

    fn judge_within(&mut self, index: MessageIndex, depth: u8) -> Option<Judgement> {
        if let Some(known) = self.known.get(&index) {
            return Some(known.clone());
        }
        let case = self.case(index)?;
        let judgement = self.decide(&case, depth);
        self.known.insert(index, judgement.clone());
        Some(judgement)
    }

    fn decide(&mut self, case: &Case<'a>, depth: u8) -> Judgement {
        let mut all: Vec<Judgement> = Vec::new();
        for span in spans(case.message, case.end_ns) {
            let (cause, ns) = self.of_span(case, &span, depth);
            let stretch = (span.from_ns, span.to_ns);
            match all.iter_mut().find(|one| one.cause.is_same(&cause)) {
                Some(one) => {
                    one.ns = one.ns.saturating_add(ns);
                    one.stretches.push(stretch);
                }
                None => all.push(Judgement { cause, ns, stretches: vec![stretch] }),
            }
        }
        let whole = || vec![(case.message.posted_ns, case.end_ns)];
        let whole_ns = case.end_ns.saturating_sub(case.message.posted_ns);
        if let Some(cause) = self.of_failure(case, &all) {
            return Judgement { cause, ns: whole_ns, stretches: whole() };
        }
        // What is known to have been made on purpose goes before what is only seen, if it is worth a word.
        let best = |planned: bool| {
            let fits = all.iter().filter(|one| one.cause.rule.is_some() == planned);
            fits.max_by_key(|one| one.ns)
        };
        let planned = best(true).filter(|one| one.ns >= whole_ns / 8);
        planned.or_else(|| best(false)).or_else(|| best(true)).cloned().unwrap_or_else(|| Judgement {
            cause: Cause::new(CauseKind::Network, case.index.0, "nothing held it up"),
            ns: 0,
            stretches: whole(),
        })
    }

    /// Why a message failed, or was flushed; nothing if it did not.
    fn of_failure(&mut self, case: &Case<'a>, all: &[Judgement]) -> Option<Cause> {
        let status = case.message.end.map(|end| end.status).filter(|status| *status != 0)?;
        let (process, ordinal) = (case.index.0, case.qp.ordinal);
        let (number, end_ns) = (case.message.number, case.message.last_ns());
        let key = (process, ordinal, 0, number);
        if let Some(fact) = self.clues.of_message(key, &[FaultWhat::Status], end_ns) {
            return Some(cause_of(fact, process));
        }
        let refused = self.clues.of_message(key, &[FaultWhat::Refused, FaultWhat::Rejected], end_ns);
        if let Some(fact) = refused {
            return Some(cause_of(fact, process));
        }
        if let Some(cause) = self.of_incident(case, (case.message.posted_ns, end_ns), Some(status)) {
            return Some(cause);
        }
        if let Some(planned) = all.iter().filter(|one| one.cause.rule.is_some()).max_by_key(|one| one.ns) {
            return Some(planned.cause.clone());
        }
        if status == FLUSHED {
            return Some(Cause::new(CauseKind::Flushed, process, flushed(case.qp, end_ns)));
        }
        if status == RETRIES_USED_UP
            && let Some(gone) = self.peer_gone(case, end_ns)
        {
            return Some(gone);
        }
        let lost = all.iter().filter(|one| !one.cause.kind.is_ordinary()).max_by_key(|one| one.ns);
        if let (RETRIES_USED_UP | RECEIVER_NOT_READY, Some(lost)) = (status, lost) {
            return Some(lost.cause.clone());
        }
        let mut logged = case.qp.moments.iter().rev().filter(|one| one.kind == MomentKind::Log);
        let said = logged.find(|one| (case.message.posted_ns..=end_ns).contains(&one.at_ns));
        let sentence = said.map_or_else(
            || "the trace has its status, and no reason".to_owned(),
            |moment| moment.text.trim_end_matches('.').to_owned(),
        );
        Some(Cause::new(CauseKind::Failed, process, sentence))
    }

    /// The peer had gone before the message failed.
    fn peer_gone(&self, case: &Case<'a>, end_ns: u64) -> Option<Cause> {
        let peer = case.owner.peer()?;
        let destroyed = peer.qp()?.moments.iter().rev().find(|moment| {
            moment.kind == MomentKind::State && moment.text == "destroyed" && moment.at_ns < end_ns
        });
        let process = self.timeline.processes.get(peer.process)?;
        let name = format!("{} {}", process.header.program, process.header.process);
        if let Some(destroyed) = destroyed {
            let before = time(end_ns.saturating_sub(destroyed.at_ns));
            let sentence =
                format!("the peer ({name}) had destroyed its queue pair {before} before it failed");
            return Some(Cause::new(CauseKind::PeerGone, case.index.0, sentence));
        }
        let silent_ns = end_ns.saturating_sub(process.span_ns.1);
        // The last record of a process that lives is half a second old at most.
        (peer.process != case.index.0 && silent_ns > 1_000_000_000).then(|| {
            let sentence = format!("the process of the peer ({name}) had ended {} before", time(silent_ns));
            Cause::new(CauseKind::PeerGone, case.index.0, sentence)
        })
    }

    /// What a plan had happen to the device or to the peer's in a stretch of time that held the message up, or
    /// ended it with a status.
    fn of_incident(&self, case: &Case<'a>, span: (u64, u64), status: Option<u8>) -> Option<Cause> {
        let touches = |fact: &FaultFact| match fact.what {
            FaultWhat::Partition => status.is_none_or(|status| status == RETRIES_USED_UP),
            FaultWhat::Incident => {
                let effect = Effect::of(fact);
                let is_own = fact.qp.is_none_or(|qp| qp == case.qp.ordinal);
                match status {
                    None => effect == Effect::Holds,
                    Some(RETRIES_USED_UP) => effect == Effect::Holds,
                    Some(_) => effect == Effect::Ends || (effect == Effect::EndsOne && is_own),
                }
            }
            _ => false,
        };
        let peer = case.owner.peer().map(|peer| peer.process);
        let processes = [Some(case.index.0), peer.filter(|peer| *peer != case.index.0)];
        let found = processes
            .into_iter()
            .flatten()
            .filter_map(|process| self.clues.lasting(process, span, |fact| touches(fact)));
        let Lasting { fact, process, .. } = found.max_by_key(|one| one.ns)?;
        Some(cause_of(fact, process))
    }

    /// The cause of a stretch of a message's time, and how much of it.
    fn of_span(&mut self, case: &Case<'a>, span: &Span, depth: u8) -> (Cause, u64) {
        let stretch = (span.from_ns, span.to_ns);
        let process = case.index.0;
        if let Some(cause) = self.of_incident(case, stretch, None) {
            return (cause, span.ns());
        }
        let of_calls = [FaultWhat::CallSlowed];
        let of_polls = [FaultWhat::CallSlowed, FaultWhat::EventLate, FaultWhat::EventsMerged];
        let kinds: &[FaultWhat] = if span.kind == PartKind::Poll { &of_polls } else { &of_calls };
        let slowed = self.clues.lasting(process, stretch, |fact| kinds.contains(&fact.what));
        if let Some(Lasting { fact, ns, .. }) = slowed.filter(|one| one.ns >= span.ns() / 2) {
            return (cause_of(fact, process), ns);
        }
        let cause = match span.kind {
            PartKind::SendQueue => self.of_send_queue(case, span, depth),
            PartKind::Timeout | PartKind::Silence => self.of_loss(case, span, depth),
            PartKind::ReceiverNotReady => self.of_receiver(case, span, depth),
            PartKind::PeerStarved => {
                let sentence = format!("the peer's process had no processor for {}", time(span.ns()));
                Cause::new(CauseKind::PeerStarved, process, sentence)
            }
            PartKind::Network => self.of_network(case, span),
            PartKind::Completion => self.of_completion(case, span, depth),
            PartKind::Poll => {
                let sentence =
                    format!("the completion was there, and the program polled it {} later", time(span.ns()));
                Cause::new(CauseKind::PollsLate, process, sentence)
            }
        };
        (self.or_scheduler(case, span, cause), span.ns())
    }

    /// A process without a processor is the cause of what would else be its program's, or nobody's.
    fn or_scheduler(&self, case: &Case<'a>, span: &Span, cause: Cause) -> Cause {
        let is_open = cause.kind.is_ordinary() || cause.kind == CauseKind::PollsLate;
        if cause.rule.is_some() || !is_open {
            return cause;
        }
        let stretch = (span.from_ns, span.to_ns);
        let peer = case.owner.peer().map_or(case.index.0, |peer| peer.process);
        let longest = [case.index.0, peer].map(|process| (self.clues.stalled_ns(process, stretch), process));
        let (ns, process) = longest.into_iter().max().unwrap_or((0, case.index.0));
        if ns < span.ns() / 2 || ns == 0 {
            return cause;
        }
        let name = self.timeline.processes.get(process).map(|one| &one.header);
        let name = name.map_or_else(String::new, |header| format!("{} {}", header.program, header.process));
        let sentence = format!(
            "the process ({name}) had no processor for {} (stopped, or the scheduler ran others): it went on \
             so much later than it meant to",
            time(ns)
        );
        Cause::new(CauseKind::Scheduler, process, sentence)
    }

    fn of_send_queue(&mut self, case: &Case<'a>, span: &Span, depth: u8) -> Cause {
        if let Some(cause) = read_depth(case, span) {
            return cause;
        }
        let before = self.before(case, span.from_ns);
        if let Some(index) = before
            && depth > 0
            && let Some(judged) = self.judge_within(index, depth - 1)
            && !judged.cause.kind.is_ordinary()
            && !matches!(judged.cause.kind, CauseKind::PollsLate | CauseKind::Unsignaled)
        {
            return judged.cause;
        }
        if let Some(cause) = self.congestion(case, span).or_else(|| self.rate(case, span)) {
            return cause;
        }
        if let Some(cause) = window(case, span) {
            return cause;
        }
        match before {
            Some(_) => {
                let sentence = format!("requests before it were on their way for {}", time(span.ns()));
                Cause::new(CauseKind::Behind, case.index.0, sentence)
            }
            None => Cause::new(CauseKind::OwnDevice, case.index.0, "the queue pair waited to send"),
        }
    }

    /// The oldest message of the queue pair that was under way at a time.
    fn before(&self, case: &Case<'a>, at_ns: u64) -> Option<MessageIndex> {
        let (process, queue_pair, number) = case.index;
        let first = number.saturating_sub(REACH);
        let earlier = case.qp.messages.get(first..number)?.iter().enumerate();
        let is_open = |one: &Message| {
            let over_ns = one.acknowledged_ns.or(one.end.map(|end| end.at_ns));
            one.connection == case.message.connection && over_ns.is_none_or(|over_ns| over_ns > at_ns)
        };
        let (oldest, _) = earlier.filter(|(_, one)| is_open(one)).min_by_key(|(index, _)| *index)?;
        Some((process, queue_pair, first + oldest))
    }

    fn of_loss(&mut self, case: &Case<'a>, span: &Span, depth: u8) -> Cause {
        let setback = span.setback.and_then(|number| case.message.setbacks.get(number)).copied();
        let Some(setback) = setback else { return self.unknown_loss(case, span) };
        if !setback.is_own {
            return self.of_other(case, &setback, depth).unwrap_or_else(|| self.unknown_loss(case, span));
        }
        let process = case.index.0;
        let at_ns = setback.at_ns;
        let key = (process, case.qp.ordinal, 0, case.message.number);
        let fate = case.owner.fate(case.message, at_ns);
        let harmed = [
            FaultWhat::Lost,
            FaultWhat::Corrupted,
            FaultWhat::Truncated,
            FaultWhat::Delayed,
            FaultWhat::Reordered,
        ];
        match fate {
            Some(Fate::AnswerLostByPlan { .. } | Fate::AnswerLost { .. }) => {}
            _ => {
                if let Some(fact) = self.clues.of_message(key, &harmed, at_ns) {
                    return cause_of(fact, process);
                }
            }
        }
        self.of_fate(case, fate, at_ns)
    }

    fn of_fate(&self, case: &Case<'a>, fate: Option<Fate>, at_ns: u64) -> Cause {
        let process = case.index.0;
        let plan = |kind, sentence: &str| Cause::new(kind, process, sentence);
        match fate {
            Some(Fate::PacketLostByPlan { psn }) => {
                plan(CauseKind::RequestLost, &format!("a fault plan lost its packet with PSN {psn}"))
            }
            Some(Fate::PacketLost { psn }) => self.lost_on_the_way(case, psn, at_ns),
            Some(Fate::PacketDropped { psn }) => plan(
                CauseKind::RequestLost,
                &format!("its packet with PSN {psn} arrived, and the peer's device dropped it"),
            ),
            Some(Fate::AnswerLostByPlan { is_response, psn } | Fate::AnswerLost { is_response, psn }) => {
                self.lost_answer(case, is_response, psn, at_ns)
            }
            Some(Fate::NoAnswer) => {
                let peer = case.owner.peer();
                let delayed = peer.and_then(|peer| self.of_answers(case, peer, at_ns));
                delayed.unwrap_or_else(|| {
                    plan(
                        CauseKind::PeerSilent,
                        "its packets were on their way or at the peer, which had not answered",
                    )
                })
            }
            Some(Fate::Unknown) | None => plan(
                CauseKind::LossUnknown,
                "a packet or its answer was lost or late; the peer's trace would tell which",
            ),
        }
    }

    /// What a plan did to answers of the peer's before a time.
    fn of_answers(&self, case: &Case<'a>, peer: Owner<'a>, at_ns: u64) -> Option<Cause> {
        let side = (peer.qp()?.ordinal, 1);
        let from_ns = case.message.first_packet_ns.unwrap_or(case.message.posted_ns);
        let kinds = [
            FaultWhat::Lost,
            FaultWhat::Delayed,
            FaultWhat::Corrupted,
            FaultWhat::Truncated,
            FaultWhat::Reordered,
        ];
        let fact = self.clues.of_side(peer.process, side, &kinds, (from_ns, at_ns))?;
        let mut cause = cause_of(fact, peer.process);
        if cause.kind == CauseKind::AckLost && needs_response(case.message.opcode) {
            cause.kind = CauseKind::ResponseLost;
        }
        Some(cause)
    }

    fn lost_answer(&self, case: &Case<'a>, is_response: bool, psn: u32, at_ns: u64) -> Cause {
        let (kind, what) = match is_response {
            true => (CauseKind::ResponseLost, "response"),
            false => (CauseKind::AckLost, "acknowledgement (ACK)"),
        };
        let planned = case.owner.peer().and_then(|peer| self.of_answers(case, peer, at_ns));
        if let Some(planned) = planned.as_ref().and_then(|cause| cause.rule.as_deref()) {
            let did =
                format!("lost the peer's {what} with PSN {psn}: the packets of the request had arrived");
            let did = match self.of_answers_kind(case, at_ns) {
                Some(CauseKind::Corrupted) => did.replacen("lost", "corrupted", 1),
                _ => did,
            };
            return Cause::by_rule(kind, case.index.0, planned, &did);
        }
        let sentence = format!(
            "its packets had arrived, and the peer's {what} with PSN {psn} was sent and lost{}",
            self.where_lost(case)
        );
        Cause::new(kind, case.index.0, sentence)
    }

    fn of_answers_kind(&self, case: &Case<'a>, at_ns: u64) -> Option<CauseKind> {
        let peer = case.owner.peer()?;
        self.of_answers(case, peer, at_ns).map(|cause| cause.kind)
    }

    /// A request packet did not arrive, and no plan is known to have lost it.
    fn lost_on_the_way(&self, case: &Case<'a>, psn: u32, at_ns: u64) -> Cause {
        let from_ns = case.message.posted_ns;
        let peer = case.owner.peer().and_then(|peer| self.timeline.processes.get(peer.process));
        let icrc = peer.and_then(|peer| {
            peer.moments.iter().find(|moment| {
                let in_time = (from_ns..=at_ns).contains(&moment.at_ns);
                moment.kind == MomentKind::Drop && in_time && moment.text.contains("icrc")
            })
        });
        if icrc.is_some() {
            let sentence = format!("its packet with PSN {psn} arrived corrupted: its ICRC was wrong");
            return Cause::new(CauseKind::Corrupted, case.index.0, sentence);
        }
        let has_queue =
            self.network(case).is_some_and(|(link, switches)| link.contains("queue") || !switches.is_empty());
        let kind = if has_queue { CauseKind::SwitchQueue } else { CauseKind::RequestLost };
        let sentence = format!(
            "its packet with PSN {psn} was sent and lost: it did not arrive at the peer{}",
            self.where_lost(case)
        );
        Cause::new(kind, case.index.0, sentence)
    }

    /// What the link or the switches have to do with a loss.
    fn where_lost(&self, case: &Case<'a>) -> String {
        match self.network(case) {
            Some((link, "")) if link.contains("queue") => {
                format!("; the queue of the link ({link}) loses what does not fit")
            }
            Some((_, switches)) if !switches.is_empty() => {
                format!("; queues of the switches ({switches}) lose what does not fit")
            }
            _ => String::new(),
        }
    }

    /// The link and the switches of this process, or of the peer's.
    fn network(&self, case: &Case<'a>) -> Option<(&'a str, &'a str)> {
        let peer = case.owner.peer().and_then(|peer| self.timeline.processes.get(peer.process));
        let words = [Some(case.process), peer].into_iter().flatten().map(|one| &one.evidence.network);
        let mut said = words.filter(|(link, switches)| !link.is_empty() || !switches.is_empty());
        said.next().map(|(link, switches)| (link.as_str(), switches.as_str()))
    }

    fn unknown_loss(&self, case: &Case<'a>, span: &Span) -> Cause {
        let sentence = format!("nothing was heard of the peer for {}", time(span.ns()));
        Cause::new(CauseKind::LossUnknown, case.index.0, sentence)
    }

    /// The cause of the message before this one that a setback was about.
    fn of_other(&mut self, case: &Case<'a>, setback: &Setback, depth: u8) -> Option<Cause> {
        let (process, queue_pair, number) = case.index;
        let first = number.saturating_sub(REACH);
        let earlier = case.qp.messages.get(first..number)?.iter().enumerate().rev();
        let is_about =
            |one: &Message| one.setbacks.iter().any(|own| own.is_own && own.at_ns == setback.at_ns);
        let (other, _) = earlier.into_iter().find(|(_, one)| is_about(one))?;
        let other = (process, queue_pair, first + other);
        let depth = depth.checked_sub(1)?;
        self.judge_within(other, depth).map(|judged| judged.cause)
    }

    fn of_receiver(&mut self, case: &Case<'a>, span: &Span, depth: u8) -> Cause {
        let process = case.index.0;
        let setback = span.setback.and_then(|number| case.message.setbacks.get(number)).copied();
        let key = (process, case.qp.ordinal, 0, case.message.number);
        if let Some(fact) = self.clues.of_message(key, &[FaultWhat::Refused], span.to_ns) {
            return cause_of(fact, process);
        }
        if let Some(other) = setback.filter(|setback| !setback.is_own) {
            if let Some(cause) = self.of_other(case, &other, depth) {
                return cause;
            }
        }
        let naks = case.message.setbacks.iter();
        let naks = naks.filter(|one| matches!(one.kind, SetbackKind::ReceiverNotReady { .. })).count();
        let refused = format!("the peer had no receive request for it ({naks} RNR NAKs)");
        let first_ns = case.message.setbacks.iter().find_map(|one| match one.kind {
            SetbackKind::ReceiverNotReady { .. } => Some(one.at_ns),
            _ => None,
        });
        let first_ns = first_ns.unwrap_or(span.from_ns);
        let Some(peer) = case.owner.peer().and_then(|peer| peer.qp()) else {
            return Cause::new(
                CauseKind::NoReceive,
                process,
                format!("{refused}; the peer's trace would tell when its program polled and posted"),
            );
        };
        let unpolled = peer.receives.iter().filter(|one| {
            let waits = one.polled_ns.is_none_or(|polled_ns| polled_ns > first_ns);
            one.end.at_ns <= first_ns && waits
        });
        let oldest = unpolled.map(|one| (one.end.at_ns, one.polled_ns)).min();
        if let Some((ended_ns, polled_ns)) = oldest {
            let late_ns = polled_ns.unwrap_or(case.end_ns).saturating_sub(ended_ns);
            let sentence = format!(
                "{refused}: its program polled slowly, the completion of an earlier receive waited {}",
                time(late_ns)
            );
            return Cause::new(CauseKind::PeerPollsLate, process, sentence);
        }
        let later = peer.receives.iter().filter_map(|one| one.posted_ns).filter(|at| *at > first_ns).min();
        match later {
            Some(posted_ns) => Cause::new(
                CauseKind::PeerPostsLate,
                process,
                format!(
                    "{refused}: its program posted one {} after the first of them",
                    time(posted_ns.saturating_sub(first_ns))
                ),
            ),
            None => Cause::new(
                CauseKind::NoReceive,
                process,
                format!("{refused}, and its program posted none after that"),
            ),
        }
    }

    fn of_network(&self, case: &Case<'a>, span: &Span) -> Cause {
        let process = case.index.0;
        let key = (process, case.qp.ordinal, 0, case.message.number);
        let changed = [FaultWhat::Delayed, FaultWhat::Reordered];
        if let Some(fact) = self.clues.of_message(key, &changed, span.to_ns) {
            return cause_of(fact, process);
        }
        let stretch = (span.from_ns, span.to_ns);
        if let Some(peer) = case.owner.peer()
            && let Some(qp) = peer.qp()
        {
            let fits = |fact: &FaultFact| {
                changed.contains(&fact.what) && fact.side == 1 && fact.qp == Some(qp.ordinal)
            };
            let held = self.clues.lasting(peer.process, stretch, fits);
            if let Some(held) = held.filter(|held| held.ns >= span.ns() / 2) {
                return cause_of(held.fact, peer.process);
            }
        }
        let losses = case.message.setbacks.iter().filter(|one| {
            let noticed = matches!(one.kind, SetbackKind::SequenceNak | SetbackKind::MissingAnswer);
            noticed && (span.from_ns..=span.to_ns).contains(&one.at_ns)
        });
        if let Some(setback) = losses.clone().next() {
            return self.of_noticed(case, setback);
        }
        let slow = self.congestion(case, span).or_else(|| self.rate(case, span));
        if let Some(cause) = slow.or_else(|| window(case, span)) {
            return cause;
        }
        self.of_ordinary(case, span)
    }

    /// A loss that an answer showed, without a wait.
    fn of_noticed(&self, case: &Case<'a>, setback: &Setback) -> Cause {
        let (process, at_ns) = (case.index.0, setback.at_ns);
        if setback.kind == SetbackKind::MissingAnswer {
            let is_response = needs_response(case.message.opcode);
            return self.lost_answer(case, is_response, case.message.psn, at_ns);
        }
        let key = (process, case.qp.ordinal, 0, case.message.number);
        let harmed = [
            FaultWhat::Lost,
            FaultWhat::Corrupted,
            FaultWhat::Truncated,
            FaultWhat::Delayed,
            FaultWhat::Reordered,
        ];
        match self.clues.of_message(key, &harmed, at_ns) {
            Some(fact) => cause_of(fact, process),
            None => self.of_fate(case, case.owner.fate(case.message, at_ns), at_ns),
        }
    }

    /// Packets go and come: on the network, or at the peer's device.
    fn of_ordinary(&self, case: &Case<'a>, span: &Span) -> Cause {
        let process = case.index.0;
        let Some(way_ns) = case.owner.on_the_way_ns(case.message) else {
            let sentence = format!("its packets were on the network or at the peer for {}", time(span.ns()));
            return Cause::new(CauseKind::Beyond, process, sentence);
        };
        let peer_ns = span.ns().saturating_sub(way_ns);
        if peer_ns > way_ns {
            let sentence = format!("its packets were at the peer's device for {}", time(peer_ns));
            return Cause::new(CauseKind::PeerDevice, process, sentence);
        }
        let sentence = format!("its packets were on their way for {}", time(way_ns.min(span.ns())));
        Cause::new(CauseKind::Network, process, sentence)
    }

    fn congestion(&self, case: &Case<'a>, span: &Span) -> Option<Cause> {
        let from_ns = span.from_ns.saturating_sub(CONGESTED_NS);
        let in_time = |at_ns: u64| (from_ns..=span.to_ns).contains(&at_ns);
        let heard = case.qp.congestion.iter().filter(|one| in_time(one.at_ns));
        let cnps = heard.clone().filter(|one| one.kind == CongestionKind::Notified).count();
        if cnps == 0 {
            return None;
        }
        let rate = heard.rev().find_map(|one| match one.kind {
            CongestionKind::Rate(rate) => Some(rate),
            _ => None,
        });
        let slowed = rate.map_or_else(
            || "the window shrank".to_owned(),
            |rate| format!("the rate was {:.1} Mbit/s then", rate as f64 / 1e6),
        );
        let marks = [FaultWhat::Marked, FaultWhat::Notified];
        let sides = [(case.index.0, case.qp.ordinal, 0)];
        let planned = sides.into_iter().find_map(|(process, ordinal, side)| {
            self.clues.of_side(process, (ordinal, side), &marks, (from_ns, span.to_ns))
        });
        let process = case.index.0;
        Some(match planned {
            Some(fact) => cause_of(fact, process),
            None => Cause::new(
                CauseKind::Congestion,
                process,
                format!(
                    "congestion: {cnps} notifications (CNP) came, because a switch had marked packets (ECN), and \
                 {slowed}"
                ),
            ),
        })
    }

    /// The bits of the message alone take a good part of the time at the rate of the link.
    fn rate(&self, case: &Case<'a>, span: &Span) -> Option<Cause> {
        let (link, switches) = self.network(case)?;
        let settings = LinkSettings::parse(link).ok();
        let ways = settings.iter().flat_map(|one| [one.egress, one.ingress]);
        let rate = ways.filter_map(|way| way.rate_bits_per_second).min();
        let mbps = switches.split(' ').nth(1).and_then(|number| number.parse::<u64>().ok());
        let rate = rate.into_iter().chain(mbps.map(|mbps| mbps.saturating_mul(1_000_000))).min()?;
        let message = case.message;
        let headers = u64::from(message.packets.max(1)).saturating_mul(HEADER_BYTES);
        let bytes = u64::from(message.bytes).saturating_add(headers);
        let own_ns = u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1));
        let own_ns = u64::try_from(own_ns).unwrap_or(u64::MAX);
        let name = match (link, switches) {
            ("", switches) => format!("the switches ({switches})"),
            (link, _) => format!("the link ({link})"),
        };
        let process = case.index.0;
        if own_ns.saturating_mul(3) >= span.ns() {
            return Some(Cause::new(
                CauseKind::LinkRate,
                process,
                format!("its {bytes} bytes alone take {} at the rate of {name}", time(own_ns)),
            ));
        }
        // Packets before it, of this queue pair or of others, were in the queue.
        let way_ns = case.owner.on_the_way_ns(message).unwrap_or(span.ns());
        let waits = way_ns >= span.ns() / 2 && way_ns > own_ns.saturating_mul(4) && way_ns > 50_000;
        waits.then(|| {
            let what = if switches.is_empty() { "the queue of" } else { "a queue of" };
            Cause::new(CauseKind::SwitchQueue, process, format!(
                "its packets waited behind others in {what} {name}: they were on their way for {}, and need {} \
                 alone",
                time(way_ns),
                time(own_ns)
            ))
        })
    }

    fn of_completion(&mut self, case: &Case<'a>, span: &Span, depth: u8) -> Cause {
        let process = case.index.0;
        let stretch = (span.from_ns, span.to_ns);
        let is_late = |fact: &FaultFact| {
            let is_own = fact.qp == Some(case.qp.ordinal) && fact.side == 0;
            fact.what == FaultWhat::CompletionLate && is_own
        };
        let late = self.clues.lasting(process, stretch, is_late);
        if let Some(late) = late.filter(|late| late.ns >= span.ns() / 3) {
            return cause_of(late.fact, process);
        }
        let key = (process, case.qp.ordinal, 0, case.message.number);
        if let Some(fact) = self.clues.of_message(key, &[FaultWhat::CompletionLate], span.to_ns) {
            return cause_of(fact, process);
        }
        let has_own = case.message.end.map_or(case.message.signaled, |end| end.has_completion);
        if !has_own {
            let sentence = format!(
                "it is unsignaled, so it was over only with the next signaled request of its queue pair, {} \
                 after its acknowledgement",
                time(span.ns())
            );
            return Cause::new(CauseKind::Unsignaled, process, sentence);
        }
        if let Some(index) = self.before(case, span.from_ns)
            && let Some(depth) = depth.checked_sub(1)
            && let Some(judged) = self.judge_within(index, depth)
            && !judged.cause.kind.is_ordinary()
        {
            return judged.cause;
        }
        let sentence = format!("requests before it had not completed for {}", time(span.ns()));
        Cause::new(CauseKind::Behind, process, sentence)
    }
}

/// What something that happens to a device does to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It holds them up, or loses their packets.
    Holds,
    /// It flushes those of all queue pairs, or of those of an object.
    Ends,
    /// It flushes those of the queue pair that it happens to.
    EndsOne,
    /// It does nothing to them.
    Nothing,
}

impl Effect {
    fn of(fact: &FaultFact) -> Effect {
        match fact.subject.split(' ').next() {
            Some("freeze" | "port-down" | "cable-pull" | "link") => Effect::Holds,
            Some("cq-error" | "srq-error" | "device-fatal" | "unplug") => Effect::Ends,
            Some("qp-fatal" | "qp-access-error" | "disconnect") => Effect::EndsOne,
            _ => Effect::Nothing,
        }
    }
}

fn needs_response(opcode: u8) -> bool {
    SendOpcode::from_number(u32::from(opcode)).is_some_and(|opcode| opcode.info().needs_response())
}

/// As many READs and atomics were under way as may be.
fn read_depth(case: &Case<'_>, span: &Span) -> Option<Cause> {
    let (_, reads) = case.qp.limits?;
    let number = case.index.2;
    let middle_ns = span.from_ns + span.ns() / 2;
    let first = number.saturating_sub(REACH);
    let same = |one: &&Message| one.connection == case.message.connection && needs_response(one.opcode);
    let earlier = case.qp.messages.get(first..number)?.iter().filter(same);
    let over_ns = |one: &Message| one.acknowledged_ns.or(one.end.map(|end| end.at_ns)).unwrap_or(u64::MAX);
    let open = earlier.filter(|one| over_ns(one) > middle_ns);
    let is_sent = |one: &&Message| one.first_packet_ns.is_some_and(|at_ns| at_ns <= middle_ns);
    let sent = open.clone().filter(is_sent).count();
    let waits = needs_response(case.message.opcode) || open.clone().any(|one| !is_sent(&one));
    // The device takes 0 for 1.
    if !waits || sent < usize::from(reads.max(1)) {
        return None;
    }
    let sentence = format!(
        "{sent} READs or atomics were under way, and max_rd_atomic of the queue pair is {reads} (read depth): \
         it waited {} until one was answered",
        time(span.ns())
    );
    Some(Cause::new(CauseKind::ReadDepth, case.index.0, sentence))
}

/// The window was full.
fn window(case: &Case<'_>, span: &Span) -> Option<Cause> {
    let near = case.qp.measures.iter().filter(|one| (span.from_ns..=span.to_ns).contains(&one.at_ns));
    let full = near.clone().filter(|one| one.in_flight_packets >= one.window_packets).count();
    let least = near.clone().map(|one| one.window_packets).min()?;
    (full * 2 > near.count()).then(|| {
        let sentence = format!(
            "the window was full: {least} packets may be unacknowledged, and as many were, for {}",
            time(span.ns())
        );
        Cause::new(CauseKind::Window, case.index.0, sentence)
    })
}

/// Why requests of a queue pair were flushed: what moved it to ERR.
fn flushed(qp: &QueuePair, end_ns: u64) -> String {
    let states = qp.moments.iter().filter(|one| one.kind == MomentKind::State && one.at_ns <= end_ns);
    let last = states.filter(|one| one.text.contains("to ERR") || one.text.contains("to SQE")).next_back();
    last.map_or_else(
        || "its queue pair was in the error state".to_owned(),
        |moment| format!("its queue pair went from {}", moment.text),
    )
}
