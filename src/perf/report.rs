//! What a test found, for people and for programs.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::control::Traffic;
use super::plan::{Plan, Quantity};
use super::statistics::{Percentiles, least, median, most};

/// One round's numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    /// Value in the report's unit; of latencies the p50.
    pub(crate) value: f64,
    pub(crate) p99: Option<f64>,
    pub(crate) raw: Option<f64>,
    pub(crate) raw_p99: Option<f64>,
    /// Plain UDP's full round trip, where `raw` is half of it.
    pub(crate) raw_round_trip: Option<f64>,
    /// The same with one queue pair.
    pub(crate) one_qp: Option<f64>,
}

impl Measured {
    pub(crate) fn set_times(&mut self, times: Percentiles) {
        (self.value, self.p99) = (times.p50, Some(times.p99));
    }

    pub(crate) fn set_raw_times(&mut self, times: Percentiles) {
        (self.raw, self.raw_p99) = (Some(times.p50), Some(times.p99));
    }
}

/// What was checked and what went wrong on the way, over all rounds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Account {
    pub(crate) messages: u64,
    /// Messages whose bytes were all compared.
    pub(crate) checked_messages: u64,
    pub(crate) lost_messages: u64,
    /// Both ends.
    pub(crate) traffic: [Traffic; 2],
}

/// A test's report: one line of JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) test: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) size_bytes: usize,
    pub(crate) mtu_bytes: usize,
    pub(crate) qps: usize,
    pub(crate) post_list: usize,
    pub(crate) depth: usize,
    pub(crate) rounds: usize,
    pub(crate) min: f64,
    pub(crate) max: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) raw: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) raw_p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio_p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio_round_trip: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio_one_qp: Option<f64>,
    pub(crate) messages: u64,
    pub(crate) lost: u64,
    pub(crate) retransmitted: u64,
    pub(crate) timeouts: u64,
    pub(crate) receiver_not_ready: u64,
    pub(crate) verified: bool,
    pub(crate) verified_messages: u64,
    pub(crate) verified_bytes: u64,
}

impl Report {
    pub(crate) fn new(plan: &Plan, rounds: &[Measured], account: &Account) -> Report {
        let of = |pick: fn(&Measured) -> Option<f64>| -> Option<f64> {
            let values: Vec<f64> = rounds.iter().filter_map(pick).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let ratio = |value: f64, to: Option<f64>| to.filter(|to| *to > 0.0).map(|to| value / to);
        let values: Vec<f64> = rounds.iter().map(|round| round.value).collect();
        let ratio_p99 =
            rounds.iter().filter_map(|round| ratio(round.p99?, round.raw_p99)).collect::<Vec<_>>();
        let ratios = |pick: fn(&Measured) -> Option<f64>| {
            let values: Vec<f64> =
                rounds.iter().filter_map(|round| ratio(round.value, pick(round))).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let [a, b] = account.traffic;
        Report {
            test: plan.name(),
            value: median(&values),
            unit: unit(plan.quantity),
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
            messages: account.messages,
            lost: (a.sent.saturating_sub(b.received) + b.sent.saturating_sub(a.received))
                .max(account.lost_messages),
            retransmitted: a.retransmitted + b.retransmitted,
            timeouts: a.timeouts + b.timeouts,
            receiver_not_ready: a.receiver_not_ready + b.receiver_not_ready,
            verified: plan.verify,
            verified_messages: account.checked_messages,
            verified_bytes: account.checked_messages.saturating_mul(plan.size_bytes as u64),
        }
    }
}

/// Unit of a quantity in reports.
pub(crate) fn unit(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Bandwidth => "GB/s",
        Quantity::Rate => "M/s",
        Quantity::Latency => "us",
    }
}

/// Writes reports as they come.
#[derive(Debug)]
pub(crate) struct Reporter {
    json: bool,
    headed: bool,
    reports: usize,
    verified_messages: u64,
    verified_bytes: u64,
    all_verified: bool,
}

impl Reporter {
    pub(crate) fn new(json: bool) -> Reporter {
        let (verified_messages, verified_bytes) = (0, 0);
        Reporter { json, headed: false, reports: 0, verified_messages, verified_bytes, all_verified: true }
    }

