//! The table as text and as JSON.

use std::io::{self, Write};

use pumice_perf::machine::is_emulated;
use serde::Serialize;

use super::figure::{Figure, FigureComparison, FigureGoal};
use super::measure::MeasuredRow;
use super::rows::PerfRow;
use super::source::Unmeasured;

/// Warning above figures of an emulated machine, whose processors are a program.
const EMULATED: &str =
    "EMULATED PROCESSORS: latencies here are the emulator's, the figures mean nothing, and ratios little";
/// Minimum share of idle time before a row; below it, the figures are those of a busy machine.
const MIN_IDLE_SHARE: f64 = 0.9;

/// A row as JSON.
#[derive(Debug, Serialize)]
struct RowReport<'a> {
    row: &'a str,
    what: &'a str,
    unit: &'a str,
    emulated: bool,
    /// The machine was idle before the row.
    quiet: Option<bool>,
    idle_share: Option<f64>,
    rounds: usize,
    comparisons: Vec<ComparisonReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unmeasured: Option<&'a str>,
    /// The measurement failed, rather than being impossible on this machine.
    failed: bool,
}

/// A comparison as JSON, without fields that are empty.
#[derive(Debug, Default, Serialize)]
struct ComparisonReport {
    figure: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with_value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unmeasured: Option<String>,
}

/// Writes rows as they are measured.
#[derive(Debug)]
pub(super) struct Printer {
    json: bool,
    headed: bool,
}

impl Printer {
    pub(super) fn new(json: bool) -> Printer {
        Printer { json, headed: false }
    }

    /// Prints a row. `idle_share` is the idle share of the machine before it.
    pub(super) fn print(
        &mut self,
        row: &PerfRow,
        measured: &MeasuredRow,
        idle_share: Option<f64>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let report = RowReport {
            row: row.name,
            what: row.what,
            unit: row.unit,
            emulated: is_emulated(),
            quiet: idle_share.map(|share| share >= MIN_IDLE_SHARE),
            idle_share,
            rounds: measured.rounds.len(),
            comparisons: row.comparisons.iter().map(|comparison| report_of(comparison, measured)).collect(),
            unmeasured: measured.unmeasured.as_ref().map(Unmeasured::reason),
            failed: measured.has_failed(),
        };
        if self.json {
            serde_json::to_writer(&mut *out, &report)?;
            writeln!(out)?;
        } else {
            self.print_text(&report, out)?;
        }
        out.flush()
    }

    fn print_text(&mut self, report: &RowReport<'_>, out: &mut dyn Write) -> io::Result<()> {
        if !self.headed {
            self.headed = true;
            if report.emulated {
                writeln!(out, "{EMULATED}")?;
            }
        }
        let unit = if report.unit.is_empty() { String::new() } else { format!(", in {}", report.unit) };
        let rounds = match report.rounds {
            0 => String::new(),
            1 => ", 1 round".to_owned(),
            several => format!(", {several} rounds"),
        };
        writeln!(out, "{}: {}{unit}{rounds}", report.row, report.what)?;
        if let (Some(false), Some(share)) = (report.quiet, report.idle_share) {
            let busy = 100.0 * (1.0 - share);
            writeln!(
                out,
                "  NOT QUIET: {busy:.0} % of the processors' time went to other work before this row"
            )?;
        }
        match report.unmeasured {
            Some(reason) if report.failed => writeln!(out, "  failed: {reason}")?,
            Some(reason) => writeln!(out, "  not measured here: {reason}")?,
            None => {}
        }
        report
            .comparisons
            .iter()
            .filter(|line| line.unmeasured.is_none() || report.unmeasured.is_none())
            .try_for_each(|line| print_line(line, out))
    }
}

fn print_line(line: &ComparisonReport, out: &mut dyn Write) -> io::Result<()> {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
    let spread = match (line.min, line.max) {
        (Some(min), Some(max)) => format!("{min:.3} to {max:.3}"),
        _ => String::new(),
    };
    let times = if line.with.is_some() { " x" } else { "" };
    let goal = match (line.at_most, line.at_least) {
        (Some(most), _) => format!("at most {most}{times}"),
        (_, Some(least)) => format!("at least {least}{times}"),
        _ => String::new(),
    };
    let ratio = line.ratio.map_or(String::new(), |ratio| format!("{ratio:.2} x"));
    let holds = match (line.holds, line.unmeasured.as_deref()) {
        (_, Some(reason)) => format!("not measured: {reason}"),
        (Some(true), _) => "holds".to_owned(),
        (Some(false), _) => "MISSED".to_owned(),
        (None, _) => String::new(),
    };
    let (figure, value) = (line.figure, number(line.value));
    let (with, with_value) = (line.with.unwrap_or_default(), number(line.with_value));
    let text = format!(
        "  {figure:<10} {value:>10}  {spread:<22} {with:<21} {with_value:>9} {ratio:>9}  {goal:<15} {holds}"
    );
    writeln!(out, "{}", text.trim_end())
}

fn report_of(comparison: &FigureComparison, measured: &MeasuredRow) -> ComparisonReport {
    let (at_most, at_least) = match comparison.goal {
        Some(FigureGoal::AtMost(most)) => (Some(most), None),
        Some(FigureGoal::AtLeast(least)) => (None, Some(least)),
        None => (None, None),
    };
    let described = ComparisonReport {
        figure: comparison.figure.name(),
        with: comparison.with.map(Figure::name),
        at_most,
        at_least,
        ..ComparisonReport::default()
    };
    match comparison.of(&measured.rounds) {
        Some(compared) => ComparisonReport {
            value: Some(compared.figure.median),
            min: Some(compared.figure.least),
            max: Some(compared.figure.most),
            with_value: compared.with.map(|with| with.median),
            ratio: compared.ratio,
            holds: compared.holds,
            ..described
        },
        None => ComparisonReport { unmeasured: Some(unmeasured_reason(comparison, measured)), ..described },
    }
}

/// Returns the reason why the rounds have no figures for a comparison.
fn unmeasured_reason(comparison: &FigureComparison, measured: &MeasuredRow) -> String {
    let of_peer = comparison.with.and_then(|with| measured.peers_unmeasured.get(&with)).cloned();
    let of_row = || measured.unmeasured.as_ref().map(|why| why.reason().to_owned());
    of_peer.or_else(of_row).unwrap_or_else(|| "no round has both figures".to_owned())
}
