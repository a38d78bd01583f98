//! What the page's script reads: lists of processes and queue pairs, and columns of requests and packets.
//!
//! Times are ns since the first record of all traces. A column has a number for each row; -1 stands for what
//! is not known. `page/data.js` reads it.

use pumice_device::trace::{PartKind, Reasons, Timeline};
use serde::Serialize;

use super::counters::{self, CounterRow};
use super::flights::Flights;
use super::numbering::{Numbering, peer};
use super::requests::Requests;

/// Packets that a page has at most: a browser holds some 200 bytes for each.
const MAX_PACKETS: usize = 2_000_000;
/// Requests that have a story: so many of the slowest, besides those that failed.
const STORIES: usize = 500;
/// Moments that a page has at most.
const MAX_MOMENTS: usize = 200_000;

#[derive(Debug, Serialize)]
pub(super) struct Data {
    end_ns: u64,
    remarks: Vec<String>,
    processes: Vec<ProcessRow>,
    queue_pairs: Vec<QueuePairRow>,
    /// What the parts of a request's time are, in words; the last one is of receive requests.
    parts: Vec<&'static str>,
    requests: Requests,
    /// The stories of some requests: the request, and its story in words.
    stories: Vec<(usize, String)>,
    packets: Flights,
    counters: Vec<CounterRow>,
    moments: Vec<MomentRow>,
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
    /// What it was connected to last.
    connected_to: Option<String>,
}

#[derive(Debug, Serialize)]
struct MomentRow {
    at_ns: u64,
    /// Index of its process.
    process: usize,
    /// Index of its queue pair; none if it is about none.
    queue_pair: Option<usize>,
    kind: &'static str,
    text: String,
}

impl Data {
    pub(super) fn of(timeline: &Timeline) -> Data {
        let numbering = Numbering::of(timeline);
        let requests = Requests::of(timeline, &numbering);
        let mut remarks = timeline.remarks.clone();
        let packets = Flights::of(timeline, &numbering, &requests, MAX_PACKETS);
        if packets.left_out > 0 {
            remarks.push(format!(
                "the last {} packets are not in this page, which has {MAX_PACKETS} at most",
                packets.left_out
            ));
        }
        let (counters, left_out) = counters::rows(timeline, &numbering);
        if left_out > 0 {
            remarks.push(format!("{left_out} values of counters are not in this page"));
        }
        let moments = moments(timeline, &numbering, &mut remarks);
        let reasons = Reasons::of(timeline, STORIES);
        let told = reasons.failed.iter().chain(&reasons.slowest);
        let stories = told.filter_map(|story| {
            let (process, queue_pair, message) = story.index;
            let request = requests.of_message(numbering.index(process, queue_pair), message)?;
            Some((request, story.to_string()))
        });
        let parts = PartKind::ALL.iter().map(|kind| kind.words()).chain(["until a message came"]);
        Data {
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

fn queue_pairs(timeline: &Timeline, numbering: &Numbering) -> Vec<QueuePairRow> {
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

/// What happened besides requests and packets, in order of time.
fn moments(timeline: &Timeline, numbering: &Numbering, remarks: &mut Vec<String>) -> Vec<MomentRow> {
    let mut rows = Vec::new();
    for (process, one) in timeline.processes.iter().enumerate() {
        let of_process = one.moments.iter().map(|moment| (None, moment));
        let of_queue_pairs = one.queue_pairs.iter().enumerate().flat_map(|(index, qp)| {
            qp.moments.iter().map(move |moment| (Some(numbering.index(process, index)), moment))
        });
        rows.extend(of_process.chain(of_queue_pairs).map(|(queue_pair, moment)| MomentRow {
            at_ns: moment.at_ns,
            process,
            queue_pair,
            kind: moment.kind.name(),
            text: moment.text.clone(),
        }));
    }
    rows.sort_by_key(|row| row.at_ns);
    if rows.len() > MAX_MOMENTS {
        remarks.push(format!("the last {} marks are not in this page", rows.len() - MAX_MOMENTS));
        rows.truncate(MAX_MOMENTS);
    }
    rows
}
