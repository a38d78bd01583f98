//! `pumice stat --watch`: prints what each process does per second, for pipes.

use std::io::{self, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use pumice_device::inspect::QpView;
use serde::Serialize;

use crate::observe::{
    Interrupt, ProcessRates, ProcessView, QpRates, Snapshot, SnapshotScope, plain, quantity, rates,
};
use crate::outcome::{CommandError, CommandResult, Outcome};

/// The options of watching: interval, number, and format.
pub(super) struct WatchOptions {
    pub(super) interval: Duration,
    pub(super) count: Option<u64>,
    pub(super) json: bool,
}

/// Number of lines between two headings.
const HEADING_EVERY: u64 = 40;

/// Takes snapshots until a signal arrives, the reader closes the output, or all intervals have been printed.
pub(super) fn watch(scope: &SnapshotScope<'_>, how: &WatchOptions, out: &mut dyn Write) -> CommandResult {
    let interrupt = Interrupt::new()
        .map_err(|error| CommandError::Failed(format!("signals cannot be waited for: {error}")))?;
    let begun = Instant::now();
    let mut before = (scope.look().map_err(CommandError::Failed)?, Instant::now());
    let (mut done, mut lines) = (0, 0);
    while how.count.is_none_or(|count| done < count) {
        if interrupt.wait(how.interval).map_err(CommandError::Output)? {
            break;
        }
        let (after, at) = (scope.look().map_err(CommandError::Failed)?, Instant::now());
        let interval_ns = nanoseconds(at - before.1);
        let found = rates(&before.0, &after, interval_ns);
        let elapsed_ns = nanoseconds(at - begun);
        if how.json {
            json(&after, &found, elapsed_ns, interval_ns, out)?;
        } else {
            for (process, found) in after.processes.iter().zip(&found) {
                if lines % HEADING_EVERY == 0 {
                    writeln!(out, "{HEADING}")?;
                }
                lines += 1;
                line(process, found, elapsed_ns, out)?;
            }
            if after.processes.is_empty() {
                writeln!(out, "{:>8.1}  no process of this user shares the port", elapsed_ns as f64 / 1e9)?;
            }
        }
        out.flush()?;
        before = (after, at);
        done += 1;
    }
    Ok(Outcome::Good)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const HEADING: &str = "  TIME_S     PID PROGRAM          TAG          QPS  ERR SENDS/s RECVS/s  TXB/s  RXB/s \
                       AGAIN/s RNR/s DROP/s FAULT/s";

fn line(process: &ProcessView, found: &ProcessRates, elapsed_ns: u64, out: &mut dyn Write) -> io::Result<()> {
    let seconds = elapsed_ns as f64 / 1e9;
    let name = process.program.as_deref().unwrap_or("?");
    let words = |text: &str, most: usize| -> String {
        let one: String = text.chars().map(|c| if c.is_whitespace() { '_' } else { c }).take(most).collect();
        if one.is_empty() { "-".to_owned() } else { one }
    };
    write!(
        out,
        "{seconds:>8.1} {:>7} {:<16} {:<12}",
        process.pid,
        words(name, 16),
        words(&process.tag(), 12)
    )?;
    if !process.answers() {
        return writeln!(out, " does not answer");
    }
    let totals = process.objects.as_ref().map_or(0, |objects| objects.totals.qps);
    let qps = process.objects.iter().flat_map(|objects| &objects.qps);
    let failed = qps.filter(|qp| qp.state == "ERR" || qp.state == "SQE").count();
    let QpRates { sends, receives, sent_bytes, received_bytes, repeated, rnr_naks, .. } = found.all;
    writeln!(
        out,
        " {totals:>3} {failed:>4} {:>7} {:>7} {:>6} {:>6} {:>7} {:>5} {:>6} {:>7}",
        quantity(sends),
        quantity(receives),
        quantity(sent_bytes),
        quantity(received_bytes),
        quantity(repeated),
        quantity(rnr_naks),
        quantity(found.drops),
        quantity(found.faults),
    )
}

fn json(
    after: &Snapshot,
    found: &[ProcessRates],
    elapsed_ns: u64,
    interval_ns: u64,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct WatchLine<'a> {
        elapsed_ns: u64,
        interval_ns: u64,
        processes: Vec<WatchedProcess<'a>>,
    }
    #[derive(Serialize)]
    struct WatchedProcess<'a> {
        pid: u32,
        program: Option<&'a str>,
        tag: Option<String>,
        process_index: u8,
        address: IpAddr,
        answers: bool,
        per_second: &'a ProcessRates,
        faults_applied: u64,
        qps: Vec<WatchedQp<'a>>,
        qps_left_out: u32,
    }
    #[derive(Serialize)]
    struct WatchedQp<'a> {
        #[serde(flatten)]
        view: &'a QpView,
        per_second: &'a QpRates,
    }
    let processes = after
        .processes
        .iter()
        .zip(found)
        .map(|(process, found)| WatchedProcess {
            pid: process.pid,
            program: process.program.as_deref(),
            tag: process.objects.as_ref().map(|objects| plain(&objects.tag)),
            process_index: process.index,
            address: process.address,
            answers: process.answers(),
            per_second: found,
            faults_applied: process.faults_applied(),
            qps: process
                .objects
                .iter()
                .flat_map(|objects| &objects.qps)
                .zip(&found.qps)
                .map(|(view, per_second)| WatchedQp { view, per_second })
                .collect(),
            qps_left_out: process.objects.as_ref().map_or(0, |objects| objects.qps_left_out()),
        })
        .collect();
    serde_json::to_writer(&mut *out, &WatchLine { elapsed_ns, interval_ns, processes })?;
    writeln!(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tests::{process, qp};

    #[test]
    fn a_line_has_as_many_words_as_the_heading_whatever_names_hold() {
        let mut failed = qp(1);
        failed.state = "ERR".to_owned();
        let mut one = process(17, vec![failed, qp(2)]);
        one.program = Some("two words".to_owned());
        if let Some(objects) = &mut one.objects {
            objects.tag = "a\u{1b}[31m b".to_owned();
        }
        let found = ProcessRates {
            all: QpRates { sends: 1234.0, sent_bytes: 5e6, ..QpRates::default() },
            ..ProcessRates::default()
        };
        let mut out = Vec::new();
        line(&one, &found, 2_000_000_000, &mut out).expect("a Vec takes everything");
        let text = String::from_utf8(out).expect("text");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words[..8], ["2.0", "17", "two_words", "a?[31m_b", "2", "1", "1.2k", "0"], "{text}");
        assert_eq!(words.len(), HEADING.split_whitespace().count(), "{text}{HEADING}");
        one.counters = None;
        let mut out = Vec::new();
        line(&one, &found, 0, &mut out).expect("a Vec takes everything");
        assert!(String::from_utf8(out).expect("text").ends_with("does not answer\n"));
    }
}
