//! A cause with all its effects.

use pumice_transport::types::WcStatus;
use serde::Serialize;

use super::cause::{CauseKind, MessageCause};
use super::judge::CauseVerdict;
use super::loss::MessageIndex;
use super::story::MessageStory;

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
