//! The causes of a run: the effects of each together, the first one first.

use std::cmp::Reverse;

use serde::Serialize;

use super::FLUSHED;
use super::cause::{Cause, CauseKind};
use super::clues::{Clues, cause_of};
use super::judge::{Judge, Judgement};
use super::loss::{Arrows, MessageIndex};
use super::story::Story;
use super::times::duration_ns;
use super::words::time;
use crate::trace::fault_detail::FaultWhat;
use crate::trace::timeline::{Message, MomentKind, QueuePair, Refusal, Timeline, TimelineProcess};

/// Messages that are judged at most: those that failed or have not ended, and the slowest others.
const MOST_JUDGED: usize = 1 << 13;
/// Causes that are kept.
const MOST_CAUSES: usize = 1 << 10;
/// A time in which no request was under way is worth a word from here on.
const IDLE_NS: u64 = 5_000_000;
/// So is a receive that was polled late.
const POLLED_LATE_NS: u64 = 5_000_000;
/// A call that a plan has fail is refused within this time.
const PLANNED_NS: u64 = 1_000_000;
/// errno of a post to a full queue.
const ENOMEM: i32 = 12;

/// A cause, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The cause.
    #[serde(flatten)]
    pub cause: Cause,
    /// Its first effect, if that is a message.
    pub story: Option<Story>,
    /// Other effects.
    pub others: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// When its first effect began, in ns since the first record.
    pub at_ns: u64,
    /// How long it held messages up, all together; times that overlap count once.
    pub ns: u64,
    /// The longest of these times.
    pub longest_ns: u64,
}

/// All causes of a run, the most telling first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Causes {
    /// What failed first, then what a plan did, then by the time that they took.
    pub groups: Vec<Group>,
    /// Messages that failed, without those that were flushed.
    pub failed: u64,
    /// Messages that were flushed.
    pub flushed: u64,
    /// Messages that had not ended.
    pub unfinished: u64,
    /// All messages.
    pub messages: u64,
    /// Some messages were not judged: there are too many. Their causes may have more effects.
    pub is_cut: bool,
}

impl Group {
    /// What it counts among others: of two that have one time, the one goes first that says why.
    fn weight_ns(&self) -> u64 {
        match self.cause.kind {
            // A sentence of the log has no time, and says more than where time went.
            CauseKind::Logged => IDLE_NS,
            // Both ends of a wait show it: the program that polls late, and what it cannot do meanwhile.
            CauseKind::SendQueueFull | CauseKind::ReadDepth => self.ns.saturating_mul(2),
            CauseKind::ReceivePolledLate => self.ns / 2,
            // A busy host stalls all for some ms again and again; one long stall is another thing.
            CauseKind::Scheduler => self.longest_ns,
            kind if kind.is_ordinary() => self.ns / 4,
            _ => self.ns,
        }
    }
}

/// A group that is being put together.
struct Builder {
    cause: Cause,
    first: Option<MessageIndex>,
    effects: u64,
    failed: u64,
    at_ns: u64,
    stretches: Vec<(u64, u64)>,
}

impl Causes {
    /// Of a timeline; so many groups of effects that did not fail.
    pub fn of(timeline: &Timeline, most: usize) -> Causes {
        let (arrows, clues) = (Arrows::of(timeline), Clues::of(timeline));
        let mut judge = Judge::new(timeline, &arrows, &clues);
        let mut causes = Causes::default();
        let mut builders: Vec<Builder> = Vec::new();
        for (index, has_failed) in causes.choose(timeline) {
            let Some(judged) = judge.judge(index) else { continue };
            let Some(message) = message(timeline, index) else { continue };
            add(&mut builders, judged, message.posted_ns, Some(index), has_failed);
        }
        of_the_run(timeline, &mut builders);
        let mut groups: Vec<Group> = builders
            .into_iter()
            .map(|builder| {
                let story = builder.first.and_then(|index| Story::of(timeline, &mut judge, index));
                builder.finish(story)
            })
            .collect();
        let rank = |group: &Group| {
            let planned = group.cause.rule.is_some();
            let first_failure = if group.failed > 0 { group.at_ns } else { 0 };
            (group.failed == 0, first_failure, !planned, Reverse(group.weight_ns()), group.at_ns)
        };
        groups.sort_by_key(rank);
        let (mut kept, mut others) = (Vec::new(), 0);
        for group in groups {
            others += usize::from(group.failed == 0);
            if group.failed > 0 || others <= most {
                kept.push(group);
            }
        }
        kept.truncate(MOST_CAUSES);
        causes.groups = kept;
        causes
    }

