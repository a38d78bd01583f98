//! Findings, their kinds, the call sites that they are about, and the causes of failures as findings.

use std::fmt;

use pumice_transport::types::Cause;
use pumice_transport::wire::Qpn;

use super::fields::Fields;

/// A frame of a call stack, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// The name of the function.
    pub function: Option<String>,
    /// The source file of the function.
    pub file: Option<String>,
    /// The line of the call, from 1.
    pub line: Option<u32>,
    /// The program or library that contains the function; empty if only a text is known.
    pub object: String,
    /// The offset in that object, in bytes.
    pub offset: u64,
}

impl fmt::Display for Frame {
    /// Writes the frame as in "main (server.c:42)", "main (server+0x40)" and "server+0x40".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Frame { function, file, line, object, offset } = self;
        let object = object.rsplit('/').next().unwrap_or_default();
        match (function.as_deref(), file, line) {
            (function, Some(file), Some(line)) => {
                write!(f, "{} ({file}:{line})", function.unwrap_or("?"))
            }
            (Some(text), _, _) if object.is_empty() => f.write_str(text),
            (Some(function), _, _) => write!(f, "{function} ({object}+{offset:#x})"),
            (None, _, _) => write!(f, "{object}+{offset:#x}"),
        }
    }
}

/// A call site of the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallSite {
    /// A sentence about the call, as in "completion queue 0 was made here"; empty if the finding says it.
    pub what: String,
    /// The frames of the call stack, the innermost first; empty if it is not known.
    pub frames: Vec<Frame>,
}

impl CallSite {
    /// Returns a site of which only a text is known, as in "ibv_create_qp 1".
    pub fn of_text(what: impl Into<String>, text: impl Into<String>) -> CallSite {
        let frame = Frame { function: Some(text.into()), ..Frame::default() };
        CallSite { what: what.into(), frames: vec![frame] }
    }

    /// Reports whether the call stack is unknown.
    pub fn is_unknown(&self) -> bool {
        self.frames.is_empty()
    }
}

/// The importance of a finding, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The checked item is as it should be.
    Ok,
    /// The finding is worth knowing, and no mistake.
    Note,
    /// The program works here, and may fail or be slow elsewhere.
    Warning,
    /// The program or the device does not work.
    Error,
}

impl Level {
    /// Returns the name of the level in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// The subject of a kind of finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FindingFamily {
    /// Requests that rely on an order that is not promised.
    Ordering,
    /// Completion queues and their events.
    Completions,
    /// Attributes of connections, and their consequences.
    Connections,
    /// Buffers and keys that requests use.
    Memory,
    /// Forks, exits and the lives of objects.
    Process,
    /// Requests and calls that fail, and waits without end.
    Failed,
    /// Usage that works, but is slow. It is checked only on request.
    Slow,
    /// The resources that the machine allows the device.
    Machine,
    /// The program's handling of injected failures.
    Failures,
    /// The fate of messages.
    Messages,
}

impl FindingFamily {
    /// Returns the name of the family in reports.
    pub const fn name(self) -> &'static str {
        match self {
            FindingFamily::Ordering => "ordering",
            FindingFamily::Completions => "completions",
            FindingFamily::Connections => "connections",
            FindingFamily::Memory => "memory",
            FindingFamily::Process => "process",
            FindingFamily::Failed => "failed",
            FindingFamily::Slow => "slow",
            FindingFamily::Machine => "machine",
            FindingFamily::Failures => "failures",
            FindingFamily::Messages => "messages",
        }
    }
}

/// A kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub struct FindingKind {
    /// The name in reports and suppressions, which does not change.
    pub name: &'static str,
    /// The family of the kind.
    pub family: FindingFamily,
    /// The level of a finding that does not set another.
    pub level: Level,
    /// A sentence that says what the problem is.
    pub what: &'static str,
    /// A sentence that says why it matters on real hardware; empty if that is plain.
    pub why: &'static str,
    /// The remedy; empty if each finding has one of its own, or needs none.
    pub remedy: &'static str,
}

impl FindingKind {
    /// Returns a kind whose findings need no further explanation.
    pub const fn new(
        name: &'static str,
        family: FindingFamily,
        level: Level,
        what: &'static str,
    ) -> FindingKind {
        FindingKind { name, family, level, what, why: "", remedy: "" }
    }
}

