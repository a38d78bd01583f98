//! One clock for all processes: that of the host, or its wall clock where they are of several hosts or boots.

use super::model::{Message, Process, Timeline};

/// By what the processes are put beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    /// The monotonic clock of the host that all ran on.
    Monotonic,
    /// The wall clocks of several hosts.
    Wall,
}

/// Makes all times those since the first record of all.
pub(super) fn align(timeline: &mut Timeline) -> Times {
    let first_boot = timeline.processes.first().map(|process| process.header.boot.clone());
    let is_one = timeline.processes.iter().all(|process| Some(&process.header.boot) == first_boot.as_ref());
    let times = if is_one { Times::Monotonic } else { Times::Wall };
    let base = |process: &Process| match times {
        Times::Monotonic => process.header.monotonic_base_ns,
        Times::Wall => process.header.wall_base_ns,
    };
    let first = |process: &Process| base(process).wrapping_add(process.span_ns.0);
    // A process without records has no time.
    let told = timeline.processes.iter().filter(|process| process.span_ns.0 <= process.span_ns.1);
    let origin = told.map(first).min().unwrap_or(0);
    for process in &mut timeline.processes {
        let shift = base(process).wrapping_sub(origin);
        shift_process(process, shift);
    }
    times
}

/// Says what does not fit together.
pub(super) fn check(timeline: &mut Timeline, times: Times) {
    if times == Times::Wall {
        timeline.remarks.push(
            "the traces are of several hosts or boots: they are put beside each other by their wall clocks, \
             which may differ"
                .to_owned(),
        );
    }
    if timeline.processes.len() < 2 {
        return;
    }
    for (place, process) in timeline.processes.iter().enumerate() {
        let has_packets = process.queue_pairs.iter().any(|qp| !qp.packets.is_empty());
        let meets = |arrow: &super::Arrow| arrow.from.process == place || arrow.to.process == place;
        if has_packets && !timeline.arrows.iter().any(meets) {
            timeline.remarks.push(format!(
                "no packet of process {} ({}) was sent or received by another process of these traces: they \
                 may not belong together",
                process.header.process, process.header.program
            ));
        }
    }
}

fn shift_process(process: &mut Process, shift: u64) {
    let later = |at_ns: &mut u64| *at_ns = at_ns.wrapping_add(shift);
    later(&mut process.span_ns.0);
    later(&mut process.span_ns.1);
    process.moments.iter_mut().for_each(|moment| later(&mut moment.at_ns));
    for qp in &mut process.queue_pairs {
        qp.moments.iter_mut().for_each(|moment| later(&mut moment.at_ns));
        qp.packets.iter_mut().for_each(|packet| later(&mut packet.at_ns));
        qp.measures.iter_mut().for_each(|measure| later(&mut measure.at_ns));
        qp.rnr_naks_ns.iter_mut().for_each(later);
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
