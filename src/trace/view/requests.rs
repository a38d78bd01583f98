//! Columns of the page: work requests, counters, and the indices of queue pairs.
//!
//! Counters as columns of the page: requests under way of queue pairs, and unpolled completions of completion
//! queues.

use pumice_device::trace::{
    Message, PartKind, Receive, TimePart, Timeline, TimelineProcess, TracedQueuePair,
};
use pumice_transport::types::{SendOpcode, WcStatus};
use serde::Serialize;

use super::super::counters::{self, CounterUnit};

/// The indices in the page of the queue pairs of all processes, one process after the other.
#[derive(Debug)]
pub(super) struct QpNumbering {
    /// Index of each process's first queue pair.
    firsts: Vec<usize>,
}

impl QpNumbering {
    pub(super) fn of(timeline: &Timeline) -> QpNumbering {
        let mut next = 0;
        let firsts = timeline.processes.iter().map(|process| {
            next += process.queue_pairs.len();
            next - process.queue_pairs.len()
        });
        QpNumbering { firsts: firsts.collect() }
    }

    /// Returns the index of a queue pair of a process.
    pub(super) fn index(&self, process: usize, queue_pair: usize) -> usize {
        self.firsts.get(process).map_or(queue_pair, |first| first + queue_pair)
    }
}

/// Returns the process and the queue pair of the peer, if its trace is among these.
pub(super) fn peer(timeline: &Timeline, qp: &TracedQueuePair) -> Option<(usize, usize)> {
    let (address, qpn) = qp.peer?;
    timeline.processes.iter().enumerate().find_map(|(process, one)| {
        let queue_pair = one.queue_pairs.iter().position(|other| other.qpn == qpn)?;
        one.header.addresses.contains(&address).then_some((process, queue_pair))
    })
}

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

/// Index of the part of a receive request's time before its message arrived: it follows those of send
/// requests.
const UNTIL_A_MESSAGE: usize = PartKind::ALL.len();

/// Columns with a row for each work request. Times other than `posted_ns` are ns after it was posted, or -1.
#[derive(Debug, Default, Serialize)]
pub(super) struct RequestColumns {
    queue_pair: Vec<usize>,
    /// 0: send request; 1: receive request.
    is_receive: Vec<u8>,
    /// Ordinal since the queue pair was reset.
    number: Vec<u64>,
    /// The `wr_id` as text, because JavaScript numbers have only 53 bits.
    wr_id: Vec<String>,
    /// Index in `operations`.
    operation: Vec<usize>,
    /// Index in `statuses`; -1 if the request has not ended.
    status: Vec<i32>,
    bytes: Vec<u32>,
    posted_ns: Vec<u64>,
    /// Time until its completion was polled, or the trace ended, in ns.
    duration_ns: Vec<u64>,
    first_packet_ns: Vec<i64>,
    last_packet_ns: Vec<i64>,
    acknowledged_ns: Vec<i64>,
    completed_ns: Vec<i64>,
    polled_ns: Vec<i64>,
    psn: Vec<u32>,
    packets: Vec<u32>,
    packets_sent: Vec<u32>,
    transmissions: Vec<u32>,
    signaled: Vec<u8>,
    /// Pairs of the kind of a part of the time, and its length in ns, in the order of a message's life.
    parts: Vec<Vec<u64>>,
    operations: Vec<String>,
    statuses: Vec<String>,
    /// Row of each message, by queue pair and index there.
    #[serde(skip)]
    rows: Vec<Vec<usize>>,
}

/// A request before it has its row.
enum RequestSource<'a> {
    Send(&'a TimelineProcess, &'a Message, usize),
    Receive(&'a Receive, usize),
}

impl RequestColumns {
    pub(super) fn of(timeline: &Timeline, numbering: &QpNumbering) -> RequestColumns {
        let mut sources = Vec::new();
        let mut requests = RequestColumns::default();
        for (process, one) in timeline.processes.iter().enumerate() {
            for (index, qp) in one.queue_pairs.iter().enumerate() {
                let queue_pair = numbering.index(process, index);
                let TracedQueuePair { messages, receives, .. } = qp;
                requests.rows.push(vec![0; messages.len()]);
                let sends = messages.iter().enumerate().map(|(number, message)| {
                    (message.posted_ns, queue_pair, RequestSource::Send(one, message, number))
                });
                sources.extend(sends);
                let receives = receives.iter().enumerate();
                sources.extend(receives.map(|(number, receive)| {
                    let posted_ns = receive.posted_ns.unwrap_or(receive.end.at_ns);
                    (posted_ns, queue_pair, RequestSource::Receive(receive, number))
                }));
            }
        }
        sources.sort_by_key(|(posted_ns, ..)| *posted_ns);
        for (row, (posted_ns, queue_pair, source)) in sources.into_iter().enumerate() {
            requests.queue_pair.push(queue_pair);
            requests.posted_ns.push(posted_ns);
            match source {
                RequestSource::Send(process, message, number) => {
                    if let Some(entry) = requests.rows.get_mut(queue_pair).and_then(|of| of.get_mut(number)) {
                        *entry = row;
                    }
                    requests.push_send(process, message);
                }
                RequestSource::Receive(receive, number) => requests.push_receive(receive, posted_ns, number),
            }
        }
        requests
    }

