//! Counters of a timeline: what queue pairs have under way, and what completion queues hold.

use std::collections::BTreeMap;
use std::io;

use pumice_device::trace::{Process, QueuePair};

use super::sink::{CounterTrack, Sink, Unit};

/// What a queue pair has under way, what it has sent again, and what it measured.
pub(super) fn of_queue_pair(out: &mut dyn Sink, qp: &QueuePair, process: u64) -> io::Result<()> {
    let mut put = |what: &str, unit, values: &[(u64, i64)]| {
        let name = format!("QP {:#x}: {what}", qp.qpn);
        out.counter(CounterTrack { process, name: &name, unit }, values)
    };
    let mut steps = Vec::new();
    for message in &qp.messages {
        let over = message.acknowledged_ns.or(message.end.map(|end| end.at_ns));
        if let (Some(first), Some(over)) = (message.first_packet_ns, over) {
            steps.push((first, i64::from(message.bytes)));
            steps.push((over.max(first), -i64::from(message.bytes)));
        }
    }
    put("bytes under way", Unit::Bytes, &running(steps))?;
    let again = qp.packets.iter().filter(|packet| packet.is_sent && packet.transmission > 1);
    put("packets sent again", Unit::Packets, &running(again.map(|packet| (packet.at_ns, 1)).collect()))?;
    put("RNR NAKs", Unit::Naks, &running(qp.rnr_naks_ns.iter().map(|at_ns| (*at_ns, 1)).collect()))?;
    let measured = |value: fn(&pumice_device::trace::Measure) -> Option<u64>| -> Vec<(u64, i64)> {
        let values = qp.measures.iter().filter_map(|one| Some((one.at_ns, value(one)?)));
        values.map(|(at_ns, value)| (at_ns, i64::try_from(value).unwrap_or(i64::MAX))).collect()
    };
    put("round trip", Unit::Nanoseconds, &measured(|one| one.rtt_ns))?;
    put("window", Unit::Packets, &measured(|one| Some(one.window_packets.into())))?;
    put("packets in flight", Unit::Packets, &measured(|one| Some(one.in_flight_packets.into())))
}

/// Completions that wait for the program.
pub(super) fn of_completion_queues(out: &mut dyn Sink, process: &Process, pid: u64) -> io::Result<()> {
    let mut queues: BTreeMap<u32, Vec<(u64, i64)>> = BTreeMap::new();
    for qp in &process.queue_pairs {
        let sends = qp.messages.iter().filter_map(|one| Some((one.end?, one.polled_ns)));
        let receives = qp.receives.iter().map(|one| (one.end, one.polled_ns));
        for (end, polled_ns) in sends.chain(receives).filter(|(end, _)| end.has_completion) {
            let steps = queues.entry(end.cq).or_default();
            steps.push((end.at_ns, 1));
            steps.extend(polled_ns.map(|at_ns| (at_ns, -1)));
        }
    }
    for (cq, steps) in queues {
        let name = format!("CQ {cq}: completions that wait");
        let track = CounterTrack { process: pid, name: &name, unit: Unit::Completions };
        out.counter(track, &running(steps))?;
    }
    Ok(())
}

/// The values of a counter, from its steps.
fn running(mut steps: Vec<(u64, i64)>) -> Vec<(u64, i64)> {
    steps.sort_unstable();
    let mut value = 0;
    for (_, step) in &mut steps {
        value += *step;
        *step = value;
    }
    steps
}
