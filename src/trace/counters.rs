//! Counters of a timeline: requests under way of queue pairs, and unpolled completions of completion queues.

use std::collections::BTreeMap;

use pumice_device::trace::{Measure, TimelineProcess, TracedQueuePair};

/// The unit of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CounterUnit {
    Bytes,
    Packets,
    Nanoseconds,
    Naks,
    Completions,
    Paths,
    /// Paths that are skipped; no part of a plane's lane.
    SkippedPaths,
}

/// A counter of a queue pair.
#[derive(Debug)]
pub(super) struct CounterSeries {
    /// Name of the counter, in words.
    pub(super) name: &'static str,
    pub(super) unit: CounterUnit,
    /// Times in ns with values; each value holds until the next.
    pub(super) values: Vec<(u64, i64)>,
}

/// The number of completions in a completion queue that wait for the program.
#[derive(Debug, Default)]
pub(super) struct UnpolledCompletions {
    /// Completion queue, as its index in the table.
    pub(super) cq: u32,
    /// Indices of the queue pairs whose completions are in it.
    pub(super) queue_pairs: Vec<usize>,
    /// Times in ns with values; each value holds until the next.
    pub(super) values: Vec<(u64, i64)>,
}

/// Returns the counters of a queue pair: what is under way, what was sent again, and what was measured.
/// Counters without any value are included.
pub(super) fn of_queue_pair(qp: &TracedQueuePair) -> [CounterSeries; 6] {
    let mut steps = Vec::new();
    for message in &qp.messages {
        let over = message.acknowledged_ns.or(message.end.map(|end| end.at_ns));
        if let (Some(first), Some(over)) = (message.first_packet_ns, over) {
            steps.push((first, i64::from(message.bytes)));
            steps.push((over.max(first), -i64::from(message.bytes)));
        }
    }
    let again = qp.packets.iter().filter(|packet| packet.is_sent && packet.transmission > 1);
    let again = again.map(|packet| (packet.at_ns, 1)).collect();
    let refused = qp.rnr_naks_ns.iter().map(|at_ns| (*at_ns, 1)).collect();
    let counter = |name, unit, values| CounterSeries { name, unit, values };
    [
        counter("bytes under way", CounterUnit::Bytes, running(steps)),
        counter("packets sent again", CounterUnit::Packets, running(again)),
        counter("RNR NAKs", CounterUnit::Naks, running(refused)),
        counter("round trip", CounterUnit::Nanoseconds, measured(qp, |one| one.rtt_ns)),
        counter("window", CounterUnit::Packets, measured(qp, |one| Some(one.window_packets.into()))),
        counter(
            "packets in flight",
            CounterUnit::Packets,
            measured(qp, |one| Some(one.in_flight_packets.into())),
        ),
    ]
}

/// A counter: its name, its unit, and its values with their times in ns.
type PlaneCounter = (String, CounterUnit, Vec<(u64, i64)>);

/// Returns the number of GOOD paths of each plane of an MRC queue pair, and of skipped ones where there are
/// any, with the plane's name.
pub(super) fn of_planes(qp: &TracedQueuePair) -> Vec<PlaneCounter> {
    let values = |all: &[(u64, u32)]| all.iter().map(|(at_ns, count)| (*at_ns, i64::from(*count))).collect();
    let mut counters = Vec::new();
    for (plane, found) in qp.multipath.iter().flat_map(|paths| &paths.planes) {
        counters.push((format!("plane {plane}: GOOD paths"), CounterUnit::Paths, values(&found.good)));
        if !found.skipped.is_empty() {
            let name = format!("plane {plane}: skipped paths");
            counters.push((name, CounterUnit::SkippedPaths, values(&found.skipped)));
        }
    }
    counters
}

/// Returns the completions that wait for the program, by completion queue.
pub(super) fn of_completion_queues(process: &TimelineProcess) -> Vec<UnpolledCompletions> {
    let mut queues: BTreeMap<u32, UnpolledCompletions> = BTreeMap::new();
    for (index, qp) in process.queue_pairs.iter().enumerate() {
        let sends = qp.messages.iter().filter_map(|one| Some((one.end?, one.polled_ns)));
        let receives = qp.receives.iter().map(|one| (one.end, one.polled_ns));
        for (end, polled_ns) in sends.chain(receives).filter(|(end, _)| end.has_completion) {
            let waiting = queues.entry(end.cq).or_default();
            if waiting.queue_pairs.last() != Some(&index) {
                waiting.queue_pairs.push(index);
            }
            waiting.values.push((end.at_ns, 1));
            waiting.values.extend(polled_ns.map(|at_ns| (at_ns, -1)));
        }
    }
    let completed = |(cq, waiting): (u32, UnpolledCompletions)| UnpolledCompletions {
        cq,
        values: running(waiting.values),
        ..waiting
    };
    queues.into_iter().map(completed).collect()
}

fn measured(qp: &TracedQueuePair, value: fn(&Measure) -> Option<u64>) -> Vec<(u64, i64)> {
    let values = qp.measures.iter().filter_map(|one| Some((one.at_ns, value(one)?)));
    values.map(|(at_ns, value)| (at_ns, i64::try_from(value).unwrap_or(i64::MAX))).collect()
}

/// Sums the steps of a counter to its values.
fn running(mut steps: Vec<(u64, i64)>) -> Vec<(u64, i64)> {
    steps.sort_unstable();
    let mut value = 0;
    for (_, step) in &mut steps {
        value += *step;
        *step = value;
    }
    steps
}
