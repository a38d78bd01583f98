//! Judges what a run shows about the program.

use std::collections::BTreeSet;

use pumice_device::findings::{Fields, Finding, FindingFamily, FindingKind, Level};
use serde::{Deserialize, Serialize};

use super::case::SweepCase;
use super::options::SweepOptions;
use super::report_file::LeftObject;
use super::run::{RunEnd, SweepRun};

/// The verdict on a run, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SweepVerdict {
    /// A signal ended the program.
    Crash,
    /// The program did not end.
    Hang,
    /// The program left objects that it had not tried to destroy.
    Leak,
    /// The program succeeded and printed nothing about the failure.
    Silent,
    /// The program handled the failure.
    Handled,
    /// The call was not made this time, the work request was not completed, or the message was not sent.
    Unmade,
}

static CRASH: FindingKind = kind("crash", Level::Error, "A signal ended the program.");
static HANG: FindingKind = kind("hang", Level::Error, "The program did not end.");
static LEAK: FindingKind =
    kind("leak", Level::Error, "The program left objects that it had not tried to give back.");
static SILENT: FindingKind =
    kind("silent", Level::Note, "The program succeeded and said nothing of the failure.");
static HANDLED: FindingKind = kind("handled", Level::Ok, "The program dealt with the failure.");
static UNMADE: FindingKind = kind("unmade", Level::Note, "What was to fail did not happen this time.");

/// All kinds of verdicts.
pub(super) static KINDS: [&FindingKind; 6] = [&CRASH, &HANG, &LEAK, &SILENT, &HANDLED, &UNMADE];

const fn kind(name: &'static str, level: Level, what: &'static str) -> FindingKind {
    FindingKind::new(name, FindingFamily::Failures, level, what)
}

impl SweepVerdict {
    /// Returns its kind of finding.
    pub(super) const fn kind(self) -> &'static FindingKind {
        match self {
            SweepVerdict::Crash => &CRASH,
            SweepVerdict::Hang => &HANG,
            SweepVerdict::Leak => &LEAK,
            SweepVerdict::Silent => &SILENT,
            SweepVerdict::Handled => &HANDLED,
            SweepVerdict::Unmade => &UNMADE,
        }
    }
}

/// The judgement of a run. As a JSON object it is a line of `--json` and of `--resume`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Judgement {
    /// Fault of the run; `None` for the run without faults.
    #[serde(flatten)]
    pub(super) case: Option<SweepCase>,
    pub(super) verdict: SweepVerdict,
    pub(super) end: RunEnd,
    /// Objects that the program left, beyond those that it leaves without faults.
    pub(super) left: Vec<LeftObject>,
    /// The first line that the program printed, and does not print without faults.
    pub(super) said: Option<String>,
    pub(super) seconds: f64,
}

/// The run without faults, with which other runs are compared.
#[derive(Debug)]
pub(super) struct CleanRuns {
    said: BTreeSet<String>,
    left: BTreeSet<LeftObject>,
}

impl CleanRuns {
    pub(super) fn of(run: &SweepRun) -> CleanRuns {
        let said = run.said.iter().map(|line| without_numbers(line)).collect();
        CleanRuns { said, left: run.report.left.iter().flatten().cloned().collect() }
    }

    /// Judges the run without faults itself.
    pub(super) fn judge_itself(run: &SweepRun) -> Judgement {
        let left = run.report.left.clone().unwrap_or_default();
        let verdict = if left.is_empty() { SweepVerdict::Handled } else { SweepVerdict::Leak };
        Judgement { case: None, verdict, end: run.end, left, said: None, seconds: run.took.as_secs_f64() }
    }

    /// Judges a run with a fault.
    pub(super) fn judge(&self, case: &SweepCase, run: &SweepRun) -> Judgement {
        let left: Vec<LeftObject> =
            run.report.left.iter().flatten().filter(|object| !self.left.contains(object)).cloned().collect();
        let said = run.said.iter().find(|line| !self.said.contains(&without_numbers(line))).cloned();
        let verdict = match run.end {
            RunEnd::Signal(_) => SweepVerdict::Crash,
            RunEnd::Hang => SweepVerdict::Hang,
            RunEnd::Exit(_) if !run.report.fired && !run.met_fault => SweepVerdict::Unmade,
            RunEnd::Exit(_) if !left.is_empty() => SweepVerdict::Leak,
            RunEnd::Exit(0) if said.is_none() && !case.is_made_good() => SweepVerdict::Silent,
            RunEnd::Exit(_) => SweepVerdict::Handled,
        };
        let seconds = run.took.as_secs_f64();
        Judgement { case: Some(case.clone()), verdict, end: run.end, left, said, seconds }
    }
}

impl Judgement {
    /// Returns the judgement as a finding.
    pub(super) fn to_finding(&self, options: &SweepOptions) -> Finding {
        let kind = self.verdict.kind();
        let level = if self.is_bad(options) { Level::Error } else { kind.level.min(Level::Note) };
        let subject = match &self.case {
            Some(case) => format!("{} {} {}", case.subject(), case.ordinal(), case.failure()),
            None => "without faults".to_owned(),
        };
        let sentence = if self.verdict == SweepVerdict::Unmade {
            "it did not come to that".to_owned()
        } else {
            let parts = [self.ending(), self.leftovers(), self.said.clone().unwrap_or_default()];
            let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
            parts.join("; ")
        };
        Finding::new(kind, subject, sentence).at_level(level).with_evidence(Fields::of(self))
    }

