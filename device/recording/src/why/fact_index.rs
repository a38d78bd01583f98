//! The evidence of the traces, indexed by process, queue pair and time.

use std::collections::HashMap;

use pumice_model::fates::incident::IncidentKind;

use super::cause::{CauseKind, MessageCause};
use crate::format::TracedFaultAction;
use crate::steps::count_steps;
use crate::timeline::{FaultFact, Timeline};

/// Maximum number of facts of one process that are examined for one stretch of time.
const MAX_FAULTS: usize = 4096;

/// The facts of all processes, indexed by what the judge looks up.
#[derive(Debug)]
pub(super) struct FactIndex<'a> {
    /// Faults of packets and requests, by process, ordinal of the queue pair, side and message.
    by_message: HashMap<(usize, u32, u8, u64), Vec<&'a FaultFact>>,
    /// Faults that last for a time, by process, in order.
    lasting: Vec<Vec<LastingFault<'a>>>,
    /// Times without a processor, by process.
    stalls: Vec<Stalls>,
    timeline: &'a Timeline,
}

/// A lasting fault in relation to a stretch of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastingFaultMatch<'a> {
    pub(super) fact: &'a FaultFact,
    pub(super) process: usize,
    /// Nanoseconds of the stretch that the fault covers.
    pub(super) ns: u64,
}

impl<'a> FactIndex<'a> {
    pub(super) fn of(timeline: &'a Timeline) -> FactIndex<'a> {
        let mut by_message: HashMap<_, Vec<&FaultFact>> = HashMap::new();
        let (mut lasting, mut stalls) = (Vec::new(), Vec::new());
        for (process, one) in timeline.processes.iter().enumerate() {
            let facts = &one.evidence.faults;
            for fact in facts {
                if let Some(qp) = fact.qp {
                    by_message.entry((process, qp, fact.side, fact.message)).or_default().push(fact);
                }
            }
            lasting.push(lasting_of(facts));
            stalls.push(Stalls::of(&one.evidence.stalls_ns));
        }
        FactIndex { by_message, lasting, stalls, timeline }
    }

    /// Returns the last fault of one of these kinds that hit a message before a time.
    pub(super) fn of_message(
        &self,
        key: (usize, u32, u8, u64),
        kinds: &[TracedFaultAction],
        before_ns: u64,
    ) -> Option<&'a FaultFact> {
        let facts = self.by_message.get(&key)?;
        let fits = |fact: &&&FaultFact| fact.at_ns <= before_ns && kinds.contains(&fact.what);
        facts.iter().rev().find(fits).copied()
    }

    /// Returns the last fault of one of these kinds that hit a queue pair's side in a stretch of time.
    pub(super) fn of_side(
        &self,
        process: usize,
        (qp, side): (u32, u8),
        kinds: &[TracedFaultAction],
        (from_ns, to_ns): (u64, u64),
    ) -> Option<&'a FaultFact> {
        let facts = &self.timeline.processes.get(process)?.evidence.faults;
        let before = facts.partition_point(|fact| fact.at_ns <= to_ns);
        let near = facts.get(..before)?.iter().rev().take(MAX_FAULTS);
        near.take_while(|fact| fact.at_ns >= from_ns)
            .find(|fact| fact.qp == Some(qp) && fact.side == side && kinds.contains(&fact.what))
    }

    /// Returns, of the matching faults of a process that last, the one that covers most of a stretch of time.
    pub(super) fn lasting(
        &self,
        process: usize,
        (from_ns, to_ns): (u64, u64),
        fits: impl Fn(&FaultFact) -> bool,
    ) -> Option<LastingFaultMatch<'a>> {
        let facts = self.lasting.get(process)?;
        let before = facts.partition_point(|one| one.fact.at_ns < to_ns);
        // If all faults up to one were over before the stretch, none of them reaches into it.
        let near =
            facts.get(..before)?.iter().rev().take(MAX_FAULTS).take_while(|one| one.all_until_ns > from_ns);
        let share = |one: &LastingFault<'a>| {
            count_steps(1);
            let ns = to_ns.min(one.until_ns).saturating_sub(from_ns.max(one.fact.at_ns));
            LastingFaultMatch { fact: one.fact, process, ns }
        };
        near.filter(|one| fits(one.fact)).map(share).filter(|one| one.ns > 0).max_by_key(|one| one.ns)
    }

    /// Returns, of the times in which a process had no processor, the one that covers most of a stretch: how
    /// much of it, and the whole length.
    pub(super) fn stalled_ns(&self, process: usize, stretch: (u64, u64)) -> (u64, u64) {
        self.stalls.get(process).map_or((0, 0), |stalls| stalls.longest_within(stretch))
    }
}

