//! Finds whether one of many stretches of time covers most of another one.

use super::group::CauseGroupBuilder;
use super::tree::MaxTree;

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
