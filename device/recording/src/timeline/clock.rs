//! A common clock for all processes: the clock of their host, or the clocks of several hosts, aligned.

use super::hosts::{self, ClockAlignment};
use super::{Message, Timeline, TimelineProcess};

/// Converts all times to ns since the trace that began first: they are those that `pumice trace list` prints
/// of it.
pub(super) fn align(timeline: &mut Timeline) {
    let mut boots: Vec<&str> = Vec::new();
    let mut host_of = Vec::new();
    for process in &timeline.processes {
        let boot = process.header.boot.as_str();
        let known = boots.iter().position(|other| *other == boot);
        host_of.push(known.unwrap_or(boots.len()));
        if known.is_none() {
            boots.push(boot);
        }
    }
    let alignments = if boots.len() > 1 {
        hosts::alignments(timeline, &host_of, boots.len())
    } else {
        vec![ClockAlignment { shift_ns: 0, by: None }]
    };
    let base = |(process, host): (&TimelineProcess, &usize)| {
        let shift_ns = alignments.get(*host).map_or(0, |alignments| alignments.shift_ns);
        // The arithmetic is modulo 2^64, because only differences count.
        process.header.monotonic_base_ns.wrapping_add(shift_ns as u64)
    };
    let bases: Vec<u64> = timeline.processes.iter().zip(&host_of).map(base).collect();
    // A process without records has no time.
    let has_records =
        timeline.processes.iter().zip(&bases).filter(|(process, _)| process.span_ns.0 <= process.span_ns.1);
    let begins = has_records.map(|(_, base)| *base);
    let some = begins.clone().next().unwrap_or(0);
    let earliest_ns = begins.map(|begin| begin.wrapping_sub(some) as i64).min().unwrap_or(0);
    let origin = some.wrapping_add(earliest_ns as u64);
    for (process, base) in timeline.processes.iter_mut().zip(&bases) {
        shift_process(process, base.wrapping_sub(origin));
    }
    add_remarks(timeline, &host_of, &alignments);
}

/// Adds remarks that say how the clocks of the hosts were aligned.
fn add_remarks(timeline: &mut Timeline, host_of: &[usize], alignments: &[ClockAlignment]) {
    for (host, alignments) in alignments.iter().enumerate().skip(1) {
        let Some(by) = alignments.by else { continue };
        let first = host_of.iter().position(|one| *one == host);
        let Some(header) = first.and_then(|index| timeline.processes.get(index)).map(|one| &one.header)
        else {
            continue;
        };
        let right = if by.error_ns < 0 {
            let ns = by.error_ns.abs();
            format!("the clocks have run apart by some {ns} ns meanwhile")
        } else {
            format!("that is right within {} ns, half of a round trip", by.error_ns)
        };
        timeline.remarks.push(format!(
            "the clock of the host of {} {} was put beside another one's by {} packets each way; {right}",
            header.program, header.process, by.packets
        ));
    }
    if alignments.iter().skip(1).any(|alignments| alignments.by.is_none()) {
        timeline.remarks.push(
            "the traces are of several hosts or boots, and no packets say how their clocks differ: they are \
             put beside each other by their wall clocks, which may differ"
                .to_owned(),
        );
    }
}

/// Adds remarks about times that contradict each other.
pub(super) fn check(timeline: &mut Timeline) {
    if timeline.processes.len() < 2 {
        return;
    }
    let mut meets = vec![false; timeline.processes.len()];
    for index in timeline.arrows.iter().flat_map(|arrow| [arrow.from.process, arrow.to.process]) {
        if let Some(meets) = meets.get_mut(index) {
            *meets = true;
        }
    }
    let has_packets = |process: &TimelineProcess| process.queue_pairs.iter().any(|qp| !qp.packets.is_empty());
    let alone = timeline.processes.iter().zip(meets).filter(|(one, meets)| !meets && has_packets(one));
    let name = |one: &TimelineProcess| format!("{} ({})", one.header.process, one.header.program);
    let alone: Vec<String> = alone.map(|(one, _)| name(one)).collect();
    if alone.is_empty() {
        return;
    }
    let names = alone.join(" and of ");
    timeline.remarks.push(format!(
        "no packet of process {names} was sent or received by another process of these traces: they may not \
         belong together"
    ));
}

fn shift_process(process: &mut TimelineProcess, shift: u64) {
    let later = |at_ns: &mut u64| *at_ns = at_ns.wrapping_add(shift);
    later(&mut process.span_ns.0);
    later(&mut process.span_ns.1);
    process.began_ns.iter_mut().for_each(later);
    process.moments.iter_mut().for_each(|moment| later(&mut moment.at_ns));
    process.evidence.shift(later);
    for qp in &mut process.queue_pairs {
        qp.moments.iter_mut().for_each(|moment| later(&mut moment.at_ns));
        qp.unseen_until_ns.iter_mut().for_each(later);
        qp.packets.iter_mut().for_each(|packet| later(&mut packet.at_ns));
        qp.measures.iter_mut().for_each(|measure| later(&mut measure.at_ns));
        qp.rnr_naks_ns.iter_mut().for_each(later);
        qp.congestion.iter_mut().for_each(|one| later(&mut one.at_ns));
        qp.duplicates.iter_mut().for_each(|(at_ns, _)| later(at_ns));
        for receive in &mut qp.receives {
            later(&mut receive.end.at_ns);
            receive.posted_ns.iter_mut().chain(&mut receive.polled_ns).for_each(later);
        }
        qp.messages.iter_mut().for_each(|message| shift_message(message, &later));
    }
}

fn shift_message(message: &mut Message, later: &impl Fn(&mut u64)) {
    later(&mut message.posted_ns);
    let known = message.first_packet_ns.iter_mut().chain(&mut message.last_packet_ns);
    known.chain(&mut message.acknowledged_ns).chain(&mut message.polled_ns).for_each(later);
    if let Some(end) = &mut message.end {
        later(&mut end.at_ns);
    }
    for setback in &mut message.setbacks {
        later(&mut setback.at_ns);
        later(&mut setback.silent_since_ns);
    }
}