    /// Counts the messages, and chooses those that are judged, in the order in which they were posted; and
    /// whether each has failed.
    fn choose(&mut self, timeline: &Timeline) -> Vec<(MessageIndex, bool)> {
        let (mut certain, mut others) = (Vec::new(), Vec::new());
        for (process, one) in timeline.processes.iter().enumerate() {
            for (queue_pair, qp) in one.queue_pairs.iter().enumerate() {
                let mut had_failure = false;
                for (number, message) in qp.messages.iter().enumerate() {
                    self.messages += 1;
                    let index = (process, queue_pair, number);
                    match message.end.map(|end| end.status) {
                        Some(0) => others.push((Reverse(duration_ns(one, message)), index)),
                        Some(FLUSHED) => {
                            self.flushed += 1;
                            // The first one that was flushed after no failure is told.
                            if !std::mem::replace(&mut had_failure, true) {
                                certain.push((index, true));
                            }
                        }
                        Some(_) => {
                            self.failed += 1;
                            had_failure = true;
                            certain.push((index, true));
                        }
                        None => {
                            self.unfinished += 1;
                            others.push((Reverse(duration_ns(one, message)), index));
                        }
                    }
                }
            }
        }
        self.is_cut = certain.len() + others.len() > MOST_JUDGED;
        certain.truncate(MOST_JUDGED / 2);
        let room = MOST_JUDGED - certain.len();
        if others.len() > room {
            others.sort_by_key(|(duration_ns, index)| (*duration_ns, *index));
            others.truncate(room);
        }
        certain.extend(others.into_iter().map(|(_, index)| (index, false)));
        certain.sort_by_key(|(index, _)| (message(timeline, *index).map_or(0, |one| one.posted_ns), *index));
        certain
    }
}

fn message(timeline: &Timeline, index: MessageIndex) -> Option<&Message> {
    timeline.processes.get(index.0)?.queue_pairs.get(index.1)?.messages.get(index.2)
}

/// Adds an effect to the group of its cause.
fn add(
    builders: &mut Vec<Builder>,
    judged: Judgement,
    at_ns: u64,
    index: Option<MessageIndex>,
    has_failed: bool,
) {
    let Judgement { cause, stretches, .. } = judged;
    let failed = u64::from(has_failed);
    let same = |one: &Builder| one.cause.is_same(&cause) && (one.failed > 0) == has_failed;
    let Some(one) = builders.iter().position(same) else {
        if builders.len() < MOST_CAUSES {
            builders.push(Builder { cause, first: index, effects: 1, failed, at_ns, stretches });
        }
        return;
    };
    let Some(one) = builders.get_mut(one) else { return };
    one.effects += 1;
    one.failed += failed;
    if at_ns < one.at_ns || one.first.is_none() {
        (one.at_ns, one.first, one.cause) = (at_ns.min(one.at_ns), index.or(one.first), cause);
    }
    one.stretches.extend(stretches);
}

impl Builder {
    fn finish(mut self, story: Option<Story>) -> Group {
        let ns = union_ns(&mut self.stretches);
        let longest_ns = self.stretches.iter().map(|(from, to)| to.saturating_sub(*from)).max().unwrap_or(0);
        let Builder { cause, effects, failed, at_ns, .. } = self;
        Group { cause, story, others: effects.saturating_sub(1), failed, at_ns, ns, longest_ns }
    }

    /// Whether it has most of a stretch of time.
    fn has_most_of(&self, (from_ns, to_ns): (u64, u64)) -> bool {
        let overlap = |(from, to): &(u64, u64)| to_ns.min(*to).saturating_sub(from_ns.max(*from));
        self.stretches.iter().any(|one| overlap(one) * 2 > to_ns.saturating_sub(from_ns))
    }
}

