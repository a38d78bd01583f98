//! Compares the time of two runs of one program: which messages became slower, and why.
//!
//! Two runs in worlds with a performance model differ only where the program, or the model, does: so each
//! nanosecond counts. Of other runs, the caller says how much more is more.

use std::collections::{BTreeMap, BTreeSet};

use pumice_model::findings::{Fields, Finding, FindingFamily, FindingKind, Level};
use pumice_transport::types::SendOpcode;
use serde::Serialize;

use super::diff::{pairs, queue_pairs};
use super::timeline::{Message, SetbackKind, Timeline, TimelineProcess, TracedQueuePair};
use super::why::{PartKind, RunBounds, TimePart};

/// Maximum number of groups of messages that are reported.
const MAX_GROUPS: usize = 1000;

/// Messages of one operation and length of a queue pair that take longer.
static SLOWER_MESSAGES: FindingKind = FindingKind::new(
    "messages-slower",
    FindingFamily::Messages,
    Level::Error,
    "Messages take longer than in the run that they are compared with.",
);
/// The time from the first post to the last completion has grown.
static SLOWER_RUN: FindingKind = FindingKind::new(
    "run-slower",
    FindingFamily::Messages,
    Level::Error,
    "The run takes longer than the one that it is compared with.",
);

/// The time from the first post to the last completion has not grown.
static RUN_NO_SLOWER: FindingKind = FindingKind::new(
    "run-no-slower",
    FindingFamily::Messages,
    Level::Ok,
    "The run takes no longer than the one that it is compared with.",
);

/// The kinds of findings that a comparison makes.
pub const COMPARISON_KINDS: [&FindingKind; 3] = [&SLOWER_RUN, &RUN_NO_SLOWER, &SLOWER_MESSAGES];

/// Messages of a queue pair with one operation and length, in two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageGroup {
    /// Tag of the process.
    pub tag: String,
    /// Ordinal of the queue pair in the process.
    pub qp: u32,
    /// Operation and length, as in "SEND of 8 B".
    pub what: String,
    /// Number of messages that both runs have.
    pub messages: u64,
    /// Number of them that take longer in the second run.
    pub slower: u64,
    /// Mean time from the post until the completion was polled, in the first and in the second run, in ns.
    pub mean_ns: [u64; 2],
    /// Why they take longer, a sentence without a full stop each.
    pub reasons: Vec<String>,
}

/// The comparison of the time of two runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RunComparison {
    /// What bounds the first and the second run.
    pub bounds: [Option<RunBounds>; 2],
    /// The second run takes longer by more than the tolerance.
    pub is_slower: bool,
    /// Why the second run takes longer, a sentence without a full stop each.
    pub reasons: Vec<String>,
    /// Groups of messages that take longer by more than the tolerance, the greatest loss first.
    pub slower: Vec<MessageGroup>,
    /// Number of groups that take less time by more than the tolerance.
    pub faster: u64,
    /// Number of groups that both runs have.
    pub groups: u64,
}

impl RunComparison {
    /// Compares a run with an earlier one. A time is longer if it is more than `tolerance_ppm` millionths
    /// longer.
    pub fn between(first: &Timeline, second: &Timeline, tolerance_ppm: u32) -> RunComparison {
        let is_more = |ns: [u64; 2]| {
            u128::from(ns[1]) * 1_000_000 > u128::from(ns[0]) * (1_000_000 + u128::from(tolerance_ppm))
        };
        let bounds = [first, second].map(RunBounds::of);
        let mut all = RunComparison { bounds, ..RunComparison::default() };
        let totals = bounds.map(|bounds| bounds.map_or(0, |bounds| bounds.total_ns));
        all.is_slower = bounds.iter().all(Option::is_some) && is_more(totals);
        if let [Some(before), Some(now)] = &bounds
            && all.is_slower
        {
            all.reasons.extend(more_ways(before, now));
        }
        for (one, other) in matched(first, second) {
            if all.is_slower {
                let tag = &other.header.tag;
                all.reasons
                    .extend(reasons_of_program(one, other).into_iter().map(|why| format!("{tag}: {why}")));
            }
            for (qp, other_qp) in queue_pairs(Some(one), Some(other)) {
                let Some((qp, other_qp)) = qp.zip(other_qp) else { continue };
                for group in groups([one, other], [qp, other_qp]) {
                    all.groups += 1;
                    let [before, now] = group.mean_ns;
                    if is_more([now, before]) {
                        all.faster += 1;
                    } else if is_more([before, now]) {
                        all.slower.push(group);
                    }
                }
            }
        }
        if let [Some(before), Some(now)] = &bounds
            && all.is_slower
            && all.reasons.is_empty()
        {
            all.reasons.extend(longest_growth(before, now));
        }
        let loss =
            |group: &MessageGroup| (group.mean_ns[1] - group.mean_ns[0]).saturating_mul(group.messages);
        all.slower.sort_by_key(|group| std::cmp::Reverse(loss(group)));
        all.slower.truncate(MAX_GROUPS);
        all
    }