/// A problem, or an item that was checked and has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind of the finding.
    pub kind: &'static FindingKind,
    /// The importance of the finding.
    pub level: Level,
    /// The object, the call or the part of the machine that the finding is about, as in "queue pair 3 (number
    /// 0x12)"; empty if the kind says it.
    pub subject: String,
    /// A sentence about the finding, with its numbers.
    pub sentence: String,
    /// The remedy; `None`: nothing has to be done.
    pub remedy: Option<String>,
    /// The call site in the program.
    pub site: CallSite,
    /// Other call sites that belong to the finding.
    pub related: Vec<CallSite>,
    /// The evidence, for programs to read.
    pub evidence: Fields,
    /// Number of times that the finding was made.
    pub count: u64,
}

impl Finding {
    /// Returns a finding of a kind, with the level and the remedy of that kind; found once, at no known site.
    pub fn new(
        kind: &'static FindingKind,
        subject: impl Into<String>,
        sentence: impl Into<String>,
    ) -> Finding {
        Finding {
            kind,
            level: kind.level,
            subject: subject.into(),
            sentence: sentence.into(),
            remedy: Some(kind.remedy).filter(|remedy| !remedy.is_empty()).map(str::to_owned),
            site: CallSite::default(),
            related: Vec::new(),
            evidence: Fields::default(),
            count: 1,
        }
    }

    /// Sets the level.
    pub fn at_level(mut self, level: Level) -> Finding {
        self.level = level;
        self
    }

    /// Sets a remedy that differs from that of the kind.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy = Some(remedy.into());
        self
    }

    /// Sets the evidence.
    pub fn with_evidence(mut self, evidence: Fields) -> Finding {
        self.evidence = evidence;
        self
    }

    /// Returns the innermost frame of the finding's site, or of the first other site if its own is not known.
    pub fn innermost(&self) -> Option<&Frame> {
        let related = || self.related.first()?.frames.first();
        self.site.frames.first().or_else(related)
    }
}

static QUEUE_PAIR_FAILED: FindingKind = FindingKind::new(
    "queue-pair-failed",
    FindingFamily::Messages,
    Level::Error,
    "A queue pair went to an error state.",
);
static QUEUE_PAIR_GOES_ON: FindingKind = FindingKind::new(
    "queue-pair-goes-on",
    FindingFamily::Messages,
    Level::Warning,
    "A queue pair goes on without a message, or with a request that cannot be right.",
);
static USUAL: FindingKind = FindingKind::new(
    "usual-event",
    FindingFamily::Messages,
    Level::Note,
    "Something happened to a queue pair that also happens in correct programs.",
);

/// Returns the kind of finding for a cause; its level is that of the log.
pub const fn kind_of_cause(cause: &Cause) -> &'static FindingKind {
    if cause.is_usual() {
        &USUAL
    } else if cause.is_fatal() {
        &QUEUE_PAIR_FAILED
    } else {
        &QUEUE_PAIR_GOES_ON
    }
}

/// Returns a finding about the cause of a problem of a queue pair.
pub fn finding_of_cause(qpn: Qpn, cause: &Cause) -> Finding {
    Finding::new(kind_of_cause(cause), format!("QP {qpn}"), cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn frames_say_what_is_known_of_them() {
        let whole = Frame {
            function: Some("main".to_owned()),
            file: Some("/src/a b.c".to_owned()),
            line: Some(7),
            object: "/bin/server".to_owned(),
            offset: 0x40,
        };
        assert_eq!(whole.to_string(), "main (/src/a b.c:7)");
        assert_eq!(Frame { function: None, ..whole.clone() }.to_string(), "? (/src/a b.c:7)");
        assert_eq!(Frame { line: None, ..whole.clone() }.to_string(), "main (server+0x40)");
        assert_eq!(Frame { line: None, function: None, ..whole }.to_string(), "server+0x40");
        let site = CallSite::of_text("it was made here", "ibv_create_qp 1");
        assert_eq!(site.frames[0].to_string(), "ibv_create_qp 1");
        assert!(!site.is_unknown() && CallSite::default().is_unknown());
    }

    #[test]
    fn a_cause_is_a_finding_that_the_log_says_in_a_sentence() {
        let finding = finding_of_cause(Qpn::new(0x12), &Cause::Modified);
        assert_eq!((finding.kind.name, finding.level), ("usual-event", Level::Note));
        assert_eq!(text::sentence(&finding), format!("QP {} {}", Qpn::new(0x12), Cause::Modified));
        let dropped = Cause::CompletionLost { cq: 0, depth: 1 };
        assert_eq!(kind_of_cause(&dropped).level, Level::Warning);
    }
}
