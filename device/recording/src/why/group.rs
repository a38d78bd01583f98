//! A cause with all its effects, and the conversion of stories to findings.

use pumice_model::findings::{Fields, Finding, FindingFamily, FindingKind, Level};
use pumice_transport::types::WcStatus;
use serde::Serialize;

use super::cause;
use super::cause::{CauseKind, MessageCause};
use super::judge::CauseVerdict;
use super::loss::MessageIndex;
use super::story::MessageStory;
use super::timeline_index::MaxTree;

/// A set of stretches of time.
#[derive(Debug)]
pub(super) struct CoveredTime {
    /// Start of each stretch, in order.
    from_ns: Vec<u64>,
    /// End of each stretch.
    to_ns: MaxTree,
    /// Length of each stretch.
    ns: MaxTree,
}

impl CoveredTime {
    /// Collects the stretches of some causes.
    pub(super) fn of<'a>(causes: impl Iterator<Item = &'a CauseGroupBuilder>) -> CoveredTime {
        CoveredTime::of_stretches(causes.flat_map(CauseGroupBuilder::stretches).copied().collect())
    }

    fn of_stretches(mut all: Vec<(u64, u64)>) -> CoveredTime {
        all.sort_unstable();
        let ns = MaxTree::of(all.iter().map(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns)));
        let to_ns = MaxTree::of(all.iter().map(|(_, to_ns)| *to_ns));
        CoveredTime { from_ns: all.into_iter().map(|(from_ns, _)| from_ns).collect(), to_ns, ns }
    }

    /// Reports whether one stretch of the set covers more than half of the given one.
    pub(super) fn has_most_of(&self, (from_ns, to_ns): (u64, u64)) -> bool {
        let half_ns = to_ns.saturating_sub(from_ns) / 2;
        let earlier = self.from_ns.partition_point(|began_ns| *began_ns <= from_ns);
        // Of the stretches that begin before it, the latest end decides. Of those that begin within its first
        // half, the longest decides: if its length is more than half, it covers more than half from its start
        // on, even if it reaches beyond the end.
        let of_earlier_ns = self.to_ns.greatest(0..earlier).min(to_ns).saturating_sub(from_ns);
        let middle_ns = to_ns.saturating_sub(half_ns);
        let later = self.from_ns.partition_point(|began_ns| *began_ns < middle_ns).max(earlier);
        is_more(of_earlier_ns, from_ns, to_ns) || is_more(self.ns.greatest(earlier..later), from_ns, to_ns)
    }
}

/// Reports whether a time is more than half of a stretch.
const fn is_more(ns: u64, from_ns: u64, to_ns: u64) -> bool {
    ns.saturating_mul(2) > to_ns.saturating_sub(from_ns)
}

/// Maximum number of causes that are stored.
pub(super) const MAX_CAUSES: usize = 1 << 10;
/// Shortest time without a request under way that is reported, in ns.
pub(super) const IDLE_NS: u64 = 5_000_000;

/// A cause with its effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseGroup {
    /// The cause.
    #[serde(flatten)]
    pub cause: MessageCause,
    /// Story of its first effect, if that is a message.
    pub story: Option<MessageStory>,
    /// Number of other effects.
    pub others: u64,
    /// Number of other effects that failed.
    pub failed: u64,
    /// Time at which its first effect began, in ns since the trace that began first.
    pub at_ns: u64,
    /// Time for which it held messages up, in ns; overlapping times count once.
    pub ns: u64,
    /// The longest of these times, in ns.
    pub longest_ns: u64,
}

impl CauseGroup {
    /// Reports whether its first effect was flushed rather than failed by itself.
    pub fn is_flushed(&self) -> bool {
        self.story.as_ref().and_then(|story| story.status.as_deref()) == Some(WcStatus::WrFlushErr.name())
    }

    /// Returns the weight by which causes are sorted: of two that took the same time, the one that explains
    /// more comes first.
    pub(super) fn weight_ns(&self) -> u64 {
        match self.cause.kind {
            // A logged sentence has no duration, but explains more than a duration does.
            CauseKind::Logged => IDLE_NS,
            // Both ends of a wait show it: the program that polls late, and what the peer cannot do
            // meanwhile.
            CauseKind::SendQueueFull | CauseKind::ReadDepth => self.ns.saturating_mul(2),
            CauseKind::ReceivePolledLate => self.ns / 2,
            // A busy host stalls every process for some ms again and again, so only one long stall counts.
            CauseKind::Scheduler => self.longest_ns,
            kind if kind.is_ordinary() => self.ns / 4,
            _ => self.ns,
        }
    }

    /// Returns the group as a finding: its sentence says the cause, its first effect, and the number of other
    /// effects.
    pub fn to_finding(&self) -> Finding {
        let others = self.others_in_words();
        let mut finding = match &self.story {
            Some(story) => Finding { sentence: story.in_words(&others), ..story.to_finding() },
            None => {
                let sentences = [self.cause.sentence.clone(), self.alone_in_words(), others];
                let remedy = self.cause.remedy();
                let change = remedy.as_ref().map(|remedy| format!("what to change: {remedy}"));
                let in_words = sentences.into_iter().filter(|one| !one.is_empty()).chain(change);
                let text: Vec<String> = in_words.map(|one| cause::sentence(&one)).collect();
                Finding { remedy, ..Finding::new(&HELD_UP, self.cause.kind.name(), text.join(" ")) }
            }
        };
        if self.cause.rule.is_some() {
            (finding.kind, finding.level) = (&INJECTED, Level::Note);
        }
        finding.count = self.others + 1;
        let mut evidence = std::mem::take(&mut finding.evidence);
        if self.story.is_none() {
            evidence = evidence.with("cause", Fields::of(&self.cause));
        }
        finding.with_evidence(
            evidence
                .with("others", self.others)
                .with("held_up_ns", self.ns)
                .with("needs", self.cause.kind.needs()),
        )
    }