    /// Reports whether the verdict counts against the program.
    pub(super) fn is_bad(&self, options: &SweepOptions) -> bool {
        match self.verdict {
            SweepVerdict::Crash | SweepVerdict::Hang => true,
            SweepVerdict::Leak => !options.allow_leaks,
            SweepVerdict::Silent => options.strict,
            SweepVerdict::Handled | SweepVerdict::Unmade => false,
        }
    }

    /// Describes how the program ended.
    pub(super) fn ending(&self) -> String {
        match self.end {
            RunEnd::Exit(status) => format!("exit {status}"),
            RunEnd::Signal(signal) => signal_name(signal),
            RunEnd::Hang => "no end".to_owned(),
        }
    }

    /// Describes the objects that were left: "queue pair (ibv_create_qp 1), context (ibv_open_device 1)".
    pub(super) fn leftovers(&self) -> String {
        let shown = self.left.iter().map(|LeftObject { kind, call, nth }| format!("{kind} ({call} {nth})"));
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

/// Returns a line with # for each number, decimal or hexadecimal, so that lines of several runs can be
/// compared.
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
    use clap::Parser as _;
    use pumice_device::findings::json;
    use std::time::Duration;

    fn run(end: RunEnd, fired: bool, left: &[&str], said: &[&str]) -> SweepRun {
        let object = |kind: &&str| LeftObject {
            kind: (*kind).to_owned(),
            call: "ibv_x".to_owned(),
            nth: pumice_device::faults::NthField(1),
        };
        let left = Some(left.iter().map(object).collect());
        let said = said.iter().map(|line| (*line).to_owned()).collect();
        let report = CallReport { fired, left, ..CallReport::default() };
        let took = Duration::ZERO;
        SweepRun {
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
        let clean = CleanRuns::of(&usual);
        assert_eq!(CleanRuns::judge_itself(&usual).verdict, SweepVerdict::Leak);
        let case = SweepCase::Call { call: "ibv_reg_mr".to_owned(), nth: 1, errno: "ENOMEM".to_owned() };
        let same = "local address: QPN 0x00ffff, PSN 4";
        for (end, fired, left, said, verdict) in [
            (RunEnd::Signal(11), true, &[][..], "", SweepVerdict::Crash),
            (RunEnd::Hang, true, &[], "", SweepVerdict::Hang),
            (RunEnd::Exit(1), true, &["context", "queue pair"], "failed", SweepVerdict::Leak),
            (RunEnd::Exit(0), true, &["context"], same, SweepVerdict::Silent),
            (RunEnd::Exit(1), true, &["context"], same, SweepVerdict::Handled),
            (RunEnd::Exit(0), true, &[], "could not register", SweepVerdict::Handled),
            (RunEnd::Exit(0), false, &[], same, SweepVerdict::Unmade),
        ] {
            let judgement = clean.judge(&case, &run(end, fired, left, &[said]));
            assert_eq!(judgement.verdict, verdict, "{end:?} {said}");
        }
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: SweepOptions,
    }

    #[test]
    fn a_judgement_is_a_finding_whose_evidence_is_a_line_of_the_journal() {
        let options = |words: &[&str]| Line::parse_from([words, &["--", "true"]].concat()).options;
        let usual = run(RunEnd::Exit(0), false, &[], &[]);
        let case = SweepCase::Call { call: "ibv_reg_mr".to_owned(), nth: 1, errno: "ENOMEM".to_owned() };
        let leaking = run(RunEnd::Exit(1), true, &["queue pair"], &["failed"]);
        let judgement = Judgement { seconds: 0.1 + 0.2, ..CleanRuns::of(&usual).judge(&case, &leaking) };
        let finding = judgement.to_finding(&options(&["sweep"]));
        assert_eq!((finding.kind.name, finding.level), ("leak", Level::Error));
        assert_eq!(finding.subject, "ibv_reg_mr 1 ENOMEM");
        assert_eq!(finding.sentence, "exit 1; queue pair (ibv_x 1); failed");
        let line = serde_json::to_string(&judgement).expect("it is a value of JSON");
        assert_eq!(json::line(&finding.evidence), line + "\n");
        assert_eq!(judgement.to_finding(&options(&["sweep", "--allow-leaks"])).level, Level::Note);
        let silent = Judgement { verdict: SweepVerdict::Silent, ..judgement.clone() };
        assert_eq!(silent.to_finding(&options(&["sweep"])).level, Level::Note);
        assert_eq!(silent.to_finding(&options(&["sweep", "--strict"])).level, Level::Error);
        let unmade = Judgement { verdict: SweepVerdict::Unmade, ..judgement };
        assert_eq!(unmade.to_finding(&options(&["sweep"])).sentence, "it did not come to that");
        // The names are used in files.
        for kind in KINDS {
            let verdict: SweepVerdict =
                serde_json::from_value(kind.name.into()).expect("a verdict has this name");
            assert_eq!(verdict.kind(), kind);
        }
    }
}
