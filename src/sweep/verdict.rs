//! What a run shows.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::options::SweepOptions;
use super::report_file::Object;
use super::run::{Run, RunEnd};

/// What a run shows, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// A signal ended the program.
    Crash,
    /// The program did not end.
    Hang,
    /// The program left objects that it had not tried to give back.
    Leak,
    /// The program succeeded and said nothing of the failure.
    Silent,
    /// The program dealt with it.
    Handled,
    /// The call was not made this time, the work request was not completed, or the message was not sent.
    Unmade,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Crash => "crash",
            Verdict::Hang => "hang",
            Verdict::Leak => "leak",
            Verdict::Silent => "silent",
            Verdict::Handled => "handled",
            Verdict::Unmade => "unmade",
        })
    }
}

/// The result of a run in which something failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Finding {
    /// What failed; nothing in the run without faults.
    #[serde(flatten)]
    pub(super) case: Option<Case>,
    pub(super) verdict: Verdict,
    pub(super) end: RunEnd,
    /// What the program left, beyond what it leaves without faults.
    pub(super) left: Vec<Object>,
    /// The first line that the program said, and does not say without faults.
    pub(super) said: Option<String>,
    pub(super) seconds: f64,
}

/// The run without faults, with which others are compared.
#[derive(Debug)]
pub(super) struct Clean {
    said: BTreeSet<String>,
    left: BTreeSet<Object>,
}

impl Clean {
    pub(super) fn of(run: &Run) -> Clean {
        let said = run.said.iter().map(|line| without_numbers(line)).collect();
        Clean { said, left: run.report.left.iter().flatten().cloned().collect() }
    }

    /// What the run without faults shows itself.
    pub(super) fn finding(run: &Run) -> Finding {
        let left = run.report.left.clone().unwrap_or_default();
        let verdict = if left.is_empty() { Verdict::Handled } else { Verdict::Leak };
        Finding { case: None, verdict, end: run.end, left, said: None, seconds: run.took.as_secs_f64() }
    }

    /// What a run shows in which a call was to fail.
    pub(super) fn judge(&self, case: &Case, run: &Run) -> Finding {
        let left: Vec<Object> =
            run.report.left.iter().flatten().filter(|object| !self.left.contains(object)).cloned().collect();
        let said = run.said.iter().find(|line| !self.said.contains(&without_numbers(line))).cloned();
        let verdict = match run.end {
            RunEnd::Signal(_) => Verdict::Crash,
            RunEnd::Hang => Verdict::Hang,
            RunEnd::Exit(_) if !run.report.fired && !run.met_fault => Verdict::Unmade,
            RunEnd::Exit(_) if !left.is_empty() => Verdict::Leak,
            RunEnd::Exit(0) if said.is_none() && !case.is_made_good() => Verdict::Silent,
            RunEnd::Exit(_) => Verdict::Handled,
        };
        let seconds = run.took.as_secs_f64();
        Finding { case: Some(case.clone()), verdict, end: run.end, left, said, seconds }
    }
}

impl Finding {
    /// Whether it speaks against the program.
    pub(super) fn is_bad(&self, options: &SweepOptions) -> bool {
        match self.verdict {
            Verdict::Crash | Verdict::Hang => true,
            Verdict::Leak => !options.allow_leaks,
            Verdict::Silent => options.strict,
            Verdict::Handled | Verdict::Unmade => false,
        }
    }

    /// How the program ended, in words.
    pub(super) fn ending(&self) -> String {
        match self.end {
            RunEnd::Exit(status) => format!("exit {status}"),
            RunEnd::Signal(signal) => signal_name(signal),
            RunEnd::Hang => "no end".to_owned(),
        }
    }

    /// What was left, in words: "queue pair (ibv_create_qp 1), context (ibv_open_device 1)".
    pub(super) fn leftovers(&self) -> String {
        let shown = self.left.iter().map(|Object { kind, call, nth }| format!("{kind} ({call} {nth})"));
        shown.collect::<Vec<_>>().join(", ")
    }
}

fn signal_name(signal: i32) -> String {
    let known = [
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
    ];
    known
        .iter()
        .find(|(number, _)| *number == signal)
        .map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// A line by which lines of several runs are compared: with # for each number, decimal or hexadecimal.
fn without_numbers(line: &str) -> String {
    let number = |word: &str| word.bytes().any(|byte| byte.is_ascii_digit());
    let words =
        line.split(|c: char| !c.is_ascii_alphanumeric()).map(|word| if number(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::report_file::CallReport;
    use std::time::Duration;

    fn run(end: RunEnd, fired: bool, left: &[&str], said: &[&str]) -> Run {
        let object = |kind: &&str| Object { kind: (*kind).to_owned(), call: "ibv_x".to_owned(), nth: 1 };
        let left = Some(left.iter().map(object).collect());
        let said = said.iter().map(|line| (*line).to_owned()).collect();
        let report = CallReport { fired, left, ..CallReport::default() };
        let took = Duration::ZERO;
        Run {
            end,
            report,
            completed: Vec::new(),
            messages: Vec::new(),
            met_fault: false,
            said,
            explained: Vec::new(),
            took,
        }
    }

    #[test]
    fn runs_are_compared_with_the_one_without_faults() {
        let usual = run(RunEnd::Exit(0), false, &["context"], &["local address: QPN 0x0001ab, PSN 17"]);
        let clean = Clean::of(&usual);
        assert_eq!(Clean::finding(&usual).verdict, Verdict::Leak);
        let case = Case::Call { call: "ibv_reg_mr".to_owned(), nth: 1, errno: "ENOMEM".to_owned() };
        let same = "local address: QPN 0x00ffff, PSN 4";
        for (end, fired, left, said, verdict) in [
            (RunEnd::Signal(11), true, &[][..], "", Verdict::Crash),
            (RunEnd::Hang, true, &[], "", Verdict::Hang),
            (RunEnd::Exit(1), true, &["context", "queue pair"], "failed", Verdict::Leak),
            (RunEnd::Exit(0), true, &["context"], same, Verdict::Silent),
            (RunEnd::Exit(1), true, &["context"], same, Verdict::Handled),
            (RunEnd::Exit(0), true, &[], "could not register", Verdict::Handled),
            (RunEnd::Exit(0), false, &[], same, Verdict::Unmade),
        ] {
            let finding = clean.judge(&case, &run(end, fired, left, &[said]));
            assert_eq!(finding.verdict, verdict, "{end:?} {said}");
        }
    }
}
