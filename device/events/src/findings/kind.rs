//! What findings are of: a kind is a row of the table of those who find it.

/// How much a finding matters, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing, and no mistake.
    Note,
    /// Works here, and may fail or cost time elsewhere.
    Warning,
    /// Does not work.
    Error,
}

impl Level {
    /// Its name, as reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// What a kind of finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Requests that rely on an order that is not promised.
    Ordering,
    /// Completion queues and their events.
    Completions,
    /// Attributes of connections, and what comes of them.
    Connections,
    /// Buffers and keys that requests use.
    Memory,
    /// Forks, exits and the lives of objects.
    Process,
    /// Requests and calls that fail, and waits in vain.
    Failed,
    /// What works, and costs time. Looked for only if asked.
    Slow,
    /// What the machine lets the device have.
    Machine,
    /// How a program meets a failure that was made on purpose.
    Failures,
    /// What became of messages.
    Messages,
}

impl Family {
    /// Its name, as reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Ordering => "ordering",
            Family::Completions => "completions",
            Family::Connections => "connections",
            Family::Memory => "memory",
            Family::Process => "process",
            Family::Failed => "failed",
            Family::Slow => "slow",
            Family::Machine => "machine",
            Family::Failures => "failures",
            Family::Messages => "messages",
        }
    }
}

/// A kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub struct FindingKind {
    /// Its name in reports and suppressions, which stays as it is.
    pub name: &'static str,
    /// What it is about.
    pub family: Family,
    /// How much it matters, if a finding does not say otherwise.
    pub level: Level,
    /// What it is, in a sentence.
    pub what: &'static str,
    /// Why it matters on real hardware; empty if that is plain.
    pub why: &'static str,
    /// What to do about it; empty if each finding has a remedy of its own, or needs none.
    pub remedy: &'static str,
}

impl FindingKind {
    /// A kind whose findings say all that is to be said.
    pub const fn new(name: &'static str, family: Family, level: Level, what: &'static str) -> FindingKind {
        FindingKind { name, family, level, what, why: "", remedy: "" }
    }
}
