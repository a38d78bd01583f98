//! Rows of the lists: objects of all processes as text, with their sort keys.

use std::cmp::Ordering;
use std::net::IpAddr;

use pumice_device::inspect::{PathStateView, QpView};
use pumice_transport::wire::Qpn;

use super::look::TopSnapshot;
use crate::observe::{ProcessView, QpRates, plain, quantity};

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
pub(super) fn left_paths(qp: &QpView) -> Option<String> {
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
