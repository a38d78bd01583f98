//! Counters as columns of the page: requests under way of queue pairs, and unpolled completions of completion
//! queues.

use pumice_device::trace::Timeline;
use serde::Serialize;

use super::super::counters::{self, CounterUnit};
use super::numbering::QpNumbering;

/// Maximum number of counter values in a page: a browser needs 16 bytes for each.
const MAX_VALUES: usize = 1_000_000;

/// A counter; a value holds until the next one.
#[derive(Debug, Serialize)]
pub(super) struct CounterRow {
    /// Indices of the queue pairs that the counter belongs to, in ascending order.
    queue_pairs: Vec<usize>,
    name: String,
    /// Unit of the values; empty where the name says it.
    unit: &'static str,
    /// Time of each value after the one before, in ns.
    after_ns: Vec<u64>,
    value: Vec<i64>,
}

/// Returns the counters that have values, and the number of values beyond the limit.
pub(super) fn rows(timeline: &Timeline, numbering: &QpNumbering) -> (Vec<CounterRow>, usize) {
    let (mut rows, mut room, mut left_out) = (Vec::new(), MAX_VALUES, 0);
    let mut put = |queue_pairs, name: String, unit, values: Vec<(u64, i64)>| {
        let mut values = changes(values);
        left_out += values.len().saturating_sub(room);
        values.truncate(room);
        room -= values.len();
        if !values.is_empty() {
            rows.push(CounterRow::new(queue_pairs, name, unit, &values));
        }
    };
    for (process, one) in timeline.processes.iter().enumerate() {
        for (index, qp) in one.queue_pairs.iter().enumerate() {
            for (name, unit, values) in counters::of_planes(qp) {
                put(vec![numbering.index(process, index)], name, unit, values);
            }
            for counter in counters::of_queue_pair(qp) {
                let queue_pairs = vec![numbering.index(process, index)];
                put(queue_pairs, counter.name.to_owned(), counter.unit, counter.values);
            }
        }
        for waiting in counters::of_completion_queues(one) {
            let indices = waiting.queue_pairs.iter().map(|index| numbering.index(process, *index));
            let name = format!("CQ {}: completions that wait", waiting.cq);
            put(indices.collect(), name, CounterUnit::Completions, waiting.values);
        }
    }
    (rows, left_out)
}

/// Returns the values in order of time, without those that change nothing.
fn changes(mut values: Vec<(u64, i64)>) -> Vec<(u64, i64)> {
    values.sort_by_key(|(at_ns, _)| *at_ns);
    values.dedup_by_key(|(_, value)| *value);
    values
}

impl CounterRow {
    fn new(queue_pairs: Vec<usize>, name: String, unit: CounterUnit, values: &[(u64, i64)]) -> CounterRow {
        let mut before_ns = 0;
        let after_ns = values.iter().map(|(at_ns, _)| at_ns - std::mem::replace(&mut before_ns, *at_ns));
        let unit = match unit {
            CounterUnit::Nanoseconds => "ns",
            CounterUnit::Bytes => "B",
            CounterUnit::Paths => "paths",
            CounterUnit::SkippedPaths
            | CounterUnit::Packets
            | CounterUnit::Naks
            | CounterUnit::Completions => "",
        };
        let after_ns = after_ns.collect();
        CounterRow {
            queue_pairs,
            name,
            unit,
            after_ns,
            value: values.iter().map(|(_, value)| *value).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_nothing_is_left_out_and_times_are_in_order() {
        let values = changes(vec![(5, 1), (9, 1), (7, 1), (20, 2), (30, 2), (25, 3)]);
        assert_eq!(values, [(5, 1), (20, 2), (25, 3), (30, 2)]);
        let row = CounterRow::new(vec![0], String::new(), CounterUnit::Bytes, &values);
        assert_eq!((row.after_ns, row.value), (vec![5, 15, 5, 5], vec![1, 2, 3, 2]));
    }
}
