//! Reports as text and as JSON.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use pumice_device::settings::Wire;
use pumice_perf::{Plan, Report};

/// Warning above figures of an emulated machine, whose processors are a program.
pub(crate) const EMULATED: &str =
    "EMULATED PROCESSORS: latencies here are the emulator's, the figures mean nothing, and ratios little";

/// Writes reports as they arrive.
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

    /// Prints the line of a test.
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
            if report.emulated {
                writeln!(out, "{EMULATED}")?;
            }
            let (test, size, medium, value) = ("test", "size", "medium", "value");
            writeln!(
                out,
                "{test:<24} {size:>6} {medium:<13} {value:>13} {:>8} {:>8} {:>6} {:>5} {:>5}  yardstick",
                "p99", "raw", "ratio", "lost", "again"
            )?;
        }
        self.print_row(report, out)
    }

    fn print_row(&self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let value = format!("{:.2} {}", report.value, report.unit);
        // Datagrams have no peer for which the device could report the medium.
        let medium = report.medium.as_deref().unwrap_or(report.wire.name());
        write!(
            out,
            "{:<24} {:>6} {medium:<13} {value:>13} {:>8} {:>8} {:>6} {:>5} {:>5}  {}",
            report.test,
            size_text(report.size_bytes),
            number(report.p99),
            number(report.raw),
            number(report.ratio),
            report.lost,
            report.retransmitted,
            report.yardstick.unwrap_or("-")
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
        if let Some(reason) = report.medium_reason.as_deref().filter(|_| report.wire == Wire::Auto) {
            write!(out, "  UDP because {reason}")?;
        }
        writeln!(out)?;
        out.flush()
    }

    /// Prints the result of the verification.
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

/// Formats a number of bytes with a binary suffix, as the options accept it.
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

/// Returns a bar on stderr while the rounds run, if stderr is a terminal.
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

    #[test]
    fn sizes_read_as_they_are_written() {
        for (bytes, text) in [(8, "8"), (4096, "4K"), (1 << 20, "1M"), (1025, "1025"), (50_000, "48K")] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
