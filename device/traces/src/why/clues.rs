//! What the traces have as evidence, found by process, queue pair and time.

use std::collections::HashMap;

use super::cause::{Cause, CauseKind};
use crate::format::FaultWhat;
use crate::timeline::{FaultFact, Timeline};

/// Facts of one process that are looked at for one stretch of time.
const MOST: usize = 4096;

/// The facts of all processes, by what is asked for.
#[derive(Debug)]
pub(super) struct Clues<'a> {
    /// Faults of packets and requests: by process, ordinal of the queue pair, side and message.
    by_message: HashMap<(usize, u32, u8, u64), Vec<&'a FaultFact>>,
    /// Faults that last for a time, by process, in order.
    lasting: Vec<Vec<&'a FaultFact>>,
    timeline: &'a Timeline,
}

/// What a fault that lasts is to a stretch of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lasting<'a> {
    pub(super) fact: &'a FaultFact,
    pub(super) process: usize,
    /// Nanoseconds of the stretch that it takes.
    pub(super) ns: u64,
}

impl<'a> Clues<'a> {
    pub(super) fn of(timeline: &'a Timeline) -> Clues<'a> {
        let mut by_message: HashMap<_, Vec<&FaultFact>> = HashMap::new();
        let mut lasting = Vec::new();
        for (process, one) in timeline.processes.iter().enumerate() {
            let facts = &one.evidence.faults;
            for fact in facts {
                if let Some(qp) = fact.qp {
                    by_message.entry((process, qp, fact.side, fact.message)).or_default().push(fact);
                }
            }
            let lasts = |fact: &&FaultFact| fact.until_ns() > fact.at_ns;
            lasting.push(facts.iter().filter(lasts).collect());
        }
        Clues { by_message, lasting, timeline }
    }

    /// The last fault of one of these kinds of a message before a time.
    pub(super) fn of_message(
        &self,
        key: (usize, u32, u8, u64),
        kinds: &[FaultWhat],
        before_ns: u64,
    ) -> Option<&'a FaultFact> {
        let facts = self.by_message.get(&key)?;
        let fits = |fact: &&&FaultFact| fact.at_ns <= before_ns && kinds.contains(&fact.what);
        facts.iter().rev().find(fits).copied()
    }

    /// The last fault of one of these kinds of a queue pair's side in a time.
    pub(super) fn of_side(
        &self,
        process: usize,
        (qp, side): (u32, u8),
        kinds: &[FaultWhat],
        (from_ns, to_ns): (u64, u64),
    ) -> Option<&'a FaultFact> {
        let facts = &self.timeline.processes.get(process)?.evidence.faults;
        let before = facts.partition_point(|fact| fact.at_ns <= to_ns);
        let near = facts.get(..before)?.iter().rev().take(MOST);
        near.take_while(|fact| fact.at_ns >= from_ns)
            .find(|fact| fact.qp == Some(qp) && fact.side == side && kinds.contains(&fact.what))
    }

    /// Of the faults of a process that last and that fit, the one that takes most of a stretch of time.
    pub(super) fn lasting(
        &self,
        process: usize,
        (from_ns, to_ns): (u64, u64),
        fits: impl Fn(&FaultFact) -> bool,
    ) -> Option<Lasting<'a>> {
        let facts = self.lasting.get(process)?;
        let before = facts.partition_point(|fact| fact.at_ns < to_ns);
        let near = facts.get(..before)?.iter().rev().take(MOST);
        let share = |fact: &'a FaultFact| {
            let end_ns = self.end_of(process, fact);
            let ns = to_ns.min(end_ns).saturating_sub(from_ns.max(fact.at_ns));
            Lasting { fact, process, ns }
        };
        near.filter(|fact| fits(fact))
            .map(|fact| share(fact))
            .filter(|one| one.ns > 0)
            .max_by_key(|one| one.ns)
    }

    /// When a fault that lasts is over: at its time, or when another one ends it.
    fn end_of(&self, process: usize, fact: &FaultFact) -> u64 {
        let ends = match fact.subject.split(' ').next() {
            Some("port-down" | "cable-pull") => "port-up",
            Some("link") => "link-restore",
            _ => return fact.until_ns(),
        };
        let facts = self.timeline.processes.get(process).map(|one| &one.evidence.faults);
        let later = facts.into_iter().flatten().filter(|one| one.at_ns > fact.at_ns);
        let end = later.filter(|one| one.subject.starts_with(ends)).map(|one| one.at_ns).next();
        fact.until_ns().min(end.unwrap_or(u64::MAX))
    }

    /// Of the times in which a process had no processor, the one of which a stretch has most: how much it has
    /// of it, and how long it was.
    pub(super) fn stalled_ns(&self, process: usize, (from_ns, to_ns): (u64, u64)) -> (u64, u64) {
        let Some(process) = self.timeline.processes.get(process) else { return (0, 0) };
        let part = |from: u64, to: u64| to_ns.min(to).saturating_sub(from_ns.max(from));
        let stalls = process.evidence.stalls_ns.iter();
        stalls.map(|(from, to)| (part(*from, *to), to.saturating_sub(*from))).max().unwrap_or_default()
    }
}

