//! The data of the screen: rows of the lists, and the detail view.

use std::cmp::Ordering;
use std::net::IpAddr;

use pumice_device::inspect::{CqView, PathStateView, QpView};
use pumice_device::platform::ordinal::Ordinal;
use pumice_transport::wire::Qpn;

use crate::mrc::planes;
use crate::observe::{ProcessRates, ProcessView, QpRates, Snapshot, plain, quantity, rates, round_trip};

/// A snapshot of the processes, and their rates since the snapshot before.
#[derive(Debug, Clone, Default)]
pub(super) struct TopSnapshot {
    pub(super) snapshot: Snapshot,
    pub(super) rates: Vec<ProcessRates>,
}

impl TopSnapshot {
    /// Combines a snapshot with the rates since the one before.
    pub(super) fn after(before: &Snapshot, now: Snapshot, elapsed_ns: u64) -> TopSnapshot {
        TopSnapshot { rates: rates(before, &now, elapsed_ns), snapshot: now }
    }
}

/// The key that identifies a row in two snapshots: process, and number of the object.
pub(super) type RowKey = (u32, (u8, IpAddr), u32);

/// The subject of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopList {
    QueuePairs,
    CompletionQueues,
    SharedReceiveQueues,
    Faults,
}

/// A row of a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TopRow {
    pub(super) key: RowKey,
    pub(super) cells: Vec<String>,
    /// Numbers to sort by, one for each column; `None` where the text is compared.
    numbers: Vec<Option<f64>>,
    /// The object has a problem.
    pub(super) bad: bool,
    /// The last problem, or what the rule does.
    pub(super) remark: String,
}

impl TopList {
    pub(super) const ALL: [TopList; 4] =
        [TopList::QueuePairs, TopList::CompletionQueues, TopList::SharedReceiveQueues, TopList::Faults];

    pub(super) const fn name(self) -> &'static str {
        match self {
            TopList::QueuePairs => "queue pairs",
            TopList::CompletionQueues => "completion queues",
            TopList::SharedReceiveQueues => "shared receive queues",
            TopList::Faults => "fault rules",
        }
    }

    /// Returns headings and widths. The widths of a list with a space between them fit into 80 columns.
    pub(super) const fn columns(self) -> &'static [(&'static str, u16)] {
        match self {
            TopList::QueuePairs => &[
                ("PID", 7),
                ("QP", 8),
                ("SVC", 4),
                ("STATE", 5),
                ("PEER", 15),
                ("SEND/s", 6),
                ("RECV/s", 6),
                ("TXB/s", 5),
                ("RXB/s", 5),
                ("AGAIN", 5),
                ("RNR", 4),
            ],
            TopList::CompletionQueues => &[
                ("PID", 7),
                ("CQ", 6),
                ("FILL%", 5),
                ("FILLED", 7),
                ("DEPTH", 7),
                ("USERS", 6),
                ("STATE", 8),
            ],
            TopList::SharedReceiveQueues => &[
                ("PID", 7),
                ("SRQ", 6),
                ("FILL%", 5),
                ("POSTED", 7),
                ("DEPTH", 7),
                ("LIMIT", 6),
                ("KIND", 8),
            ],
            TopList::Faults => {
                &[("PID", 7), ("RULE", 20), ("MET", 9), ("APPLIED", 9), ("STATE", 7), ("DOES", 20)]
            }
        }
    }
}

/// Returns the rows of a list whose text contains `filter`, sorted by a column.
pub(super) fn rows(
    look: &TopSnapshot,
    list: TopList,
    filter: &str,
    column: usize,
    reverse: bool,
) -> Vec<TopRow> {
    let filter = filter.to_lowercase();
    let mut all: Vec<TopRow> = Vec::new();
    for (process, rates) in look.snapshot.processes.iter().zip(&look.rates) {
        let Some(objects) = &process.objects else { continue };
        match list {
            TopList::QueuePairs => {
                let qps = objects.qps.iter().zip(&rates.qps);
                all.extend(qps.map(|(qp, rates)| queue_pair(process, qp, rates)));
            }
            TopList::CompletionQueues => all.extend(objects.cqs.iter().map(|cq| {
                let state = if cq.failed {
                    "overran"
                } else if cq.armed {
                    "armed"
                } else {
                    ""
                };
                let numbers = [fill(cq.filled, cq.depth), cq.filled.into(), cq.depth.into(), cq.users.into()];
                row(process, cq.number, numbers.as_slice(), state, cq.failed)
            })),
            TopList::SharedReceiveQueues => all.extend(objects.srqs.iter().map(|srq| {
                let numbers =
                    [fill(srq.posted, srq.depth), srq.posted.into(), srq.depth.into(), srq.limit.into()];
                let kind = if srq.xrc { "XRC" } else { "basic" };
                row(process, srq.number, numbers.as_slice(), kind, srq.posted == 0)
            })),
            TopList::Faults => all.extend((0..).zip(&objects.rules).map(|(number, rule)| {
                let state = if rule.paused { "paused" } else { "active" };
                let cells = vec![
                    process.pid.to_string(),
                    plain(&rule.name),
                    rule.met.to_string(),
                    rule.applied.to_string(),
                    state.to_owned(),
                    plain(&rule.does),
                ];
                let (met, applied) = (rule.met as f64, rule.applied as f64);
                let numbers = vec![Some(process.pid.into()), None, Some(met), Some(applied), None, None];
                let key = (process.pid, process.device_key(), number);
                TopRow { key, cells, numbers, bad: false, remark: plain(&rule.does) }
            })),
        }
    }
    all.retain(|row| filter.is_empty() || row.holds(&filter, look));
    all.sort_by(|a, b| {
        let order = a.compare(b, column);
        let order = if reverse { order.reverse() } else { order };
        order.then(a.key.cmp(&b.key))
    });
    all
}