/// How long some stretches are, where those that overlap count once.
fn union_ns(stretches: &mut [(u64, u64)]) -> u64 {
    stretches.sort_unstable();
    let (mut sum_ns, mut until_ns) = (0_u64, 0);
    for (from_ns, to_ns) in stretches.iter().copied() {
        sum_ns = sum_ns.saturating_add(to_ns.saturating_sub(from_ns.max(until_ns)));
        until_ns = until_ns.max(to_ns);
    }
    sum_ns
}

/// Adds what belongs to no send request.
fn of_the_run(timeline: &Timeline, builders: &mut Vec<Builder>) {
    for (process, one) in timeline.processes.iter().enumerate() {
        planned(process, one, builders);
        full_queues(process, one, builders);
        late_receives(process, one, builders);
        stalls(process, one, builders);
        logged(process, one, builders);
    }
    idle(timeline, builders);
}

/// Each rule that applied is told of, also if it held no message up.
fn planned(process: usize, one: &TimelineProcess, builders: &mut Vec<Builder>) {
    for fact in &one.evidence.faults {
        let known = builders.iter().any(|builder| builder.cause.rule.as_deref() == Some(&fact.rule));
        if known {
            continue;
        }
        let cause = cause_of(fact, process);
        let lasts_ns = fact.until_ns().min(one.span_ns.1.max(fact.at_ns));
        let stretches = vec![(fact.at_ns, lasts_ns)];
        let ns = lasts_ns.saturating_sub(fact.at_ns);
        let failed = fact.what == FaultWhat::CallFailed;
        add(builders, Judgement { cause, ns, stretches }, fact.at_ns, None, failed);
    }
}

/// Posts that were refused because the send queue was full.
fn full_queues(process: usize, one: &TimelineProcess, builders: &mut Vec<Builder>) {
    let is_post = |call: &str| call.contains("post_send") || call.starts_with("ibv_wr_");
    let is_planned = |refusal: &Refusal| {
        one.evidence.faults.iter().any(|fact| {
            let is_it = fact.what == FaultWhat::CallFailed && fact.subject == refusal.call;
            is_it && refusal.at_ns.saturating_sub(fact.at_ns) < PLANNED_NS && fact.at_ns <= refusal.at_ns
        })
    };
    let refused = one.evidence.refusals.iter();
    let full = refused.filter(|one| is_post(&one.call) && one.errno == ENOMEM && !is_planned(one));
    let mut full = full.peekable();
    while let Some(first) = full.next() {
        // Posts that are tried again and again are refused again and again.
        let (mut last_ns, mut count) = (first.at_ns, 1_u64);
        while let Some(next) = full.next_if(|next| next.at_ns.saturating_sub(last_ns) < IDLE_NS) {
            last_ns = next.at_ns;
            count += 1;
        }
        let sentence = format!(
            "the send queue was full: {} was refused with ENOMEM {count} times in {}",
            first.call,
            time(last_ns.saturating_sub(first.at_ns))
        );
        let cause = Cause::new(CauseKind::SendQueueFull, process, sentence);
        let stretches = vec![(first.at_ns, last_ns)];
        let ns = last_ns.saturating_sub(first.at_ns);
        add(builders, Judgement { cause, ns, stretches }, first.at_ns, None, false);
    }
}

/// Receives whose completions waited for a poll, where no send request says the same.
fn late_receives(process: usize, one: &TimelineProcess, builders: &mut Vec<Builder>) {
    for qp in &one.queue_pairs {
        for receive in &qp.receives {
            let from_ns = receive.end.at_ns;
            let to_ns = receive.polled_ns.unwrap_or(one.span_ns.1);
            let ns = to_ns.saturating_sub(from_ns);
            let stretch = (from_ns, to_ns);
            let is_known =
                |one: &Builder| one.cause.kind != CauseKind::ReceivePolledLate && one.has_most_of(stretch);
            if ns < POLLED_LATE_NS || builders.iter().any(is_known) {
                continue;
            }
            let sentence = format!(
                "the completion of receive request wr_id {:#x} of QP {:#x} ({} {}, tag {}) was there at {}, \
                 and the program polled it {} later",
                receive.wr_id,
                qp.qpn,
                one.header.program,
                one.header.process,
                one.header.tag,
                time(from_ns),
                time(ns)
            );
            let cause = Cause::new(CauseKind::ReceivePolledLate, process, sentence);
            add(builders, Judgement { cause, ns, stretches: vec![stretch] }, from_ns, None, false);
        }
    }
}

