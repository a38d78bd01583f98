//! What belongs to no send request: what a plan did besides, full queues, polls that came late or never, a
//! host that is busy, and times in which nothing was under way.

use pumice_calls::Call;

use super::FLUSHED;
use super::cause::{Cause, CauseKind};
use super::clues::cause_of;
use super::group::{Builder, IDLE_NS, add};
use super::judge::Judgement;
use super::loss::MessageIndex;
use super::times::duration_ns;
use super::words::time;
use crate::format::FaultWhat;
use crate::format::TraceHeader;
use crate::timeline::{MomentKind, QueuePair, Refusal, Timeline, TimelineProcess};

/// A receive that was polled late is worth a word from here on.
const POLLED_LATE_NS: u64 = 5_000_000;
/// A call that a plan has fail is refused within this time.
const PLANNED_NS: u64 = 1_000_000;
/// errno of a post to a full queue.
const ENOMEM: i32 = 12;
/// A completion that was never polled is worth a word if it was there for so long.
const NEVER_POLLED_NS: u64 = 500_000_000;

/// Adds what belongs to no send request.
pub(super) fn of_the_run(timeline: &Timeline, builders: &mut Vec<Builder>) {
    for (process, one) in timeline.processes.iter().enumerate() {
        planned(process, one, builders);
        full_queues(process, one, builders);
        late_receives(process, one, builders);
        never_polled(process, one, builders);
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
    let is_post = |call: &str| Call::of(call).is_some_and(Call::sends);
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
    // Of before the recording, or of one that began later, requests may have been under way.
    let is_open = |qp: &QueuePair| qp.unseen > 0 || qp.unseen_until_ns.is_some_and(|ns| ns > from_ns);
    let is_known = |one: &TimelineProcess| {
        one.covers(from_ns, from_ns.saturating_add(ns)) && !one.queue_pairs.iter().any(is_open)
    };
    if !timeline.processes.iter().all(is_known) {
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

/// Completions of send requests that no poll has found, as long as there was a queue to poll.
fn never_polled(process: usize, one: &TimelineProcess, builders: &mut Vec<Builder>) {
    // What knows of no poll at all, such as a capture, says nothing of one that is missing.
    let knows_polls = one.queue_pairs.iter().any(|qp| {
        let sends = qp.messages.iter().any(|message| message.polled_ns.is_some());
        sends || qp.receives.iter().any(|receive| receive.polled_ns.is_some())
    });
    for qp in one.queue_pairs.iter().filter(|_| knows_polls || !is_of_capture(&one.header)) {
        let destroyed = qp.moments.iter().find(|moment| moment.text == "destroyed");
        let end_ns = destroyed.map_or(one.span_ns.1, |moment| moment.at_ns);
        for message in &qp.messages {
            let Some(end) = message.end.filter(|end| end.has_completion && message.polled_ns.is_none())
            else {
                continue;
            };
            let ns = end_ns.saturating_sub(end.at_ns);
            if ns < NEVER_POLLED_NS {
                continue;
            }
            let sentence = format!(
                "the completion of request {} of QP {:#x} ({} {}, tag {}) was there at {}, and waits for {}: \
                 the program had not polled it",
                message.number,
                qp.qpn,
                one.header.program,
                one.header.process,
                one.header.tag,
                time(end.at_ns),
                time(ns)
            );
            let cause = Cause::new(CauseKind::PollsLate, process, sentence);
            let stretches = vec![(end.at_ns, end_ns)];
            add(builders, Judgement { cause, ns, stretches }, end.at_ns, None, false);
        }
    }
}

/// Whether a process is known by packets alone.
fn is_of_capture(header: &TraceHeader) -> bool {
    header.boot.starts_with("capture ")
}