    /// Reports whether nothing takes longer.
    pub fn is_good(&self) -> bool {
        !self.is_slower && self.slower.is_empty()
    }

    /// Returns findings: one about the run, which is well if it takes no longer, and those about messages
    /// that take longer.
    pub fn findings(&self) -> Vec<Finding> {
        let totals = self.bounds.map(|bounds| bounds.map_or(0, |bounds| bounds.total_ns));
        let sentence = format!(
            "from the first post to the last completion {}{}",
            change(totals),
            because(&self.reasons)
        );
        let kind = if self.is_slower { &SLOWER_RUN } else { &RUN_NO_SLOWER };
        let evidence = Fields::of(&RunEvidence { total_ns: totals, reasons: &self.reasons });
        let run = Some(Finding::new(kind, "run", sentence).with_evidence(evidence));
        let groups = self.slower.iter().map(|group| {
            let MessageGroup { tag, qp, what, messages, slower, mean_ns, reasons } = group;
            let sentence = format!(
                "{slower} of {messages} take longer, on average {}{}",
                change(*mean_ns),
                because(reasons)
            );
            let subject = format!("{what} of queue pair {qp} of {tag}");
            Finding::new(&SLOWER_MESSAGES, subject, sentence).with_evidence(Fields::of(group))
        });
        run.into_iter().chain(groups).collect()
    }
}

/// The evidence of the finding about a run.
#[derive(Serialize)]
struct RunEvidence<'a> {
    total_ns: [u64; 2],
    reasons: &'a [String],
}

fn because(reasons: &[String]) -> String {
    if reasons.is_empty() { String::new() } else { format!("; {}", reasons.join("; ")) }
}

/// Returns two times in words, and how many percent the second is more.
fn change([before, now]: [u64; 2]) -> String {
    let percent = (now as f64 / before.max(1) as f64 - 1.0) * 100.0;
    format!("{} before, {} now ({percent:+.1} %)", exact(before), exact(now))
}

/// Returns a time in words, to the nanosecond if it is shorter than a millisecond.
fn exact(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.3} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

/// Pairs the processes of two runs: those of one tag, and the others in the order of their numbers, because
/// another build of a program may have another name.
fn matched<'a>(first: &'a Timeline, second: &'a Timeline) -> Vec<(&'a TimelineProcess, &'a TimelineProcess)> {
    let (mut both, mut before, mut now) = (Vec::new(), Vec::new(), Vec::new());
    for pair in pairs(first, second) {
        match pair {
            (Some(one), Some(other)) => both.push((one, other)),
            (Some(one), None) => before.push(one),
            (None, Some(other)) => now.push(other),
            (None, None) => {}
        }
    }
    let number = |process: &&TimelineProcess| process.header.process;
    before.sort_by_key(number);
    now.sort_by_key(number);
    both.extend(before.into_iter().zip(now));
    both
}

fn more_ways(before: &RunBounds, now: &RunBounds) -> Option<String> {
    let more = now.ways.checked_sub(before.ways).filter(|more| *more > 0)?;
    let trips = match more {
        1 => "one way more".to_owned(),
        2 => "one round trip more".to_owned(),
        more if more % 2 == 0 => format!("{} round trips more", more / 2),
        more => format!("{more} ways more"),
    };
    Some(format!(
        "{trips} one after the other: {} ways before, {} now (a round trip has two)",
        before.ways, now.ways
    ))
}

/// Names the part of the critical path that has grown most.
fn longest_growth(before: &RunBounds, now: &RunBounds) -> Option<String> {
    let grown = now.parts().into_iter().map(|(name, ns)| {
        let known = before.parts().into_iter().find(|(of, _)| *of == name);
        (ns.saturating_sub(known.map_or(0, |(_, ns)| ns)), name)
    });
    let (more, name) = grown.max().filter(|(more, _)| *more > 0)?;
    Some(format!("{} more for {name}", exact(more)))
}