/// A fault that lasts.
#[derive(Debug)]
struct LastingFault<'a> {
    fact: &'a FaultFact,
    /// End of the fault: after its duration, or when another fault ends it.
    until_ns: u64,
    /// Time at which this fault and all before it are over.
    all_until_ns: u64,
}

/// Returns the lasting faults of a process.
fn lasting_of(facts: &[FaultFact]) -> Vec<LastingFault<'_>> {
    // The times of the next fault that ends one of each kind.
    let (mut port_up_ns, mut link_restored_ns) = (u64::MAX, u64::MAX);
    let mut lasting = Vec::new();
    for fact in facts.iter().rev() {
        let incident = fact.incident();
        let end_ns = match incident {
            Some(IncidentKind::PortDown | IncidentKind::CablePull) => port_up_ns,
            Some(IncidentKind::Link) => link_restored_ns,
            _ => u64::MAX,
        };
        let until_ns = fact.until_ns().min(end_ns);
        if fact.until_ns() > fact.at_ns {
            lasting.push(LastingFault { fact, until_ns, all_until_ns: until_ns });
        }
        match incident {
            Some(IncidentKind::PortUp) => port_up_ns = fact.at_ns,
            Some(IncidentKind::LinkRestore) => link_restored_ns = fact.at_ns,
            _ => {}
        }
    }
    lasting.reverse();
    let mut all_until_ns = 0;
    for one in &mut lasting {
        all_until_ns = one.until_ns.max(all_until_ns);
        one.all_until_ns = all_until_ns;
    }
    lasting
}

/// Times in which a process had no processor.
#[derive(Debug, Default)]
struct Stalls {
    /// Start and end of each, sorted by their ends.
    all: Vec<(u64, u64)>,
    /// Earliest start of each one and those behind it.
    began_ns: Vec<u64>,
}

impl Stalls {
    fn of(stalls: &[(u64, u64)]) -> Stalls {
        let mut all = stalls.to_vec();
        all.sort_by_key(|(_, to_ns)| *to_ns);
        let mut first_ns = u64::MAX;
        let began = all.iter().rev().map(|(from_ns, _)| {
            first_ns = first_ns.min(*from_ns);
            first_ns
        });
        let mut began_ns: Vec<u64> = began.collect();
        began_ns.reverse();
        Stalls { all, began_ns }
    }

    /// Returns the time that covers most of a stretch: how much of it, and the whole length.
    fn longest_within(&self, (from_ns, to_ns): (u64, u64)) -> (u64, u64) {
        let part = |from: u64, to: u64| to_ns.min(to).saturating_sub(from_ns.max(from));
        let first = self.all.partition_point(|(_, end_ns)| *end_ns <= from_ns);
        let later = self.all.iter().zip(&self.began_ns).skip(first);
        let near = later.take_while(|(_, began_ns)| **began_ns < to_ns).map(|(stall, _)| *stall);
        let near = near.inspect(|_| count_steps(1));
        near.map(|(from, to)| (part(from, to), to.saturating_sub(from))).max().unwrap_or_default()
    }
}

/// Returns the cause that a fault is.
pub(super) fn cause_of(fact: &FaultFact, process: usize) -> MessageCause {
    let kind = kind_of(fact);
    MessageCause::by_rule(kind, process, &fact.rule, &did(fact))
}

fn kind_of(fact: &FaultFact) -> CauseKind {
    match fact.what {
        TracedFaultAction::Lost => match fact.side {
            0 => CauseKind::RequestLost,
            _ => CauseKind::AckLost,
        },
        TracedFaultAction::Delayed => CauseKind::Delayed,
        TracedFaultAction::Reordered => CauseKind::Reordered,
        TracedFaultAction::Duplicated => CauseKind::Duplicated,
        TracedFaultAction::Corrupted
        | TracedFaultAction::CorruptedSilently
        | TracedFaultAction::Truncated => CauseKind::Corrupted,
        TracedFaultAction::Trimmed => CauseKind::Trimmed,
        TracedFaultAction::Marked | TracedFaultAction::Notified | TracedFaultAction::Reflected => {
            CauseKind::Congestion
        }
        TracedFaultAction::Refused | TracedFaultAction::Rejected => CauseKind::Refused,
        TracedFaultAction::Partition => CauseKind::Partition,
        TracedFaultAction::CallFailed => CauseKind::CallFailed,
        TracedFaultAction::CallSlowed => CauseKind::CallSlowed,
        TracedFaultAction::Status => CauseKind::Status,
        TracedFaultAction::CompletionLate => CauseKind::CompletionLate,
        TracedFaultAction::EventLate => CauseKind::EventLate,
        TracedFaultAction::EventsMerged => CauseKind::EventsMerged,
        TracedFaultAction::Incident => fact.incident().map_or(CauseKind::DeviceEvent, kind_of_incident),
    }
}

