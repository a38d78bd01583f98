//! Counters and states of processes as metrics for Prometheus and compatible programs.
//!
//! The list of metrics, with the source of each number.

use MetricKind::{Counter, Gauge};
use pumice_device::inspect::{CqView, InspectedObjects, QpView, SrqView};

use self::text::{MetricFamily, MetricKind, MetricValue};
use super::table;

/// A metric of a process: name, help text, and value; `None` if the process has none.
pub(crate) type ProcessMetric = (&'static str, &'static str, fn(&InspectedObjects) -> Option<MetricValue>);
/// A metric of a queue pair: name, kind, help text, and value.
pub(crate) type QpMetric = (&'static str, MetricKind, &'static str, fn(&QpView) -> Option<MetricValue>);

pub(crate) const PROCESSES: &str = "pumice_processes";
pub(crate) const ANSWERS: &str = "pumice_process_answers";
pub(crate) const QUEUE_PAIRS: &str = "pumice_queue_pairs";
pub(crate) const RULE_MET: &str = "pumice_rule_met";
pub(crate) const RULE_APPLIED: &str = "pumice_rule_applied";
pub(crate) const QP: &str = "pumice_qp";
pub(crate) const QPS_LEFT_OUT: &str = "pumice_qp_series_left_out";

/// The states of queue pairs. Any other name that a process reports is counted as "other".
pub(crate) const STATES: [&str; 7] = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];

/// Gauges of each process.
pub(crate) const PROCESS_METRICS: [ProcessMetric; 20] = [
    (
        "queue_pairs_left_out",
        "queue pairs that are in no other metric: a process tells of some thousands",
        |all| Some(all.qps_left_out().into()),
    ),
    ("send_requests_outstanding", "send requests posted and not ended", |all| {
        sum(all.qps.iter().map(|qp| qp.posted.saturating_sub(qp.ended)))
    }),
    ("in_flight_packets", "request packets sent and not acknowledged", |all| {
        sum(all.qps.iter().map(|qp| qp.in_flight_packets.into()))
    }),
    ("window_packets", "request packets that may be unacknowledged now", |all| {
        sum(all.qps.iter().map(|qp| qp.window_packets.into()))
    }),
    ("queue_pairs_waiting_for_receiver", "queue pairs that wait because of an RNR NAK", |all| {
        sum(all.qps.iter().map(|qp| qp.waits_for_receiver.into()))
    }),
    ("longest_round_trip_seconds", "the longest smoothed round trip time of its queue pairs", |all| {
        all.qps.iter().filter_map(|qp| qp.rtt_ns).max().map(seconds)
    }),
    ("receives_posted", "receive requests posted to receive queues of queue pairs", |all| {
        sum(all.qps.iter().filter_map(|qp| qp.receives_posted).map(u64::from))
    }),
    ("cqs", "completion queues", |all| Some(all.totals.cqs.into())),
    ("cqs_failed", "completion queues that overran or failed", |all| {
        sum(all.cqs.iter().map(|cq| cq.failed.into()))
    }),
    ("cq_entries", "completions to be polled", |all| sum(all.cqs.iter().map(|cq| cq.filled.into()))),
    ("cq_capacity", "completions that fit into its completion queues", |all| {
        sum(all.cqs.iter().map(|cq| cq.depth.into()))
    }),
    ("cq_fill_ratio", "of the fullest completion queue: 1 is full", |all| {
        all.cqs.iter().map(cq_fill).reduce(f64::max).map(MetricValue::Real)
    }),
    ("cqs_left_out", "completion queues that are in no other metric", |all| Some(all.cqs_left_out().into())),
    ("srqs", "shared receive queues", |all| Some(all.totals.srqs.into())),
    ("srq_receives_posted", "receive requests in shared receive queues", |all| {
        sum(all.srqs.iter().map(|srq| srq.posted.into()))
    }),
    ("srq_capacity", "receive requests that fit into its shared receive queues", |all| {
        sum(all.srqs.iter().map(|srq| srq.depth.into()))
    }),
    ("srq_fill_ratio", "of the emptiest shared receive queue: 0 is empty", |all| {
        all.srqs.iter().map(srq_fill).reduce(f64::min).map(MetricValue::Real)
    }),
    ("srqs_left_out", "shared receive queues that are in no other metric", |all| {
        Some(all.srqs_left_out().into())
    }),
    ("memory_regions", "memory regions and windows", |all| Some(all.totals.regions.into())),
    ("rules", "rules of fault plans", |all| Some(all.totals.rules.into())),
];

/// Metrics of each queue pair, if they are requested.
pub(crate) const QP_METRICS: [QpMetric; 19] = [
    ("sends", Counter, "send requests that ended, well or badly", |qp| Some(qp.ended.into())),
    ("receives", Counter, "messages of the peer that arrived whole", |qp| Some(qp.received.into())),
    ("sent_packets", Counter, "packets sent, repeated ones included", |qp| Some(qp.sent_packets.into())),
    ("sent_bytes", Counter, "their bytes, from the BTH to the ICRC", |qp| Some(qp.sent_bytes.into())),
    ("received_packets", Counter, "packets received", |qp| Some(qp.received_packets.into())),
    ("received_bytes", Counter, "their bytes", |qp| Some(qp.received_bytes.into())),
    ("repeated_packets", Counter, "packets sent again", |qp| Some(qp.repeated_packets.into())),
    ("timeouts", Counter, "acknowledgement timers that expired", |qp| Some(qp.timeouts.into())),
    ("rnr_naks_sent", Counter, "RNR NAKs sent", |qp| Some(qp.rnr_naks_sent.into())),
    ("rnr_naks_received", Counter, "RNR NAKs received", |qp| Some(qp.rnr_naks_received.into())),
    ("naks_sent", Counter, "other NAKs sent", |qp| Some(qp.naks_sent.into())),
    ("naks_received", Counter, "other NAKs received", |qp| Some(qp.naks_received.into())),
    ("dropped_packets", Counter, "packets for it that were dropped", |qp| Some(qp.dropped.into())),
    ("send_requests_outstanding", Gauge, "send requests posted and not ended", |qp| {
        Some(qp.posted.saturating_sub(qp.ended).into())
    }),
    ("send_queue_depth", Gauge, "send requests that fit", |qp| Some(qp.send_queue_depth.into())),
    ("receives_posted", Gauge, "receive requests posted to its own receive queue", |qp| {
        qp.receives_posted.map(MetricValue::from)
    }),
    ("in_flight_packets", Gauge, "request packets sent and not acknowledged", |qp| {
        Some(qp.in_flight_packets.into())
    }),
    ("window_packets", Gauge, "request packets that may be unacknowledged now", |qp| {
        Some(qp.window_packets.into())
    }),
    ("round_trip_seconds", Gauge, "round trip time, smoothed", |qp| qp.rtt_ns.map(seconds)),
];

