//! Reports as text and as JSON, and errors of measurements in the words of the command line.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use pumice_device::settings::Wire;
use pumice_perf::{Operation, PerfError, Plan, PlanError, Report};

/// Returns a sentence about a measurement that failed.
pub(crate) fn in_words(error: &PerfError) -> String {
    match error {
        PerfError::Plan(error) => plan_in_words(error),
        PerfError::LinkMtu { mtu_bytes, most_bytes } => format!(
            "the link carries a path MTU of {most_bytes} at most, not {mtu_bytes}: use --mtu {most_bytes}"
        ),
        PerfError::SameAddress(address) => format!(
            "client and server would both need UDP port 4791 of {address}: use the server's IPv4 address, or \
             --addr"
        ),
        PerfError::NoLoopbackAddress => "no loopback address has UDP port 4791 free: use --addr".to_owned(),
        PerfError::Both { here, server } => format!("{}; the server says: {server}", in_words(here)),
        error => error.to_string(),
    }
}

/// Returns a sentence about a plan that cannot be measured.
pub(crate) fn plan_in_words(error: &PlanError) -> String {
    match error {
        PlanError::NotOfService { operation, service } => {
            let instead = if *operation == Operation::Write { "rc or uc" } else { "rc" };
            let service = service.name().to_uppercase();
            format!("{service} has no {}: use --transport {instead}", operation.name())
        }
        PlanError::Size { size_bytes } => {
            format!("a size of {size_bytes} bytes is out of range: use 1 to 1G")
        }
        PlanError::AtomicSize { size_bytes } => {
            format!("an atomic has 8 bytes, not {size_bytes}: leave out --size")
        }
        PlanError::DatagramSize { size_bytes, mtu_bytes } => format!(
            "a UD message of {size_bytes} bytes does not fit one packet of MTU {mtu_bytes}: use a smaller \
             --size or a larger --mtu"
        ),
        PlanError::Number { field, value, most } => {
            format!("{} {value} is out of range: use 1 to {most}", option_of(field))
        }
        PlanError::RoundSeconds { round_seconds } => {
            format!("a round of {round_seconds} s is out of range: change --for")
        }
        PlanError::Buffers { most_bytes } => {
            format!("a message needs more than {} MiB of buffers: use a smaller --size", most_bytes >> 20)
        }
        PlanError::LatencyOfSeveral => {
            "latency is measured with one message on one queue pair: leave out --qps and --post-list"
                .to_owned()
        }
        PlanError::LatencyOfUnreliableWrite => {
            "no end is told when a UC write has arrived: measure its bandwidth, or --transport rc".to_owned()
        }
        PlanError::Passive => {
            "--passive is for --latency of write, read and atomic: a send needs its receiver".to_owned()
        }
        PlanError::Events => "--events is for --latency".to_owned(),
        error => error.to_string(),
    }
}

/// Returns the option that sets a field of a plan.
fn option_of(field: &str) -> String {
    match field {
        "qp_count" => "--qps".to_owned(),
        field => format!("--{}", field.replace('_', "-")),
    }
}

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
    fn remedies_are_options() {
        let number = |field| PlanError::Number { field, value: 0, most: 9 };
        assert_eq!(plan_in_words(&number("qp_count")), "--qps 0 is out of range: use 1 to 9");
        assert_eq!(plan_in_words(&number("post_list")), "--post-list 0 is out of range: use 1 to 9");
        let here = Box::new(PerfError::LinkMtu { mtu_bytes: 4096, most_bytes: 1024 });
        let both = PerfError::Both { here, server: "no".to_owned() };
        assert!(in_words(&both).ends_with("use --mtu 1024; the server says: no"));
    }

    #[test]
    fn sizes_read_as_they_are_written() {
        for (bytes, text) in [(8, "8"), (4096, "4K"), (1 << 20, "1M"), (1025, "1025"), (50_000, "48K")] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
