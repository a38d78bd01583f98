//! The kinds of findings: each is a row in a table of those who make such findings.

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