/// Returns what a program does that takes more time than before.
fn reasons_of_program(before: &TimelineProcess, now: &TimelineProcess) -> Vec<String> {
    let both = [before, now];
    let mut reasons = Vec::new();
    let all = |process: &TimelineProcess| -> u64 {
        process.queue_pairs.iter().map(|qp| qp.messages.len() as u64).sum()
    };
    let [was, is] = both.map(all);
    if is > was {
        reasons.push(format!("{} send requests more: {was} before, {is} now", is - was));
    }
    let [rung, rings] = both.map(doorbells);
    if rings > rung && is == was {
        reasons.push(format!(
            "{rings} doorbells for {is} send requests, {rung} before: requests of one list, which one call \
             posts, share a doorbell"
        ));
    }
    let [was, is] = both.map(registrations);
    if is > was {
        reasons.push(format!(
            "memory is registered {is} times between the first post and the last completion, {was} times \
             before: register once, and use it again"
        ));
    }
    reasons
}

/// Counts the calls that posted: requests that were posted at one instant had one.
fn doorbells(process: &TimelineProcess) -> usize {
    let posted =
        |qp: &TracedQueuePair| qp.messages.iter().map(|one| one.posted_ns).collect::<BTreeSet<u64>>().len();
    process.queue_pairs.iter().map(posted).sum()
}

/// Counts the registrations behind the first post, and before the last request ended.
fn registrations(process: &TimelineProcess) -> usize {
    let messages = || process.queue_pairs.iter().flat_map(|qp| &qp.messages);
    let first_ns = messages().map(|one| one.posted_ns).min().unwrap_or(u64::MAX);
    let last_ns = messages().map(Message::last_ns).max().unwrap_or(0);
    process.evidence.registrations_ns.iter().filter(|ns| (first_ns..last_ns).contains(*ns)).count()
}

/// Groups the messages that both runs of a queue pair have.
fn groups(processes: [&TimelineProcess; 2], queue_pairs: [&TracedQueuePair; 2]) -> Vec<MessageGroup> {
    let [before, now] = queue_pairs.map(|qp| {
        let mut by_kind: BTreeMap<(u8, u32), Vec<&Message>> = BTreeMap::new();
        for message in qp.messages.iter().filter(|one| one.end.is_some_and(|end| end.status == 0)) {
            by_kind.entry((message.opcode, message.bytes)).or_default().push(message);
        }
        by_kind
    });
    let mut found = Vec::new();
    for ((opcode, bytes), before) in before {
        let Some(now) = now.get(&(opcode, bytes)) else { continue };
        let count = before.len().min(now.len());
        let both: Vec<(&Message, &Message)> = before.into_iter().zip(now.iter().copied()).collect();
        let name = SendOpcode::from_number(u32::from(opcode)).map_or("?", SendOpcode::name);
        let took = |message: &Message| message.last_ns().saturating_sub(message.posted_ns);
        let mean = |sum: u64| sum / (count as u64).max(1);
        found.push(MessageGroup {
            tag: processes[1].header.tag.clone(),
            qp: queue_pairs[1].ordinal,
            what: format!("{name} of {bytes} B"),
            messages: count as u64,
            slower: both.iter().filter(|(one, other)| took(other) > took(one)).count() as u64,
            mean_ns: [
                mean(both.iter().map(|(one, _)| took(one)).sum()),
                mean(both.iter().map(|(_, other)| took(other)).sum()),
            ],
            reasons: reasons_of_messages(processes, &both),
        });
    }
    found
}

