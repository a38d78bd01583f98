//! Triggers that a rule waits for before it begins.

use std::fmt;

use pumice_platform::ordinal::Ordinal;
use pumice_transport::types::AsyncEventType;

use super::pattern::matches as matches_tag;

/// An occurrence in a process after which a rule begins.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trigger {
    /// The rule of this name has applied.
    Rule(String),
    /// The given number of work requests has been executed, whether they make a completion or not.
    Completions {
        /// Number of work requests, at least 1.
        count: u64,
        /// Ordinal of the queue pair that executes them; `None`: all together.
        qp: Option<u32>,
    },
    /// Executed work requests have moved the given number of bytes.
    Bytes {
        /// Number of bytes, at least 1.
        count: u64,
        /// Ordinal of the queue pair that moves them; `None`: all together.
        qp: Option<u32>,
    },
    /// The given number of calls of libibverbs or librdmacm has returned.
    Calls {
        /// The name of the calls; `*` stands for any characters.
        call: String,
        /// Number of calls, at least 1.
        count: u64,
    },
    /// The program has got this asynchronous event.
    Event(AsyncEventType),
    /// The given time has passed since the device was opened: not at the same point in every run.
    Time {
        /// The time, in ns.
        ns: u64,
    },
}

/// Returns the name of an asynchronous event in plans.
pub const fn event_word(event: AsyncEventType) -> &'static str {
    match event {
        AsyncEventType::CqErr => "cq-error",
        AsyncEventType::QpFatal => "qp-fatal",
        AsyncEventType::QpReqErr => "qp-request-error",
        AsyncEventType::QpAccessErr => "qp-access-error",
        AsyncEventType::CommEst => "communication-established",
        AsyncEventType::SqDrained => "sq-drained",
        AsyncEventType::DeviceFatal => "device-fatal",
        AsyncEventType::PortActive => "port-active",
        AsyncEventType::PortErr => "port-error",
        AsyncEventType::PkeyChange => "pkey-change",
        AsyncEventType::SrqErr => "srq-error",
        AsyncEventType::SrqLimitReached => "srq-limit",
        AsyncEventType::QpLastWqeReached => "last-wqe-reached",
        AsyncEventType::GidChange => "gid-change",
        AsyncEventType::LidChange => "lid-change",
        AsyncEventType::PathMig => "path-mig",
        AsyncEventType::PathMigErr => "path-mig-error",
    }
}

/// An occurrence that rules may wait for.
#[derive(Debug, Clone, Copy)]
pub enum Occurrence<'a> {
    /// A rule applied.
    Rule(&'a str),
    /// A work request of the queue pair with this ordinal was executed.
    #[doc(hidden)]
    WorkRequest { qp: u32, length_bytes: u32 },
    /// A call has returned.
    Call(&'a str),
    /// The program got an asynchronous event.
    Event(AsyncEventType),
}

impl Trigger {
    /// Returns how many units of the awaited occurrence have to happen: events, requests, bytes or calls.
    pub const fn amount(&self) -> u64 {
        match self {
            Trigger::Rule(_) | Trigger::Event(_) => 1,
            Trigger::Completions { count, .. } | Trigger::Bytes { count, .. } => *count,
            Trigger::Calls { count, .. } => *count,
            Trigger::Time { .. } => 0,
        }
    }

    /// Returns how many of these units an occurrence contributes.
    pub fn amount_of(&self, occurrence: Occurrence<'_>) -> u64 {
        let is_on = |wanted: Option<u32>, qp: u32| {
            wanted.is_none_or(|wanted| Ordinal(qp).matches_selector(Ordinal(wanted)))
        };
        match (self, occurrence) {
            (Trigger::Rule(name), Occurrence::Rule(rule)) => u64::from(name == rule),
            (Trigger::Completions { qp: wanted, .. }, Occurrence::WorkRequest { qp, .. }) => {
                u64::from(is_on(*wanted, qp))
            }
            (Trigger::Bytes { qp: wanted, .. }, Occurrence::WorkRequest { qp, length_bytes }) => {
                if is_on(*wanted, qp) { length_bytes.into() } else { 0 }
            }
            (Trigger::Calls { call, .. }, Occurrence::Call(made)) => u64::from(matches_tag(call, made)),
            (Trigger::Event(wanted), Occurrence::Event(event)) => u64::from(*wanted == event),
            (_, _) => 0,
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |f: &mut fmt::Formatter<'_>, what: &str, count: u64, qp: Option<u32>| match qp {
            Some(qp) => write!(f, "{what} {count} qp={}", Ordinal(qp)),
            None => write!(f, "{what} {count}"),
        };
        match self {
            Trigger::Rule(name) => write!(f, "rule {name}"),
            Trigger::Completions { count, qp } => counted(f, "completions", *count, *qp),
            Trigger::Bytes { count, qp } => counted(f, "bytes", *count, *qp),
            Trigger::Calls { call, count } => write!(f, "call {call} {count}"),
            Trigger::Event(event) => write!(f, "event {}", event_word(*event)),
            Trigger::Time { ns } => write!(f, "time {ns}ns"),
        }
    }
}
