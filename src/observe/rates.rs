//! Changes between two snapshots, per second.

use std::collections::HashMap;

use pumice_device::inspect::QpView;
use serde::Serialize;

use super::{ProcessView, Snapshot};

/// The activity of a queue pair, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct QpRates {
    /// Number of send requests that ended.
    pub(crate) sends: f64,
    /// Number of messages of the peer that arrived.
    pub(crate) receives: f64,
    pub(crate) sent_packets: f64,
    pub(crate) sent_bytes: f64,
    pub(crate) received_packets: f64,
    pub(crate) received_bytes: f64,
    /// Number of packets that were sent again.
    pub(crate) repeated: f64,
    /// Number of RNR NAKs, sent and received.
    pub(crate) rnr_naks: f64,
    /// Number of other NAKs, sent and received, and of timeouts.
    pub(crate) retries: f64,
}

/// The activity of a process, per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct ProcessRates {
    /// Sum over its queue pairs. Packets, bytes and NAKs are the device's counts, which include destroyed
    /// queue pairs.
    pub(crate) all: QpRates,
    /// Number of packets dropped, for any reason.
    pub(crate) drops: f64,
    /// Number of faults that applied.
    pub(crate) faults: f64,
    /// Rates of its queue pairs, in their order.
    #[serde(skip)]
    pub(crate) qps: Vec<QpRates>,
}

/// Counters of received packets that were dropped.
const DROPS: [&str; 21] = [
    "rx_too_short",
    "rx_bad_version",
    "rx_bad_opcode",
    "rx_bad_pad",
    "rx_bad_length",
    "rx_bad_icrc",
    "rx_unknown_qpn",
    "rx_wrong_service",
    "rx_wrong_state",
    "rx_bad_pkey",
    "rx_bad_qkey",
    "rx_wrong_address",
    "rx_wrong_port",
    "rx_unknown_group",
    "rx_truncated",
    "rx_message_dropped",
    "rx_unexpected_response",
    "tx_dropped",
    "link_dropped",
    "share_forward_dropped",
    "share_rejected",
];

/// Returns the activity of the processes of `after` since `before`, in the order of `after`. For a new
/// process or queue pair, everything that it counts is new; for a count that began again, its present value
/// is.
pub(crate) fn rates(before: &Snapshot, after: &Snapshot, elapsed_ns: u64) -> Vec<ProcessRates> {
    let seconds = elapsed_ns as f64 / 1e9;
    let known: HashMap<_, &ProcessView> = before.processes.iter().map(|one| (one.key(), one)).collect();
    let of = |process: &ProcessView| process_rates(known.get(&process.key()).copied(), process, seconds);
    after.processes.iter().map(of).collect()
}

fn process_rates(before: Option<&ProcessView>, after: &ProcessView, seconds: f64) -> ProcessRates {
    // Without an earlier snapshot of it, the time in which it counted is unknown.
    let Some(before) = before.filter(|before| before.answers()) else {
        let count = after.objects.as_ref().map_or(0, |objects| objects.qps.len());
        return ProcessRates { qps: vec![QpRates::default(); count], ..ProcessRates::default() };
    };
    let per_second = |before: u64, after: u64| per_second(before, after, seconds);
    let counter = |name: &str| per_second(before.counter(name), after.counter(name));
    let earlier: HashMap<(u32, u32), &QpView> =
        before.objects.iter().flat_map(|objects| &objects.qps).map(|qp| ((qp.qpn, qp.ordinal), qp)).collect();
    let later = after.objects.iter().flat_map(|objects| &objects.qps);
    let qps: Vec<QpRates> =
        later.map(|qp| qp_rates(earlier.get(&(qp.qpn, qp.ordinal)).copied(), qp, seconds)).collect();
    let all = QpRates {
        sends: qps.iter().map(|qp| qp.sends).sum(),
        receives: qps.iter().map(|qp| qp.receives).sum(),
        sent_packets: counter("tx_packets"),
        sent_bytes: counter("tx_bytes"),
        received_packets: counter("rx_packets"),
        received_bytes: counter("rx_bytes"),
        repeated: counter("retransmitted_packets"),
        rnr_naks: counter("rx_rnr_nak") + counter("tx_rnr_nak"),
        retries: counter("timeout") + counter("rx_nak_sequence") + counter("tx_nak_sequence"),
    };
    let drops = DROPS.iter().map(|name| counter(name)).sum();
    ProcessRates { all, drops, faults: per_second(before.faults_applied(), after.faults_applied()), qps }
}

