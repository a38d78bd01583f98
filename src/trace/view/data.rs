//! The data that the page's script reads: lists of processes and queue pairs, and columns of requests and
//! packets.
//!
//! Times are ns since the trace that began first. A column has a number for each row; -1 means unknown.
//! `page/data.js` reads it.

use pumice_device::trace::{MessageStories, PartKind, Timeline, TimelineEvent};
use serde::Serialize;

use super::flights::PacketColumns;
use super::requests;
use super::requests::{CounterRow, QpNumbering, RequestColumns, peer};

/// Maximum number of packets in a page: a browser needs some 200 bytes for each.
const MAX_PACKETS: usize = 2_000_000;
/// Number of the slowest requests that have a story, besides those that failed.
const MAX_EXPLANATIONS: usize = 500;
/// Maximum number of moments in a page.
const MAX_TIMELINE_EVENTS: usize = 200_000;

#[derive(Debug, Serialize)]
pub(super) struct PageData {
    end_ns: u64,
    remarks: Vec<String>,
    processes: Vec<ProcessRow>,
    queue_pairs: Vec<QueuePairRow>,
    /// Names of the parts of a request's time; the last one is of receive requests.
    parts: Vec<&'static str>,
    requests: RequestColumns,
    /// Stories of some requests: the row of the request, and its story in words.
    stories: Vec<(usize, String)>,
    packets: PacketColumns,
    counters: Vec<CounterRow>,
    moments: Vec<TimelineEventRow>,
}

#[derive(Debug, Serialize)]
struct ProcessRow {
    process: u32,
    program: String,
    tag: String,
    device: String,
    addresses: Vec<String>,
}

#[derive(Debug, Serialize)]
struct QueuePairRow {
    /// Index of its process.
    process: usize,
    qpn: u32,
    service: String,
    /// Index of its peer, if that is in these traces.
    peer: Option<usize>,
    /// Peer that it was connected to last.
    connected_to: Option<String>,
}

#[derive(Debug, Serialize)]
struct TimelineEventRow {
    at_ns: u64,
    /// Index of its process.
    process: usize,
    /// Index of its queue pair; `None` if it belongs to none.
    queue_pair: Option<usize>,
    kind: &'static str,
    text: String,
}

impl PageData {
    pub(super) fn of(timeline: &Timeline) -> PageData {
        let numbering = QpNumbering::of(timeline);
        let requests = RequestColumns::of(timeline, &numbering);
        let mut remarks = timeline.remarks.clone();
        let packets = PacketColumns::of(timeline, &numbering, &requests, MAX_PACKETS);
        if packets.left_out > 0 {
            remarks.push(format!(
                "the last {} packets are not in this page, which has {MAX_PACKETS} at most",
                packets.left_out
            ));
        }
        let (counters, left_out) = requests::rows(timeline, &numbering);
        if left_out > 0 {
            remarks.push(format!("{left_out} values of counters are not in this page"));
        }
        let moments = moments(timeline, &numbering, &mut remarks);
        let reasons = MessageStories::of(timeline, MAX_EXPLANATIONS);
        let explained = reasons.failed.iter().chain(&reasons.slowest);
        let stories = explained.filter_map(|story| {
            let (process, queue_pair, message) = story.index;
            let request = requests.of_message(numbering.index(process, queue_pair), message)?;
            Some((request, story.to_string()))
        });
        let parts = PartKind::ALL.iter().map(|kind| kind.words()).chain(["until a message came"]);
        PageData {
            end_ns: timeline.processes.iter().map(|one| one.span_ns.1).max().unwrap_or(0),
            remarks,
            processes: processes(timeline),
            queue_pairs: queue_pairs(timeline, &numbering),
            parts: parts.collect(),
            stories: stories.collect(),
            packets,
            counters,
            moments,
            requests,
        }
    }
}

fn processes(timeline: &Timeline) -> Vec<ProcessRow> {
    let rows = timeline.processes.iter().map(|one| ProcessRow {
        process: one.header.process,
        program: one.header.program.clone(),
        tag: one.header.tag.clone(),
        device: one.header.device.clone(),
        addresses: one.header.addresses.iter().map(ToString::to_string).collect(),
    });
    rows.collect()
}

fn queue_pairs(timeline: &Timeline, numbering: &QpNumbering) -> Vec<QueuePairRow> {
    let mut rows = Vec::new();
    for (process, one) in timeline.processes.iter().enumerate() {
        rows.extend(one.queue_pairs.iter().map(|qp| QueuePairRow {
            process,
            qpn: qp.qpn,
            service: qp.service.clone(),
            peer: peer(timeline, qp).map(|(process, qp)| numbering.index(process, qp)),
            connected_to: qp.peer.map(|(address, qpn)| format!("{address} QP {qpn:#x}")),
        }));
    }
    rows
}

/// Returns the events that are neither requests nor packets, in order of time.
fn moments(timeline: &Timeline, numbering: &QpNumbering, remarks: &mut Vec<String>) -> Vec<TimelineEventRow> {
    let mut rows = Vec::new();
    for (process, one) in timeline.processes.iter().enumerate() {
        let of_process = one.moments.iter().map(|event| (None, event));
        let of_queue_pairs = one.queue_pairs.iter().enumerate().flat_map(|(index, qp)| {
            qp.moments.iter().map(move |event| (Some(numbering.index(process, index)), event))
        });
        rows.extend(of_process.chain(of_queue_pairs).map(|(queue_pair, event)| (process, queue_pair, event)));
    }
    rows.sort_by_key(|(.., event)| event.at_ns);
    if rows.len() > MAX_TIMELINE_EVENTS {
        remarks.push(format!("the last {} marks are not in this page", rows.len() - MAX_TIMELINE_EVENTS));
        rows.truncate(MAX_TIMELINE_EVENTS);
    }
    let row = |(process, queue_pair, event): (usize, Option<usize>, &TimelineEvent)| TimelineEventRow {
        at_ns: event.at_ns,
        process,
        queue_pair,
        kind: event.kind.name(),
        text: event.text.clone(),
    };
    rows.into_iter().map(row).collect()
}