fn fill(filled: u32, depth: u32) -> f64 {
    100.0 * f64::from(filled) / f64::from(depth.max(1))
}

/// Returns a row: PID, number, percent, three numbers, and a word.
fn row(process: &ProcessView, number: u32, numbers: &[f64], word: &str, bad: bool) -> TopRow {
    let shown = numbers.iter().map(|number| format!("{number:.0}"));
    let cells = [process.pid.to_string(), number.to_string()].into_iter().chain(shown);
    let all = [f64::from(process.pid), f64::from(number)].into_iter().chain(numbers.iter().copied());
    TopRow {
        key: (process.pid, process.device_key(), number),
        cells: cells.chain([word.to_owned()]).collect(),
        numbers: all.map(Some).chain([None]).collect(),
        bad,
        remark: String::new(),
    }
}

fn queue_pair(process: &ProcessView, qp: &QpView, rates: &QpRates) -> TopRow {
    let peer = qp.peer.map_or_else(|| "-".to_owned(), |peer| peer.address.to_string());
    let bad = matches!(qp.state.as_str(), "ERR" | "SQE");
    let per_second = [rates.sends, rates.receives, rates.sent_bytes, rates.received_bytes];
    let counts = [qp.repeated_packets as f64, qp.rnr_naks_sent.saturating_add(qp.rnr_naks_received) as f64];
    let words = [
        process.pid.to_string(),
        Qpn::new(qp.qpn).to_string(),
        plain(&qp.service),
        // The mark makes it visible without colors.
        if bad { format!("{}!", plain(&qp.state)) } else { plain(&qp.state) },
        peer,
    ];
    let numbers = per_second.into_iter().chain(counts);
    let front = [Some(process.pid.into()), Some(qp.qpn.into()), None, None, None];
    TopRow {
        key: (process.pid, process.device_key(), qp.qpn),
        cells: words.into_iter().chain(numbers.clone().map(quantity)).collect(),
        numbers: front.into_iter().chain(numbers.map(Some)).collect(),
        bad,
        remark: qp.last_error.as_deref().map(plain).or_else(|| left_paths(qp)).unwrap_or_default(),
    }
}

/// Returns how many paths of an MRC queue pair are not used, if there are any.
fn left_paths(qp: &QpView) -> Option<String> {
    let paths = &qp.mrc.as_ref()?.paths;
    let left = paths.iter().filter(|path| path.state != PathStateView::Good).count();
    (left > 0).then(|| format!("{left} of {} paths are not GOOD", paths.len()))
}

impl TopRow {
    fn holds(&self, filter: &str, look: &TopSnapshot) -> bool {
        let process =
            look.snapshot.processes.iter().find(|process| process.key() == (self.key.0, self.key.1));
        let names = process
            .map(|process| format!("{} {}", process.program.as_deref().unwrap_or_default(), process.tag()));
        let texts = self.cells.iter().chain([&self.remark]).chain(&names);
        texts.into_iter().any(|text| text.to_lowercase().contains(filter))
    }

    fn compare(&self, other: &TopRow, column: usize) -> Ordering {
        let number = |row: &TopRow| row.numbers.get(column).copied().flatten();
        match (number(self), number(other)) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => self.cells.get(column).cmp(&other.cells.get(column)),
        }
    }
}

/// Returns the text; the queue pair may no longer exist.
pub(super) fn detail(look: &TopSnapshot, key: RowKey) -> String {
    let mut processes = look.snapshot.processes.iter().zip(&look.rates);
    let process = processes.find(|(process, _)| process.key() == (key.0, key.1));
    let found = process.and_then(|(process, rates)| {
        let mut qps = process.objects.as_ref()?.qps.iter().zip(&rates.qps);
        let (qp, rates) = qps.find(|(qp, _)| qp.qpn == key.2)?;
        Some(text(process, qp, rates))
    });
    found.unwrap_or_else(|| format!("queue pair {} of process {} is gone", Qpn::new(key.2), key.0))
}