/// The cause that a fault is.
pub(super) fn cause_of(fact: &FaultFact, process: usize) -> Cause {
    let kind = kind_of(fact);
    Cause::by_rule(kind, process, &fact.rule, &did(fact))
}

fn kind_of(fact: &FaultFact) -> CauseKind {
    match fact.what {
        FaultWhat::Lost => match fact.side {
            0 => CauseKind::RequestLost,
            _ => CauseKind::AckLost,
        },
        FaultWhat::Delayed => CauseKind::Delayed,
        FaultWhat::Reordered => CauseKind::Reordered,
        FaultWhat::Duplicated => CauseKind::Duplicated,
        FaultWhat::Corrupted | FaultWhat::CorruptedSilently | FaultWhat::Truncated => CauseKind::Corrupted,
        FaultWhat::Marked | FaultWhat::Notified => CauseKind::Congestion,
        FaultWhat::Refused | FaultWhat::Rejected => CauseKind::Refused,
        FaultWhat::Partition => CauseKind::Partition,
        FaultWhat::CallFailed => CauseKind::CallFailed,
        FaultWhat::CallSlowed => CauseKind::CallSlowed,
        FaultWhat::Status => CauseKind::Status,
        FaultWhat::CompletionLate => CauseKind::CompletionLate,
        FaultWhat::EventLate => CauseKind::EventLate,
        FaultWhat::EventsMerged => CauseKind::EventsMerged,
        FaultWhat::Incident => match fact.subject.split(' ').next() {
            Some("freeze") => CauseKind::Frozen,
            Some("port-down" | "port-up" | "cable-pull") => CauseKind::PortDown,
            Some("link" | "link-restore" | "speed-change") => CauseKind::LinkRate,
            _ => CauseKind::DeviceEvent,
        },
    }
}

/// What the rule did, as a verb and its object.
fn did(fact: &FaultFact) -> String {
    let time = super::words::time;
    let FaultFact { subject, ordinal, message, delay_ns, .. } = fact;
    let packet = match fact.side {
        0 => format!("a packet of request {message}"),
        1 => "an answer of the peer's".to_owned(),
        _ => "a congestion notification".to_owned(),
    };
    match fact.what {
        FaultWhat::Lost => format!("lost {packet}"),
        FaultWhat::Delayed => format!("delayed {packet} by {}", time(*delay_ns)),
        FaultWhat::Reordered => format!("had later packets leave before {packet}: reordered"),
        FaultWhat::Duplicated => format!("sent a duplicate of {packet}"),
        FaultWhat::Corrupted => format!("corrupted {packet}, which its ICRC showed: it was dropped"),
        FaultWhat::CorruptedSilently => format!("corrupted the payload of {packet}, with a right ICRC"),
        FaultWhat::Truncated => format!("cut {packet} off: it was dropped"),
        FaultWhat::Marked => format!("marked {packet} as congested (ECN)"),
        FaultWhat::Notified => "told the sender of congestion in the peer's name (CNP)".to_owned(),
        FaultWhat::Refused if subject == "rnr" => format!(
            "answered request {message} by an RNR NAK in the peer's name, which asks for {}",
            time(*delay_ns)
        ),
        FaultWhat::Refused => {
            format!("answered request {message} by a NAK ({subject}) in the peer's name")
        }
        FaultWhat::Rejected => "refused a connection in the peer's name".to_owned(),
        FaultWhat::Partition => "began a partition: nothing passed".to_owned(),
        FaultWhat::Incident => format!("had this happen to the device: {subject}"),
        FaultWhat::CallFailed => format!("had call {ordinal} of {subject} fail"),
        FaultWhat::CallSlowed => format!("slowed call {ordinal} of {subject} by {}", time(*delay_ns)),
        FaultWhat::Status => {
            let queue = if fact.side == 0 { "request" } else { "receive request" };
            format!("had {queue} {message} complete with {subject} instead of success")
        }
        FaultWhat::CompletionLate if *delay_ns == 0 => {
            format!("held back the completion of request {message}")
        }
        FaultWhat::CompletionLate => {
            format!("had the completion of request {message} come {} late", time(*delay_ns))
        }
        FaultWhat::EventLate => {
            format!("had event {ordinal} of a completion channel come {} late", time(*delay_ns))
        }
        FaultWhat::EventsMerged => format!(
            "merged event {ordinal} of a completion channel with later ones, for {} at most",
            time(*delay_ns)
        ),
    }
}