fn qp_rates(before: Option<&QpView>, after: &QpView, seconds: f64) -> QpRates {
    let since = |count: fn(&QpView) -> u64| per_second(before.map_or(0, count), count(after), seconds);
    QpRates {
        sends: since(|qp| qp.ended),
        receives: since(|qp| qp.received),
        sent_packets: since(|qp| qp.sent_packets),
        sent_bytes: since(|qp| qp.sent_bytes),
        received_packets: since(|qp| qp.received_packets),
        received_bytes: since(|qp| qp.received_bytes),
        repeated: since(|qp| qp.repeated_packets),
        rnr_naks: since(|qp| qp.rnr_naks_sent.saturating_add(qp.rnr_naks_received)),
        retries: since(|qp| qp.timeouts.saturating_add(qp.naks_sent).saturating_add(qp.naks_received)),
    }
}

fn per_second(before: u64, after: u64, seconds: f64) -> f64 {
    let count = if after < before { after } else { after - before };
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use pumice_device::counters::COUNTERS;

    use super::super::tests::{process, qp};
    use super::*;

    fn at(processes: Vec<ProcessView>) -> Snapshot {
        Snapshot { processes }
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let mut later = qp(7);
        (later.ended, later.sent_bytes, later.rnr_naks_received, later.rnr_naks_sent) = (100, 4000, 3, 1);
        let (mut before, mut after) = (process(1, vec![qp(7)]), process(1, vec![later]));
        before.counters.as_mut().expect("counters").push(("rx_bad_icrc".to_owned(), 2));
        after.counters.as_mut().expect("counters").push(("rx_bad_icrc".to_owned(), 12));
        let found = &rates(&at(vec![before]), &at(vec![after]), 2_000_000_000)[0];
        let QpRates { sends, sent_bytes, rnr_naks, .. } = found.qps[0];
        assert_eq!((sends, sent_bytes, rnr_naks), (50.0, 2000.0, 2.0));
        assert_eq!((found.all.sends, found.drops), (50.0, 5.0));
    }

    #[test]
    fn what_began_again_or_is_new_counts_from_nothing() {
        let with = |qpn, ended| {
            let mut qp = qp(qpn);
            qp.ended = ended;
            qp
        };
        let before = at(vec![process(1, vec![with(7, 100)])]);
        let after = at(vec![process(1, vec![with(7, 10), with(8, 4)]), process(2, vec![with(9, 1000)])]);
        let found = rates(&before, &after, 1_000_000_000);
        assert_eq!((found[0].qps[0].sends, found[0].qps[1].sends), (10.0, 4.0));
        assert_eq!(found[1].qps, [QpRates::default()], "it ran before it was looked at");
        assert_eq!(rates(&before, &after, 0)[0].qps[0].sends, 0.0, "no time has gone by");
    }

    #[test]
    fn a_process_that_does_not_answer_has_no_rates() {
        let mut silent = process(1, Vec::new());
        (silent.counters, silent.objects) = (None, None);
        let found = rates(&at(vec![silent.clone()]), &at(vec![process(1, vec![qp(1)]), silent]), 1);
        assert_eq!(found[0].all, QpRates::default());
    }

    #[test]
    fn what_is_called_a_drop_is_counted() {
        let names: Vec<&str> = COUNTERS.iter().map(|info| info.name).collect();
        for name in DROPS.iter().filter(|name| !name.starts_with("share_")) {
            assert!(names.contains(name), "{name}");
        }
        let also = ["tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "retransmitted_packets", "timeout"];
        assert!(also.iter().all(|name| names.contains(name)));
    }
}