/// Returns what is different about messages that take longer.
fn reasons_of_messages(processes: [&TimelineProcess; 2], both: &[(&Message, &Message)]) -> Vec<String> {
    let count = |is: &dyn Fn(&Message) -> bool| {
        let [mut was, mut now] = [0_u64; 2];
        for (one, other) in both {
            was += u64::from(is(one));
            now += u64::from(is(other));
        }
        (was, now)
    };
    let mut reasons = Vec::new();
    let (was, now) = count(&|message| message.inline);
    if now < was {
        reasons.push(format!(
            "{was} were posted inline before, {now} now: the adapter has to fetch their payload"
        ));
    }
    let is_rnr = |message: &Message| {
        message.setbacks.iter().any(|one| matches!(one.kind, SetbackKind::ReceiverNotReady { .. }))
    };
    let (was, now) = count(&is_rnr);
    if now > was {
        reasons.push(format!(
            "{now} waited after an RNR NAK, {was} before: the peer had posted no receive request"
        ));
    }
    let (was, now) = count(&|message| message.transmissions > 1 && !is_rnr(message));
    if now > was {
        reasons.push(format!("packets of {now} were sent again, of {was} before"));
    }
    if reasons.is_empty() {
        reasons.extend(longest_part(processes, both));
    }
    reasons
}

/// Names the part of the messages' time that has grown most.
fn longest_part(processes: [&TimelineProcess; 2], both: &[(&Message, &Message)]) -> Option<String> {
    let mut sums: BTreeMap<PartKind, [u64; 2]> = BTreeMap::new();
    for (one, other) in both {
        for (run, message) in [one, other].into_iter().enumerate() {
            let Some(process) = processes.get(run) else { continue };
            for part in TimePart::of(process, message).1 {
                if let Some(sum) = sums.entry(part.kind).or_default().get_mut(run) {
                    *sum += part.ns;
                }
            }
        }
    }
    let grown = sums.into_iter().map(|(kind, [was, now])| (now.saturating_sub(was), kind));
    let (more, kind) = grown.max_by_key(|(more, _)| *more).filter(|(more, _)| *more > 0)?;
    Some(format!("{} more each {}", exact(more / (both.len() as u64).max(1)), kind.words()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::RequestEnd;

    fn run(posted: &[u64], took_ns: u64, inline: bool, registrations_ns: &[u64]) -> Timeline {
        let message = |(number, posted_ns): (usize, &u64)| Message {
            number: number as u64,
            opcode: 2,
            bytes: 8,
            inline,
            posted_ns: *posted_ns,
            first_packet_ns: Some(*posted_ns),
            acknowledged_ns: Some(posted_ns + took_ns),
            polled_ns: Some(posted_ns + took_ns),
            end: Some(RequestEnd { at_ns: posted_ns + took_ns, status: 0, cq: 0, has_completion: true }),
            ..Message::default()
        };
        let messages = posted.iter().enumerate().map(message).collect();
        let mut process = TimelineProcess {
            queue_pairs: vec![TracedQueuePair { messages, ..TracedQueuePair::default() }],
            ..TimelineProcess::default()
        };
        process.evidence.registrations_ns = registrations_ns.to_vec();
        process.header.tag = "p".to_owned();
        Timeline { processes: vec![process], ..Timeline::default() }
    }

    #[test]
    fn a_run_is_no_slower_than_itself() {
        let one = run(&[10, 10, 500], 100, true, &[]);
        let compared = RunComparison::between(&one, &one, 0);
        assert!(compared.is_good() && compared.groups == 1);
        let said: Vec<&str> = compared.findings().iter().map(|finding| finding.kind.name).collect();
        assert_eq!(said, ["run-no-slower"]);
    }

    #[test]
    fn what_takes_longer_has_its_reasons() {
        let before = run(&[10, 10, 10], 100, true, &[5]);
        let now = run(&[10, 85, 160], 140, false, &[5, 90]);
        let compared = RunComparison::between(&before, &now, 0);
        let said: Vec<String> = compared.findings().into_iter().map(|finding| finding.sentence).collect();
        let [of_run, of_messages] = &said[..] else { panic!("{said:?}") };
        assert!(
            of_run.starts_with("from the first post to the last completion 100 ns before, 290 ns now"),
            "{of_run}"
        );
        assert!(of_run.contains("p: 3 doorbells for 3 send requests, 1 before"), "{of_run}");
        assert!(of_run.contains("memory is registered 1 times between"), "{of_run}");
        let wanted =
            "3 of 3 take longer, on average 100 ns before, 140 ns now (+40.0 %); 3 were posted inline";
        assert!(of_messages.starts_with(wanted), "{of_messages}");
        // What is tolerated is not reported, and what became faster neither.
        assert!(RunComparison::between(&before, &now, 2_000_000).is_good());
        let back = RunComparison::between(&now, &before, 0);
        assert_eq!((back.is_good(), back.faster), (true, 1));
    }
}
