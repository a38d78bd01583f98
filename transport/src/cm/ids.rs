//! Choice of communication ids.

use crate::mad::CommId;
use crate::wire::ProcessIndex;

/// Chooses communication ids: the process index in the top byte, and 24 bits below it that count in a
/// scattered order. An id is used again only after 2^24 others, so a late message does not meet a new
/// connection.
#[derive(Debug, Clone)]
pub struct IdSource {
    process: ProcessIndex,
    next: u32,
    /// Keys of the rounds that scatter the count; without them ids come in order.
    rounds: Option<[u64; ROUNDS]>,
}

const COUNTER_MASK: u32 = 0x00ff_ffff;
const ROUNDS: usize = 6;

impl IdSource {
    /// Largest number of ids that may be in use at once.
    pub const MAX_LIVE: usize = 1 << 23;

    /// Creates a source whose ids count up from the lower 24 bits of `first`: for tests, and to replay
    /// captures.
    pub const fn new(process: ProcessIndex, first: u32) -> IdSource {
        IdSource { process, next: first & COUNTER_MASK, rounds: None }
    }

    /// Creates a source whose ids come in an order that `seed` chooses. If the seed is random, a process does
    /// not begin with the ids of the process that had the index before, and a peer that knows some ids cannot
    /// guess the others, which it would need to forge a message.
    pub fn scattered(process: ProcessIndex, seed: u64) -> IdSource {
        let mut keys = seed;
        let rounds = core::array::from_fn(|_| {
            keys = keys.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(keys)
        });
        IdSource { process, next: mix(seed) as u32 & COUNTER_MASK, rounds: Some(rounds) }
    }

    /// Returns the process index that every id contains.
    pub const fn process(&self) -> ProcessIndex {
        self.process
    }

    /// Returns the next id that is not taken; `None` after 2^24 attempts.
    pub(super) fn next(&mut self, taken: impl Fn(CommId) -> bool) -> Option<CommId> {
        (0..=COUNTER_MASK).find_map(|_| {
            let count = self.rounds.as_ref().map_or(self.next, |keys| scatter(self.next, keys));
            let id = CommId::of(self.process, count);
            self.next = self.next.wrapping_add(1) & COUNTER_MASK;
            (id != CommId::NONE && !taken(id)).then_some(id)
        })
    }
}

/// Maps 24 bits one-to-one: a Feistel network of two halves of 12 bits.
fn scatter(count: u32, keys: &[u64; ROUNDS]) -> u32 {
    let (left, right) = keys.iter().fold((count >> 12, count & 0xfff), |(left, right), key| {
        (right, left ^ (mix(key ^ u64::from(right)) as u32 & 0xfff))
    });
    left << 12 | right
}

/// Computes the output function of SplitMix64: every bit of the result depends on every bit of the value.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn scattered_ids_repeat_none_in_a_whole_round() {
        let mut ids = IdSource::scattered(ProcessIndex::new(9), 0x1234_5678);
        let mut seen = alloc::vec![false; 1 << 24];
        for _ in 0..1 << 24 {
            let id = ids.next(|_| false).unwrap();
            assert_eq!(id.process(), ProcessIndex::new(9));
            assert!(!core::mem::replace(&mut seen[(id.0 & COUNTER_MASK) as usize], true), "{id} twice");
        }
    }

    #[test]
    fn scattered_ids_follow_from_the_seed_and_not_from_each_other() {
        let ids = |seed| -> alloc::vec::Vec<u32> {
            let mut source = IdSource::scattered(ProcessIndex::new(1), seed);
            (0..1000).map(|_| source.next(|_| false).unwrap().0 & COUNTER_MASK).collect()
        };
        let (one, other) = (ids(1), ids(2));
        assert_eq!(one, ids(1), "the same seed, the same ids");
        assert_eq!(one.iter().filter(|id| other.contains(id)).count(), 0);
        // No difference between consecutive ids is frequent, as it would be if the ids were counted.
        let steps: BTreeSet<u32> =
            one.windows(2).map(|two| two[1].wrapping_sub(two[0]) & COUNTER_MASK).collect();
        assert!(steps.len() > 990, "{}", steps.len());
    }

    #[test]
    fn ids_carry_the_process_wrap_and_skip_what_is_taken() {
        let mut ids = IdSource::new(ProcessIndex::new(7), 0xabff_fffe);
        assert_eq!(ids.next(|_| false), Some(CommId(0x07ff_fffe)));
        assert_eq!(ids.next(|_| false), Some(CommId(0x07ff_ffff)));
        assert_eq!(ids.next(|id| id.0 < 0x0700_0002), Some(CommId(0x0700_0002)));
        assert_eq!(ids.next(|_| false).map(CommId::process), Some(ProcessIndex::new(7)));
    }

    #[test]
    fn no_id_is_0() {
        assert_eq!(IdSource::new(ProcessIndex::new(0), 0).next(|_| false), Some(CommId(1)));
    }
}