/// What the log says of queue pairs without a failure: the first sentence of each.
fn logged(process: usize, one: &TimelineProcess, builders: &mut Vec<Builder>) {
    let has_failed = |qp: &QueuePair| {
        qp.messages.iter().any(|message| message.end.is_some_and(|end| end.status != 0))
            || qp.receives.iter().any(|receive| receive.end.status != 0 && receive.end.status != FLUSHED)
    };
    for qp in one.queue_pairs.iter().filter(|qp| !has_failed(qp)) {
        let Some(moment) = qp.moments.iter().find(|moment| moment.kind == MomentKind::Log) else { continue };
        let cause = Cause::new(CauseKind::Logged, process, format!("QP {:#x} {}", qp.qpn, moment.text));
        let stretches = vec![(moment.at_ns, moment.at_ns)];
        add(builders, Judgement { cause, ns: 0, stretches }, moment.at_ns, None, false);
    }
}

/// Times in which the process had no processor, of which no message says it.
fn stalls(process: usize, one: &TimelineProcess, builders: &mut Vec<Builder>) {
    for (from_ns, to_ns) in &one.evidence.stalls_ns {
        let stretch = (*from_ns, *to_ns);
        let is_known = |one: &Builder| one.cause.kind != CauseKind::Scheduler && one.has_most_of(stretch);
        if builders.iter().any(is_known) {
            continue;
        }
        let ns = to_ns.saturating_sub(*from_ns);
        let sentence = format!(
            "the process ({} {}) had no processor for {} from {} on (stopped, or the scheduler ran others)",
            one.header.program,
            one.header.process,
            time(ns),
            time(*from_ns)
        );
        let cause = Cause::new(CauseKind::Scheduler, process, sentence);
        add(builders, Judgement { cause, ns, stretches: vec![stretch] }, *from_ns, None, false);
    }
}

/// The longest time between two requests in which none was under way.
fn idle(timeline: &Timeline, builders: &mut Vec<Builder>) {
    let mut times = Vec::new();
    for (process, one) in timeline.processes.iter().enumerate() {
        for (queue_pair, qp) in one.queue_pairs.iter().enumerate() {
            times.extend(qp.messages.iter().enumerate().map(|(number, message)| {
                let until_ns = message.posted_ns.saturating_add(duration_ns(one, message));
                (message.posted_ns, until_ns, (process, queue_pair, number))
            }));
        }
    }
    times.sort_unstable();
    let mut until_ns = u64::MAX;
    let mut longest: Option<(u64, u64, MessageIndex)> = None;
    for (posted_ns, end_ns, index) in times {
        let ns = posted_ns.saturating_sub(until_ns);
        if ns >= IDLE_NS && longest.is_none_or(|(most_ns, ..)| ns > most_ns) {
            longest = Some((ns, until_ns, index));
        }
        until_ns = if until_ns == u64::MAX { end_ns } else { until_ns.max(end_ns) };
    }
    let Some((ns, from_ns, (process, queue_pair, number))) = longest else { return };
    let stretch = (from_ns, from_ns.saturating_add(ns));
    let Some(one) = timeline.processes.get(process) else { return };
    let qpn = one.queue_pairs.get(queue_pair).map_or(0, |qp| qp.qpn);
    if builders.iter().any(|builder| builder.has_most_of(stretch)) {
        return;
    }
    let sentence = format!(
        "for {} from {} on no request was under way: then {} {} posted request {number} of QP {qpn:#x}",
        time(ns),
        time(from_ns),
        one.header.program,
        one.header.process,
    );
    let cause = Cause::new(CauseKind::ProgramIdle, process, sentence);
    add(builders, Judgement { cause, ns, stretches: vec![stretch] }, from_ns, None, false);
}
