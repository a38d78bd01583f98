//! What a run shows.

use std::collections::BTreeSet;

use pumice_device::findings::{Family, Fields, Finding, FindingKind, Level};
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

static CRASH: FindingKind = kind("crash", Level::Error, "A signal ended the program.");
static HANG: FindingKind = kind("hang", Level::Error, "The program did not end.");
static LEAK: FindingKind =
    kind("leak", Level::Error, "The program left objects that it had not tried to give back.");
static SILENT: FindingKind =
    kind("silent", Level::Note, "The program succeeded and said nothing of the failure.");
static HANDLED: FindingKind = kind("handled", Level::Ok, "The program dealt with the failure.");
static UNMADE: FindingKind = kind("unmade", Level::Note, "What was to fail did not happen this time.");

/// All that a run may show.
pub(super) static KINDS: [&FindingKind; 6] = [&CRASH, &HANG, &LEAK, &SILENT, &HANDLED, &UNMADE];

const fn kind(name: &'static str, level: Level, what: &'static str) -> FindingKind {
    FindingKind::new(name, Family::Failures, level, what)
}

impl Verdict {
    /// The kind of finding that it is.
    pub(super) const fn kind(self) -> &'static FindingKind {
        match self {
            Verdict::Crash => &CRASH,
            Verdict::Hang => &HANG,
            Verdict::Leak => &LEAK,
            Verdict::Silent => &SILENT,
            Verdict::Handled => &HANDLED,
            Verdict::Unmade => &UNMADE,
        }
    }
}

/// What a run shows. As an object of JSON it is a line of `--json` and of `--resume`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Judgement {
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
    pub(super) fn judge_itself(run: &Run) -> Judgement {
        let left = run.report.left.clone().unwrap_or_default();
        let verdict = if left.is_empty() { Verdict::Handled } else { Verdict::Leak };
        Judgement { case: None, verdict, end: run.end, left, said: None, seconds: run.took.as_secs_f64() }
    }

    /// What a run shows in which a call was to fail.
    pub(super) fn judge(&self, case: &Case, run: &Run) -> Judgement {
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
        Judgement { case: Some(case.clone()), verdict, end: run.end, left, said, seconds }
    }
}

impl Judgement {
    /// The finding that it is.
    pub(super) fn to_finding(&self, options: &SweepOptions) -> Finding {
        let kind = self.verdict.kind();
        let level = if self.is_bad(options) { Level::Error } else { kind.level.min(Level::Note) };
        let subject = match &self.case {
            Some(case) => format!("{} {} {}", case.subject(), case.ordinal(), case.failure()),
            None => "without faults".to_owned(),
        };
        let sentence = if self.verdict == Verdict::Unmade {
            "it did not come to that".to_owned()
        } else {
            let parts = [self.ending(), self.leftovers(), self.said.clone().unwrap_or_default()];
            let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
            parts.join("; ")
        };
        Finding::new(kind, subject, sentence).at_level(level).with_evidence(Fields::of(self))
    }

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
    use clap::Parser as _;
    use pumice_device::findings::json;
    use std::time::Duration;

    fn run(end: RunEnd, fired: bool, left: &[&str], said: &[&str]) -> Run {
        let object = |kind: &&str| Object {
            kind: (*kind).to_owned(),
            call: "ibv_x".to_owned(),
            nth: pumice_device::faults::NthField(1),
        };
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
        assert_eq!(Clean::judge_itself(&usual).verdict, Verdict::Leak);
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
        let case = Case::Call { call: "ibv_reg_mr".to_owned(), nth: 1, errno: "ENOMEM".to_owned() };
        let leaking = run(RunEnd::Exit(1), true, &["queue pair"], &["failed"]);
        let judgement = Judgement { seconds: 0.1 + 0.2, ..Clean::of(&usual).judge(&case, &leaking) };
        let finding = judgement.to_finding(&options(&["sweep"]));
        assert_eq!((finding.kind.name, finding.level), ("leak", Level::Error));
        assert_eq!(finding.subject, "ibv_reg_mr 1 ENOMEM");
        assert_eq!(finding.sentence, "exit 1; queue pair (ibv_x 1); failed");
        let line = serde_json::to_string(&judgement).expect("it is a value of JSON");
        assert_eq!(json::line(&finding.evidence), line + "\n");
        assert_eq!(judgement.to_finding(&options(&["sweep", "--allow-leaks"])).level, Level::Note);
        let silent = Judgement { verdict: Verdict::Silent, ..judgement.clone() };
        assert_eq!(silent.to_finding(&options(&["sweep"])).level, Level::Note);
        assert_eq!(silent.to_finding(&options(&["sweep", "--strict"])).level, Level::Error);
        let unmade = Judgement { verdict: Verdict::Unmade, ..judgement };
        assert_eq!(unmade.to_finding(&options(&["sweep"])).sentence, "it did not come to that");
        // A file has these names.
        for kind in KINDS {
            let verdict: Verdict = serde_json::from_value(kind.name.into()).expect("a verdict has this name");
            assert_eq!(verdict.kind(), kind);
        }
    }
}