    /// Prints one test's line.
    pub(crate) fn print(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        self.reports += 1;
        self.verified_messages += report.verified_messages;
        self.verified_bytes += report.verified_bytes;
        self.all_verified &= report.verified;
        if self.json {
            serde_json::to_writer(&mut *out, report)?;
            writeln!(out)?;
            return out.flush();
        }
        if !self.headed {
            self.headed = true;
            let (test, size, value) = ("test", "size", "value");
            writeln!(
                out,
                "{test:<24} {size:>7} {value:>13} {:>10} {:>9} {:>7} {:>6} {:>6}",
                "p99", "plain UDP", "ratio", "lost", "again"
            )?;
        }
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let value = format!("{:.2} {}", report.value, report.unit);
        write!(
            out,
            "{:<24} {:>7} {value:>13} {:>10} {:>9} {:>7} {:>6} {:>6}",
            report.test,
            size_text(report.size_bytes),
            number(report.p99),
            number(report.raw),
            number(report.ratio),
            report.lost,
            report.retransmitted
        )?;
        if let Some(ratio) = report.ratio_p99 {
            write!(out, "  p99 ratio {ratio:.2}")?;
        }
        if let Some(ratio) = report.ratio_round_trip {
            write!(out, "  {ratio:.2} of a round trip")?;
        }
        if let Some(ratio) = report.ratio_one_qp {
            write!(out, "  {ratio:.2} of one QP")?;
        }
        writeln!(out)?;
        out.flush()
    }

    /// Prints what was verified.
    pub(crate) fn finish(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        if self.all_verified && self.reports > 0 {
            writeln!(
                out,
                "verified: {} messages, {} compared byte for byte in their destination, in all {} tests; \
                 after each timed round the final contents of all buffers as well",
                self.verified_messages,
                size_text(usize::try_from(self.verified_bytes).unwrap_or(usize::MAX)),
                self.reports
            )?;
        } else {
            writeln!(out, "nothing was verified: add --verify to compare every byte")?;
        }
        out.flush()
    }
}

/// Bytes with a binary suffix, as the options take them.
fn size_text(bytes: usize) -> String {
    for (shift, suffix) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes >= 10 << shift {
            return format!("{}{suffix}", bytes >> shift);
        }
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// A bar on stderr while the rounds run, if somebody looks at it.
pub(crate) fn progress(plan: &Plan, json: bool) -> ProgressBar {
    if json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(plan.rounds as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix:24} {bar:30} {pos}/{len} rounds") {
        bar.set_style(style);
    }
    bar.with_prefix(plan.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::tests::plan;
    use crate::perf::plan::{Operation, Service};

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_ratios() {
        let round = |value, raw| Measured { value, raw: Some(raw), ..Measured::default() };
        // The ratio of the medians would be 2.0.
        let rounds = [round(1.0, 1.0), round(2.0, 0.5), round(3.0, 1.5)];
        let report = Report::new(&plan(Operation::Send, Service::Rc), &rounds, &Account::default());
        assert_eq!((report.value, report.raw, report.ratio), (2.0, Some(1.0), Some(2.0)));
        assert_eq!((report.min, report.max), (1.0, 3.0));
        assert!(report.ratio_p99.is_none() && report.ratio_one_qp.is_none());
    }

    #[test]
    fn packets_that_left_and_did_not_arrive_are_lost() {
        let traffic = |sent, received| Traffic { sent, received, retransmitted: 1, ..Traffic::default() };
        let account = Account { traffic: [traffic(10, 5), traffic(5, 8)], ..Account::default() };
        let report = Report::new(&plan(Operation::Send, Service::Rc), &[], &account);
        assert_eq!((report.lost, report.retransmitted), (2, 2));
    }

    #[test]
    fn sizes_read_as_they_are_written() {
        for (bytes, text) in [(8, "8"), (4096, "4K"), (1 << 20, "1M"), (1025, "1025"), (50_000, "48K")] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