    /// Returns the row of a message, by the index of its queue pair and its own index there.
    pub(super) fn of_message(&self, queue_pair: usize, message: usize) -> Option<usize> {
        self.rows.get(queue_pair)?.get(message).copied()
    }

    fn push_send(&mut self, process: &TimelineProcess, message: &Message) {
        let after =
            |at_ns: Option<u64>| at_ns.map_or(-1, |at_ns| at_ns.saturating_sub(message.posted_ns) as i64);
        let operation = SendOpcode::from_number(u32::from(message.opcode));
        let operation =
            operation.map_or_else(|| format!("operation {}", message.opcode), |one| one.name().to_owned());
        let (duration_ns, mut parts) = TimePart::of(process, message);
        let ordinal = |part: &TimePart| PartKind::ALL.iter().position(|kind| *kind == part.kind).unwrap_or(0);
        parts.sort_by_key(ordinal);
        self.is_receive.push(0);
        self.number.push(message.number);
        self.wr_id.push(format!("{:#x}", message.wr_id));
        self.operation.push(index_in(&mut self.operations, operation));
        let status = message.end.map(|end| status_name(end.status));
        self.status.push(status.map_or(-1, |name| index_in(&mut self.statuses, name) as i32));
        self.bytes.push(message.bytes);
        self.duration_ns.push(duration_ns);
        self.first_packet_ns.push(after(message.first_packet_ns));
        self.last_packet_ns.push(after(message.last_packet_ns));
        self.acknowledged_ns.push(after(message.acknowledged_ns));
        self.completed_ns.push(after(message.end.map(|end| end.at_ns)));
        self.polled_ns.push(after(message.polled_ns));
        self.psn.push(message.psn);
        self.packets.push(message.packets);
        self.packets_sent.push(message.packets_sent);
        self.transmissions.push(message.transmissions);
        self.signaled.push(u8::from(message.signaled));
        self.parts.push(parts.iter().flat_map(|part| [ordinal(part) as u64, part.ns]).collect());
    }

    fn push_receive(&mut self, receive: &Receive, posted_ns: u64, number: usize) {
        let completed_ns = receive.end.at_ns.saturating_sub(posted_ns);
        let polled_ns = receive.polled_ns.map(|at_ns| at_ns.saturating_sub(posted_ns));
        let duration_ns = polled_ns.unwrap_or(completed_ns).max(completed_ns);
        let poll = PartKind::ALL.iter().position(|kind| *kind == PartKind::Poll).unwrap_or(0);
        let parts = [(UNTIL_A_MESSAGE, completed_ns), (poll, duration_ns - completed_ns)];
        let parts = parts.into_iter().filter(|(_, ns)| *ns > 0);
        self.is_receive.push(1);
        self.number.push(number as u64);
        self.wr_id.push(format!("{:#x}", receive.wr_id));
        self.operation.push(index_in(&mut self.operations, "RECV".to_owned()));
        self.status.push(index_in(&mut self.statuses, status_name(receive.end.status)) as i32);
        self.bytes.push(receive.bytes);
        self.duration_ns.push(duration_ns);
        self.first_packet_ns.push(-1);
        self.last_packet_ns.push(-1);
        self.acknowledged_ns.push(-1);
        self.completed_ns.push(completed_ns as i64);
        self.polled_ns.push(polled_ns.map_or(-1, |ns| ns as i64));
        self.psn.push(0);
        self.packets.push(0);
        self.packets_sent.push(0);
        self.transmissions.push(0);
        self.signaled.push(1);
        self.parts.push(parts.flat_map(|(kind, ns)| [kind as u64, ns]).collect());
    }
}

fn status_name(status: u8) -> String {
    let known = WcStatus::ALL.into_iter().find(|known| *known as u8 == status);
    known.map_or_else(|| format!("status {status}"), |known| known.name().to_owned())
}

/// Returns the index of a name in a short list, to which it is added if it is missing.
fn index_in(names: &mut Vec<String>, name: String) -> usize {
    names.iter().position(|known| *known == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
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
