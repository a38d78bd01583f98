//! A cause with all its effects.

use serde::Serialize;

use super::cause::{Cause, CauseKind};
use super::judge::Judgement;
use super::loss::MessageIndex;
use super::story::Story;

/// Causes that are kept.
pub(super) const MOST_CAUSES: usize = 1 << 10;
/// A time in which no request was under way is worth a word from here on.
pub(super) const IDLE_NS: u64 = 5_000_000;

/// A cause, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The cause.
    #[serde(flatten)]
    pub cause: Cause,
    /// Its first effect, if that is a message.
    pub story: Option<Story>,
    /// Other effects.
    pub others: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// When its first effect began, in ns since the first record.
    pub at_ns: u64,
    /// How long it held messages up, all together; times that overlap count once.
    pub ns: u64,
    /// The longest of these times.
    pub longest_ns: u64,
}

impl Group {
    /// What it counts among others: of two that have one time, the one goes first that says why.
    pub(super) fn weight_ns(&self) -> u64 {
        match self.cause.kind {
            // A sentence of the log has no time, and says more than where time went.
            CauseKind::Logged => IDLE_NS,
            // Both ends of a wait show it: the program that polls late, and what it cannot do meanwhile.
            CauseKind::SendQueueFull | CauseKind::ReadDepth => self.ns.saturating_mul(2),
            CauseKind::ReceivePolledLate => self.ns / 2,
            // A busy host stalls all for some ms again and again; one long stall is another thing.
            CauseKind::Scheduler => self.longest_ns,
            kind if kind.is_ordinary() => self.ns / 4,
            _ => self.ns,
        }
    }
}

/// A group that is being put together.
pub(super) struct Builder {
    pub(super) cause: Cause,
    pub(super) first: Option<MessageIndex>,
    effects: u64,
    failed: u64,
    at_ns: u64,
    stretches: Vec<(u64, u64)>,
}

/// Adds an effect to the group of its cause.
pub(super) fn add(
    builders: &mut Vec<Builder>,
    judged: Judgement,
    at_ns: u64,
    index: Option<MessageIndex>,
    has_failed: bool,
) {
    let Judgement { cause, stretches, .. } = judged;
    let failed = u64::from(has_failed);
    let same = |one: &Builder| one.cause.is_same(&cause) && (one.failed > 0) == has_failed;
    let Some(one) = builders.iter().position(same) else {
        if builders.len() < MOST_CAUSES {
            builders.push(Builder { cause, first: index, effects: 1, failed, at_ns, stretches });
        }
        return;
    };
    let Some(one) = builders.get_mut(one) else { return };
    one.effects += 1;
    one.failed += failed;
    if at_ns < one.at_ns || one.first.is_none() {
        (one.at_ns, one.first, one.cause) = (at_ns.min(one.at_ns), index.or(one.first), cause);
    }
    one.stretches.extend(stretches);
}

impl Builder {
    pub(super) fn finish(mut self, story: Option<Story>) -> Group {
        let ns = union_ns(&mut self.stretches);
        let longest_ns = self.stretches.iter().map(|(from, to)| to.saturating_sub(*from)).max().unwrap_or(0);
        let Builder { cause, effects, failed, at_ns, .. } = self;
        Group { cause, story, others: effects.saturating_sub(1), failed, at_ns, ns, longest_ns }
    }

    /// Whether it has most of a stretch of time.
    pub(super) fn has_most_of(&self, (from_ns, to_ns): (u64, u64)) -> bool {
        let overlap = |(from, to): &(u64, u64)| to_ns.min(*to).saturating_sub(from_ns.max(*from));
        self.stretches.iter().any(|one| overlap(one) * 2 > to_ns.saturating_sub(from_ns))
    }
}

/// How long some stretches are, where those that overlap count once.
fn union_ns(stretches: &mut [(u64, u64)]) -> u64 {
    stretches.sort_unstable();
    let (mut sum_ns, mut until_ns) = (0_u64, 0);
    for (from_ns, to_ns) in stretches.iter().copied() {
        sum_ns = sum_ns.saturating_add(to_ns.saturating_sub(from_ns.max(until_ns)));
        until_ns = until_ns.max(to_ns);
    }
    sum_ns
}
