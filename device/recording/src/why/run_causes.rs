//! Causes that belong to no send request: fault plan effects on other things, full queues, late or missing
//! polls, a busy host, and times in which no request was under way.

use std::collections::HashSet;

use pumice_calls::Call;

use super::FLUSHED;
use super::cause::{CauseKind, MessageCause, time};
use super::fact_index::cause_of;
use super::group::{CauseGroupBuilder, CoveredTime, IDLE_NS, add};
use super::judge::CauseVerdict;
use super::loss::MessageIndex;
use super::timeline_index::within;
use super::times::duration_ns;
use crate::format::TraceHeader;
use crate::format::TracedFaultAction;
use crate::timeline::{RefusedCall, Timeline, TimelineEventKind, TimelineProcess, TracedQueuePair};

/// Shortest delay of a receive's poll that is reported, in ns.
const POLLED_LATE_NS: u64 = 5_000_000;
/// A call that a plan fails is refused within this time, in ns.
const PLANNED_NS: u64 = 1_000_000;
/// The errno of a post to a full queue.
const ENOMEM: i32 = 12;
/// Shortest age at which a completion that was never polled is reported, in ns.
const NEVER_POLLED_NS: u64 = 500_000_000;

/// Adds the causes that belong to no send request.
pub(super) fn of_the_run(timeline: &Timeline, builders: &mut Vec<CauseGroupBuilder>) {
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

/// Adds each rule that applied, even if it held up no message.
fn planned(process: usize, one: &TimelineProcess, builders: &mut Vec<CauseGroupBuilder>) {
    let mut known: HashSet<String> =
        builders.iter().filter_map(|builder| builder.cause.rule.clone()).collect();
    for fact in &one.evidence.faults {
        if known.contains(&fact.rule) {
            continue;
        }
        known.insert(fact.rule.clone());
        let cause = cause_of(fact, process);
        let lasts_ns = fact.until_ns().min(one.span_ns.1.max(fact.at_ns));
        let stretches = vec![(fact.at_ns, lasts_ns)];
        let ns = lasts_ns.saturating_sub(fact.at_ns);
        let failed = fact.what == TracedFaultAction::CallFailed;
        add(builders, CauseVerdict { cause, ns, stretches }, fact.at_ns, None, failed);
    }
}

/// Adds posts that were refused because the send queue was full.
fn full_queues(process: usize, one: &TimelineProcess, builders: &mut Vec<CauseGroupBuilder>) {
    let is_post = |call: &str| Call::of(call).is_some_and(Call::sends);
    let is_planned = |refusal: &RefusedCall| {
        let from_ns = refusal.at_ns.saturating_sub(PLANNED_NS - 1);
        let near = within(&one.evidence.faults, |fact| fact.at_ns, (from_ns, refusal.at_ns));
        near.iter().any(|fact| fact.what == TracedFaultAction::CallFailed && fact.subject == refusal.call)
    };
    let refused = one.evidence.refusals.iter();
    let full = refused.filter(|one| is_post(&one.call) && one.errno == ENOMEM && !is_planned(one));
    let mut full = full.peekable();
    while let Some(first) = full.next() {
        // A program that tries again and again is refused many times; these refusals count as one cause.
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
        let cause = MessageCause::new(CauseKind::SendQueueFull, process, sentence);
        let stretches = vec![(first.at_ns, last_ns)];
        let ns = last_ns.saturating_sub(first.at_ns);
        add(builders, CauseVerdict { cause, ns, stretches }, first.at_ns, None, false);
    }
}

/// Adds receives whose completions waited for a poll, unless a send request shows the same.
fn late_receives(process: usize, one: &TimelineProcess, builders: &mut Vec<CauseGroupBuilder>) {
    let others = builders.iter().filter(|one| one.cause.kind != CauseKind::ReceivePolledLate);
    let known = CoveredTime::of(others);
    for qp in &one.queue_pairs {
        for receive in &qp.receives {
            let from_ns = receive.end.at_ns;
            let to_ns = receive.polled_ns.unwrap_or(one.span_ns.1);
            let ns = to_ns.saturating_sub(from_ns);
            let stretch = (from_ns, to_ns);
            if ns < POLLED_LATE_NS || known.has_most_of(stretch) {
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
            let cause = MessageCause::new(CauseKind::ReceivePolledLate, process, sentence);
            add(builders, CauseVerdict { cause, ns, stretches: vec![stretch] }, from_ns, None, false);
        }
    }
}

/// Adds the first logged sentence of each queue pair without a failed request.
fn logged(process: usize, one: &TimelineProcess, builders: &mut Vec<CauseGroupBuilder>) {
    let has_failed = |qp: &TracedQueuePair| {
        qp.messages.iter().any(|message| message.end.is_some_and(|end| end.status != 0))
            || qp.receives.iter().any(|receive| receive.end.status != 0 && receive.end.status != FLUSHED)
    };
    for qp in one.queue_pairs.iter().filter(|qp| !has_failed(qp)) {
        let Some(moment) = qp.moments.iter().find(|moment| moment.kind == TimelineEventKind::Log) else {
            continue;
        };
        let cause =
            MessageCause::new(CauseKind::Logged, process, format!("QP {:#x} {}", qp.qpn, moment.text));
        let stretches = vec![(moment.at_ns, moment.at_ns)];
        add(builders, CauseVerdict { cause, ns: 0, stretches }, moment.at_ns, None, false);
    }
}

/// Adds times in which the process had no processor, unless a message shows the same.
fn stalls(process: usize, one: &TimelineProcess, builders: &mut Vec<CauseGroupBuilder>) {
    let known = CoveredTime::of(builders.iter().filter(|one| one.cause.kind != CauseKind::Scheduler));
    for (from_ns, to_ns) in &one.evidence.stalls_ns {
        let stretch = (*from_ns, *to_ns);
        if known.has_most_of(stretch) {
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
        let cause = MessageCause::new(CauseKind::Scheduler, process, sentence);
        add(builders, CauseVerdict { cause, ns, stretches: vec![stretch] }, *from_ns, None, false);
    }
}

/// Adds the longest time between two requests in which none was under way.
fn idle(timeline: &Timeline, builders: &mut Vec<CauseGroupBuilder>) {
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
    if CoveredTime::of(builders.iter()).has_most_of(stretch) {
        return;
    }
    // Requests from before the recording, or of a recording that began later, may have been under way.
    let is_open = |qp: &TracedQueuePair| qp.unseen > 0 || qp.unseen_until_ns.is_some_and(|ns| ns > from_ns);
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
    let cause = MessageCause::new(CauseKind::ProgramIdle, process, sentence);
    add(builders, CauseVerdict { cause, ns, stretches: vec![stretch] }, from_ns, None, false);
}

/// Adds completions of send requests that no poll has found, as long as the queue could be polled.
fn never_polled(process: usize, one: &TimelineProcess, builders: &mut Vec<CauseGroupBuilder>) {
    // A source that records no polls, such as a capture, cannot show that one is missing.
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
            let cause = MessageCause::new(CauseKind::PollsLate, process, sentence);
            let stretches = vec![(end.at_ns, end_ns)];
            add(builders, CauseVerdict { cause, ns, stretches }, end.at_ns, None, false);
        }
    }
}

/// Reports whether a process is known from captured packets only.
fn is_of_capture(header: &TraceHeader) -> bool {
    header.boot.starts_with("capture ")
}