fn text(process: &ProcessView, qp: &QpView, rates: &QpRates) -> String {
    let peer = match qp.peer {
        Some(peer) => format!("{} of {}", Qpn::new(peer.qpn), peer.address),
        None => "none".to_owned(),
    };
    let waits = if qp.waits_for_receiver { ", waits: the peer had no receive request" } else { "" };
    let receives = match (qp.receives_posted, qp.srq) {
        (Some(posted), _) => format!("{posted} of {} posted", qp.recv_queue_depth),
        (None, Some(srq)) => shared(process, srq),
        (None, None) => "none".to_owned(),
    };
    let rtt = qp.rtt_ns.map_or_else(|| "not measured yet".to_owned(), round_trip);
    let lines = [
        format!(
            "{} {} of process {}, made as number {}",
            Qpn::new(qp.qpn),
            plain(&qp.service),
            process.pid,
            Ordinal(qp.ordinal)
        ),
        format!("state        {}{waits}", plain(&qp.state)),
        format!("peer         {peer}"),
        format!("medium       {}", qp.medium.as_deref().map_or_else(|| "not said".to_owned(), plain)),
        format!(
            "sends        {} posted, {} ended, {}/s; depth {}",
            qp.posted,
            qp.ended,
            quantity(rates.sends),
            qp.send_queue_depth
        ),
        format!("received     {} messages, {}/s", qp.received, quantity(rates.receives)),
        format!(
            "packets out  {}, {}/s, {}B/s",
            qp.sent_packets,
            quantity(rates.sent_packets),
            quantity(rates.sent_bytes)
        ),
        format!(
            "packets in   {}, {}/s, {}B/s",
            qp.received_packets,
            quantity(rates.received_packets),
            quantity(rates.received_bytes)
        ),
        format!(
            "in flight    {} packets, window {}, round trip {rtt}",
            qp.in_flight_packets, qp.window_packets
        ),
        format!("sent again   {} packets, {} timeouts", qp.repeated_packets, qp.timeouts),
        format!("RNR NAKs     {} sent, {} received", qp.rnr_naks_sent, qp.rnr_naks_received),
        format!(
            "other NAKs   {} sent, {} received; {} packets dropped",
            qp.naks_sent, qp.naks_received, qp.dropped
        ),
        format!("receives     {receives}"),
        format!("completions  send {}; receive {}", queue(process, qp.send_cq), queue(process, qp.recv_cq)),
        format!("last error   {}", qp.last_error.as_deref().map_or_else(|| "none".to_owned(), plain)),
    ];
    let mut text = lines.join("\n").into_bytes();
    if let Some(mrc) = &qp.mrc {
        text.push(b'\n');
        // Memory takes all that is written to it.
        let _ = planes(mrc, &mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn shared(process: &ProcessView, number: u32) -> String {
    let srqs = process.objects.iter().flat_map(|objects| &objects.srqs);
    match srqs.into_iter().find(|srq| srq.number == number) {
        Some(srq) => format!("SRQ {number}: {} of {} posted, limit {}", srq.posted, srq.depth, srq.limit),
        None => format!("SRQ {number}"),
    }
}

fn queue(process: &ProcessView, number: Option<u32>) -> String {
    let Some(number) = number else { return "none".to_owned() };
    let cqs = process.objects.iter().flat_map(|objects| &objects.cqs);
    match cqs.into_iter().find(|cq| cq.number == number) {
        Some(CqView { ordinal, filled, depth, failed, armed, .. }) => {
            let state = if *failed {
                ", overran"
            } else if *armed {
                ", armed"
            } else {
                ""
            };
            let name = ordinal.map_or_else(|| number.to_string(), |ordinal| Ordinal(ordinal).to_string());
            format!("CQ {name}: {filled} of {depth}{state}")
        }
        None => format!("CQ {number}"),
    }
}

#[cfg(test)]
mod tests {
    use pumice_device::inspect::{MrcView, PathStateView, PathView};

    use super::super::rows::left_paths;
    use super::*;
    use crate::observe::tests::{process, qp};

    #[test]
    fn an_mrc_queue_pair_has_a_line_for_each_plane() {
        let path = |plane: u8, state| PathView {
            source_port: 49_152 + u16::from(plane),
            plane,
            state,
            active: true,
            sent: 100,
            lost: 7,
            congested: 0,
            answered: 0,
        };
        let paths = vec![path(0, PathStateView::Good), path(1, PathStateView::AssumedBad)];
        let mrc = MrcView { planes: 2, planes_up: 3, path_count: 2, paths, ..MrcView::default() };
        let mut multipath = qp(0x12);
        multipath.mrc = Some(Box::new(mrc));
        let shown = text(&process(17, Vec::new()), &multipath, &QpRates::default());
        let planes: Vec<&str> = shown.lines().skip_while(|line| !line.contains("PLANE")).collect();
        assert_eq!(planes.len(), 3, "{shown}");
        assert!(planes[2].trim_start().starts_with("1 ") && planes[2].contains("7.0 %"), "{shown}");
        assert_eq!(left_paths(&multipath).as_deref(), Some("1 of 2 paths are not GOOD"));
        assert!(!text(&process(17, Vec::new()), &qp(0x12), &QpRates::default()).contains("PLANE"));
    }
}