    /// Says how long it lasted, and that no message shows it.
    fn alone_in_words(&self) -> String {
        match &self.cause.rule {
            Some(_) if self.ns == 0 => "no message of the traces lost time by it".to_owned(),
            Some(_) => format!("no request has this time in it: {}", cause::time(self.ns)),
            None => String::new(),
        }
    }

    fn others_in_words(&self) -> String {
        match self.others {
            0 => String::new(),
            1 => "and 1 other of the same cause".to_owned(),
            others => format!("and {others} others of the same cause"),
        }
    }
}

/// A group that is being built.
pub(super) struct CauseGroupBuilder {
    pub(super) cause: MessageCause,
    pub(super) first: Option<MessageIndex>,
    effects: u64,
    failed: u64,
    at_ns: u64,
    stretches: Vec<(u64, u64)>,
}

/// Adds an effect to the group of its cause.
pub(super) fn add(
    builders: &mut Vec<CauseGroupBuilder>,
    judged: CauseVerdict,
    at_ns: u64,
    index: Option<MessageIndex>,
    has_failed: bool,
) {
    let CauseVerdict { cause, stretches, .. } = judged;
    let failed = u64::from(has_failed);
    let same = |one: &CauseGroupBuilder| one.cause.is_same(&cause) && (one.failed > 0) == has_failed;
    let Some(one) = builders.iter().position(same) else {
        if builders.len() < MAX_CAUSES {
            builders.push(CauseGroupBuilder { cause, first: index, effects: 1, failed, at_ns, stretches });
        }
        return;
    };
    let Some(one) = builders.get_mut(one) else { return };
    one.effects += 1;
    one.failed += failed;
    // A storm among the effects makes the cause a storm.
    let storm = cause.storm.or(one.cause.storm);
    if at_ns < one.at_ns || one.first.is_none() {
        (one.at_ns, one.first, one.cause) = (at_ns.min(one.at_ns), index.or(one.first), cause);
    }
    one.cause.storm = storm;
    one.stretches.extend(stretches);
}

impl CauseGroupBuilder {
    pub(super) fn finish(mut self, story: Option<MessageStory>) -> CauseGroup {
        let ns = union_ns(&mut self.stretches);
        let longest_ns = self.stretches.iter().map(|(from, to)| to.saturating_sub(*from)).max().unwrap_or(0);
        let CauseGroupBuilder { cause, effects, failed, at_ns, .. } = self;
        CauseGroup { cause, story, others: effects.saturating_sub(1), failed, at_ns, ns, longest_ns }
    }

    /// Returns the stretches of time that the cause took.
    pub(super) fn stretches(&self) -> &[(u64, u64)] {
        &self.stretches
    }
}

/// Sums the lengths of some stretches, where overlapping ones count once.
fn union_ns(stretches: &mut [(u64, u64)]) -> u64 {
    stretches.sort_unstable();
    let (mut sum_ns, mut until_ns) = (0_u64, 0);
    for (from_ns, to_ns) in stretches.iter().copied() {
        sum_ns = sum_ns.saturating_add(to_ns.saturating_sub(from_ns.max(until_ns)));
        until_ns = until_ns.max(to_ns);
    }
    sum_ns
}

/// A message whose completion has an error.
static FAILED: FindingKind = FindingKind::new(
    "message-failed",
    FindingFamily::Messages,
    Level::Error,
    "A message completed with an error.",
);
/// A message that is reported because of the time it took.
static SLOW: FindingKind = FindingKind::new(
    "message-slow",
    FindingFamily::Messages,
    Level::Note,
    "A message took longer than most others.",
);
/// A message without a completion.
static UNFINISHED: FindingKind = FindingKind::new(
    "message-unfinished",
    FindingFamily::Messages,
    Level::Warning,
    "A message had not ended when the trace ended.",
);

/// An effect of a fault plan, and its consequences.
static INJECTED: FindingKind = FindingKind::new(
    "injected",
    FindingFamily::Messages,
    Level::Note,
    "A fault plan made it: neither the network nor the peer nor the program did.",
);
/// A cause that held messages up and is no failure itself.
static HELD_UP: FindingKind = FindingKind::new(
    "time-lost",
    FindingFamily::Messages,
    Level::Note,
    "Time that belongs to no send request.",
);

impl MessageStory {
    /// Returns the story as a finding: its sentence is the whole story, and its evidence has all fields.
    pub fn to_finding(&self) -> Finding {
        let kind = match self.status.as_deref() {
            None => &UNFINISHED,
            Some("SUCCESS") => &SLOW,
            Some(_) => &FAILED,
        };
        let subject = format!("request {} of QP {:#x}", self.message, self.qpn);
        let remedy = Some(self.remedies.join("; ")).filter(|remedy| !remedy.is_empty());
        Finding { remedy, ..Finding::new(kind, subject, self.to_string()).with_evidence(Fields::of(self)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_a_look_at_each_says() {
        let all = [(3, 9), (0, 4), (9, 9), (12, 17), (14, 15), (16, 30)];
        for count in 0..=all.len() {
            let some = &all[..count];
            let covered = CoveredTime::of_stretches(some.to_vec());
            for from in 0..32_u64 {
                for to in from..34 {
                    let overlap = |&(a, b): &(u64, u64)| to.min(b).saturating_sub(from.max(a));
                    let wanted = some.iter().any(|one| overlap(one) * 2 > to - from);
                    assert_eq!(covered.has_most_of((from, to)), wanted, "{some:?} {from}..{to}");
                }
            }
        }
    }
}
