//! Results of measurements.

use pumice_device::settings::Wire;
use serde::Serialize;

use crate::endpoint::{Medium, PacketCounts};
use crate::machine::is_emulated;
use crate::plan::Plan;
use crate::statistics::{Percentiles, least, median, most};

/// The numbers of one round.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundFigures {
    /// Value in the report's unit; for latencies the p50.
    pub(crate) value: f64,
    pub(crate) p99: Option<f64>,
    pub(crate) raw: Option<f64>,
    pub(crate) raw_p99: Option<f64>,
    /// Full round trip of the yardstick, where `raw` is half of it.
    pub(crate) raw_round_trip: Option<f64>,
    /// Value with one queue pair.
    pub(crate) one_qp: Option<f64>,
}

impl RoundFigures {
    pub(crate) fn set_times(&mut self, times: Percentiles) {
        (self.value, self.p99) = (times.p50, Some(times.p99));
    }

    /// Sets the yardstick's round trips; `None` if it has none for this round.
    pub(crate) fn set_raw_round_trips(&mut self, plan: &Plan, times: Option<Percentiles>) {
        let Some(round_trip) = times else { return };
        // This is one way; a WRITE's completion is compared with it too when the target is passive.
        let one_way = plan.ping_pong() || plan.passive;
        let times = round_trip.scaled(if one_way { 0.5 } else { 1.0 });
        (self.raw, self.raw_p99) = (Some(times.p50), Some(times.p99));
        self.raw_round_trip = Some(round_trip.p50).filter(|_| !plan.ping_pong());
    }
}

/// Checks, losses and medium over all rounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionTotals {
    pub(crate) medium: Option<Medium>,
    pub(crate) yardstick: Option<&'static str>,
    pub(crate) messages: u64,
    /// Number of messages whose bytes were all compared.
    pub(crate) checked_messages: u64,
    pub(crate) lost_messages: u64,
    /// Counters of both ends.
    pub(crate) traffic: [PacketCounts; 2],
}

/// The results of a measurement. Ratios to the yardstick are medians of the rounds' ratios, because on a
/// machine that others use too only rounds that follow each other are comparable; they are `None` without
/// [`PlanBuilder::raw`](crate::PlanBuilder::raw).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Name of the measurement: [`Plan::name`].
    pub test: String,
    /// Median of the rounds' values, in `unit`; for a latency, of the rounds' p50.
    pub value: f64,
    /// Unit of all values: [`MeasuredQuantity::unit`](crate::MeasuredQuantity::unit).
    pub unit: &'static str,
    /// Medium that packets may use to a process of the same user on the same host.
    pub wire: Wire,
    /// Medium that carried this end's packets: "shared memory" or "UDP". `None` if the device does not report
    /// it, because the queue pairs have no peer (UD).
    pub medium: Option<String>,
    /// Reason why that was UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium_reason: Option<String>,
    /// True if the processors of the machine are emulated: latencies are then the emulator's.
    pub emulated: bool,
    /// Payload of a message in bytes.
    pub size_bytes: usize,
    /// Path MTU in bytes.
    pub mtu_bytes: usize,
    /// Number of queue pairs.
    pub qps: usize,
    /// Number of requests per post.
    pub post_list: usize,
    /// Number of requests outstanding on one queue pair.
    pub depth: usize,
    /// Number of timed rounds.
    pub rounds: usize,
    /// Smallest value of a round, in `unit`.
    pub min: f64,
    /// Largest value of a round, in `unit`.
    pub max: f64,
    /// Median of the rounds' p99 of latencies, in `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// Name of the yardstick that the values are compared with: "plain UDP" or, if packets went through
    /// shared memory, "cache lines" (two threads spin on them), "futex" (two threads sleep on it) or "memcpy"
    /// (of 1 MiB, by one thread).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yardstick: Option<&'static str>,
    /// Value of the yardstick, in `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<f64>,
    /// Value of the device divided by the yardstick's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The yardstick's p99, in `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_p99: Option<f64>,
    /// The device's p99 divided by the yardstick's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_p99: Option<f64>,
    /// Latency of the device divided by the yardstick's full round trip, where that is the better comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_round_trip: Option<f64>,
    /// Value with all queue pairs divided by that with one, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_one_qp: Option<f64>,
    /// Number of messages of all timed rounds.
    pub messages: u64,
    /// Number of messages or packets that were sent and did not arrive.
    pub lost: u64,
    /// Number of packets sent again, by both ends.
    pub retransmitted: u64,
    /// Number of times that an answer did not come in time, at both ends.
    pub timeouts: u64,
    /// Number of RNR NAKs received, at both ends.
    pub receiver_not_ready: u64,
    /// True if the bytes were checked.
    pub verified: bool,
    /// Number of messages whose bytes were all compared at their destination.
    pub verified_messages: u64,
    /// Number of bytes of these messages.
    pub verified_bytes: u64,
}