/// Maximum number of rules that are listed for each process.
pub(crate) const MAX_RULES: usize = 100;

pub(crate) fn processes() -> MetricFamily {
    MetricFamily::new(PROCESSES, Gauge, "processes of this user that share the UDP port")
}

pub(crate) fn answers() -> MetricFamily {
    MetricFamily::new(ANSWERS, Gauge, "1: the process answers; 0: it is stopped, or just begins or ends")
}

pub(crate) fn queue_pairs() -> MetricFamily {
    MetricFamily::new(QUEUE_PAIRS, Gauge, "queue pairs by state")
}

pub(crate) fn rule_met() -> MetricFamily {
    MetricFamily::new(
        RULE_MET,
        Counter,
        "packets, calls or completions that a rule of a fault plan was about",
    )
}

pub(crate) fn rule_applied() -> MetricFamily {
    MetricFamily::new(RULE_APPLIED, Counter, "how often a rule of a fault plan applied")
}

pub(crate) fn qp_info() -> MetricFamily {
    MetricFamily::new(QP, MetricKind::Info, "service, state and peer of a queue pair")
}

pub(crate) fn qps_left_out() -> MetricFamily {
    MetricFamily::new(QPS_LEFT_OUT, Gauge, "queue pairs beyond the number of --per-qp")
}

/// Returns the counters of the device and of port sharing: name in reports, and family.
pub(crate) fn counter_families() -> impl Iterator<Item = (&'static str, MetricFamily)> {
    table::all().map(|(name, meaning)| (name, MetricFamily::new(format!("pumice_{name}"), Counter, meaning)))
}

pub(crate) fn of_process(row: &ProcessMetric) -> MetricFamily {
    MetricFamily::new(format!("pumice_{}", row.0), Gauge, row.1)
}

pub(crate) fn of_qp(row: &QpMetric) -> MetricFamily {
    MetricFamily::new(format!("{QP}_{}", row.0), row.1, row.2)
}

fn sum(numbers: impl Iterator<Item = u64>) -> Option<MetricValue> {
    Some(MetricValue::Count(numbers.fold(0, u64::saturating_add)))
}

fn seconds(ns: u64) -> MetricValue {
    MetricValue::Real(ns as f64 / 1e9)
}

fn cq_fill(cq: &CqView) -> f64 {
    part(cq.filled, cq.depth)
}

fn srq_fill(srq: &SrqView) -> f64 {
    part(srq.posted, srq.depth)
}

fn part(some: u32, all: u32) -> f64 {
    if all == 0 { 0.0 } else { f64::from(some) / f64::from(all) }
}

mod scrape;
mod text;

pub(super) use scrape::scrape;
pub(super) use text::{MetricsFormat, write};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns every possible family.
    fn all() -> Vec<MetricFamily> {
        let single =
            [processes(), answers(), queue_pairs(), rule_met(), rule_applied(), qp_info(), qps_left_out()];
        let counters = counter_families().map(|(_, family)| family);
        let of_process = PROCESS_METRICS.iter().map(of_process);
        single.into_iter().chain(counters).chain(of_process).chain(QP_METRICS.iter().map(of_qp)).collect()
    }

    #[test]
    fn each_family_has_a_name_of_its_own_that_openmetrics_allows() {
        let mut names = BTreeSet::new();
        for family in all() {
            let MetricFamily { name, help, .. } = &family;
            assert!(name.starts_with("pumice_"), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            for end in ["_total", "_created", "_count", "_sum", "_bucket", "_info", "_gcount", "_gsum"] {
                assert!(!name.ends_with(end), "{name}");
            }
            assert!(!help.is_empty() && !help.contains(['\n', '\\', '"']), "{help}");
            assert!(
                names.insert(name.clone()) && names.insert(family.sample_name()) | (family.kind == Gauge)
            );
        }
    }

    /// Returns the names of metrics in a text file.
    fn named(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("pumice_")).collect()
    }

    #[test]
    fn the_dashboard_and_the_document_name_only_metrics_that_exist() {
        let names: BTreeSet<String> = all().iter().map(MetricFamily::sample_name).collect();
        let dashboard = include_str!("../../../docs/grafana/pumice.json");
        let document = include_str!("../../../docs/metrics.md");
        serde_json::from_str::<serde_json::Value>(dashboard).expect("JSON");
        for (text, least) in [(dashboard, 12), (document, 5)] {
            let used = named(text);
            let wrong: Vec<&&str> = used.iter().filter(|name| !names.contains(**name)).collect();
            assert!(wrong.is_empty(), "{wrong:?}");
            assert!(used.len() >= least, "{used:?}");
        }
    }
}