const fn kind_of_incident(incident: IncidentKind) -> CauseKind {
    use IncidentKind as Kind;
    match incident {
        Kind::Freeze => CauseKind::Frozen,
        Kind::PortDown | Kind::PortUp | Kind::CablePull => CauseKind::PortDown,
        Kind::Link | Kind::LinkRestore | Kind::SpeedChange => CauseKind::LinkRate,
        Kind::CqError | Kind::SrqLimit | Kind::SrqError => CauseKind::DeviceEvent,
        Kind::QpFatal | Kind::QpAccessError | Kind::PathMigrationError => CauseKind::DeviceEvent,
        Kind::GidMove | Kind::AddrChange | Kind::LidChange | Kind::PkeyChange => CauseKind::DeviceEvent,
        Kind::Disconnect | Kind::DeviceFatal | Kind::Unplug => CauseKind::DeviceEvent,
    }
}

/// Describes the action of the rule, as a verb and its object.
fn did(fact: &FaultFact) -> String {
    let time = super::cause::time;
    let FaultFact { subject, ordinal, message, delay_ns, .. } = fact;
    let packet = match fact.side {
        0 => format!("a packet of request {message}"),
        1 => "an answer of the peer's".to_owned(),
        _ if !subject.is_empty() => "a packet of MRC without data (SACK, NACK, ACK or probe)".to_owned(),
        _ => "a congestion notification".to_owned(),
    };
    match fact.what {
        TracedFaultAction::Lost => format!("lost {packet}"),
        TracedFaultAction::Trimmed => format!("cut off the data of {packet}, as a switch that trims"),
        TracedFaultAction::Reflected => {
            "had an acknowledgement (SACK) of MRC tell a wrong state of its path".to_owned()
        }
        TracedFaultAction::Delayed => format!("delayed {packet} by {}", time(*delay_ns)),
        TracedFaultAction::Reordered => format!("had later packets leave before {packet}: reordered"),
        TracedFaultAction::Duplicated => format!("sent a duplicate of {packet}"),
        TracedFaultAction::Corrupted => format!("corrupted {packet}, which its ICRC showed: it was dropped"),
        TracedFaultAction::CorruptedSilently => {
            format!("corrupted the payload of {packet}, with a right ICRC")
        }
        TracedFaultAction::Truncated => format!("cut {packet} off: it was dropped"),
        TracedFaultAction::Marked => format!("marked {packet} as congested (ECN)"),
        TracedFaultAction::Notified => "told the sender of congestion in the peer's name (CNP)".to_owned(),
        TracedFaultAction::Refused if subject == "rnr" => format!(
            "answered request {message} by an RNR NAK in the peer's name, which asks for {}",
            time(*delay_ns)
        ),
        TracedFaultAction::Refused => {
            format!("answered request {message} by a NAK ({subject}) in the peer's name")
        }
        TracedFaultAction::Rejected => "refused a connection in the peer's name".to_owned(),
        TracedFaultAction::Partition => "began a partition: nothing passed".to_owned(),
        TracedFaultAction::Incident => format!("had this happen to the device: {subject}"),
        TracedFaultAction::CallFailed => format!("had call {ordinal} of {subject} fail"),
        TracedFaultAction::CallSlowed => format!("slowed call {ordinal} of {subject} by {}", time(*delay_ns)),
        TracedFaultAction::Status => {
            let queue = if fact.side == 0 { "request" } else { "receive request" };
            format!("had {queue} {message} complete with {subject} instead of success")
        }
        TracedFaultAction::CompletionLate if *delay_ns == 0 => {
            format!("held back the completion of request {message}")
        }
        TracedFaultAction::CompletionLate => {
            format!("had the completion of request {message} come {} late", time(*delay_ns))
        }
        TracedFaultAction::EventLate => {
            format!("had event {ordinal} of a completion channel come {} late", time(*delay_ns))
        }
        TracedFaultAction::EventsMerged => format!(
            "merged event {ordinal} of a completion channel with later ones, for {} at most",
            time(*delay_ns)
        ),
    }
}