impl Report {
    /// Creates the report of these rounds.
    pub(crate) fn new(plan: &Plan, rounds: &[RoundFigures], totals: &SessionTotals) -> Report {
        let of = |pick: fn(&RoundFigures) -> Option<f64>| -> Option<f64> {
            let values: Vec<f64> = rounds.iter().filter_map(pick).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let ratio = |value: f64, to: Option<f64>| to.filter(|to| *to > 0.0).map(|to| value / to);
        let values: Vec<f64> = rounds.iter().map(|round| round.value).collect();
        let ratio_p99 =
            rounds.iter().filter_map(|round| ratio(round.p99?, round.raw_p99)).collect::<Vec<_>>();
        let ratios = |pick: fn(&RoundFigures) -> Option<f64>| {
            let values: Vec<f64> =
                rounds.iter().filter_map(|round| ratio(round.value, pick(round))).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let [a, b] = totals.traffic;
        Report {
            test: plan.name(),
            value: median(&values),
            unit: plan.quantity.unit(),
            wire: plan.wire,
            medium: totals.medium.as_ref().map(|medium| medium.name.clone()),
            medium_reason: totals.medium.as_ref().and_then(|medium| medium.reason.clone()),
            emulated: is_emulated(),
            yardstick: totals.yardstick,
            size_bytes: plan.size_bytes,
            mtu_bytes: plan.mtu_bytes,
            qps: plan.qp_count,
            post_list: plan.post_list,
            depth: plan.depth,
            rounds: rounds.len(),
            min: least(&values),
            max: most(&values),
            p99: of(|round| round.p99),
            raw: of(|round| round.raw),
            ratio: ratios(|round| round.raw),
            raw_p99: of(|round| round.raw_p99),
            ratio_p99: (!ratio_p99.is_empty()).then(|| median(&ratio_p99)),
            ratio_round_trip: ratios(|round| round.raw_round_trip),
            ratio_one_qp: ratios(|round| round.one_qp),
            messages: totals.messages,
            lost: (a.sent.saturating_sub(b.received) + b.sent.saturating_sub(a.received))
                .max(totals.lost_messages),
            retransmitted: a.retransmitted + b.retransmitted,
            timeouts: a.timeouts + b.timeouts,
            receiver_not_ready: a.receiver_not_ready + b.receiver_not_ready,
            verified: plan.verify,
            verified_messages: totals.checked_messages,
            verified_bytes: totals.checked_messages.saturating_mul(plan.size_bytes as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use crate::plan::{Operation, Service};

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_ratios() {
        let round = |value, raw| RoundFigures { value, raw: Some(raw), ..RoundFigures::default() };
        // The ratio of the medians would be 2.0.
        let rounds = [round(1.0, 1.0), round(2.0, 0.5), round(3.0, 1.5)];
        let report = Report::new(&plan(Operation::Send, Service::Rc), &rounds, &SessionTotals::default());
        assert_eq!((report.value, report.raw, report.ratio), (2.0, Some(1.0), Some(2.0)));
        assert_eq!((report.min, report.max), (1.0, 3.0));
        assert!(report.ratio_p99.is_none() && report.ratio_one_qp.is_none());
    }

    #[test]
    fn packets_that_left_and_did_not_arrive_are_lost() {
        let traffic =
            |sent, received| PacketCounts { sent, received, retransmitted: 1, ..PacketCounts::default() };
        let totals = SessionTotals { traffic: [traffic(10, 5), traffic(5, 8)], ..SessionTotals::default() };
        let report = Report::new(&plan(Operation::Send, Service::Rc), &[], &totals);
        assert_eq!((report.lost, report.retransmitted), (2, 2));
    }
}
