//! Priorities of threads (PCT): of those that can continue, the one with the highest priority does.
//!
//! The seed draws the priority of each thread at its first choice. At points that it also draws, the running
//! thread falls below all others. Burckhardt and others (ASPLOS 2010) give the probability with which a
//! mistake that needs few such points is found.

use std::collections::BTreeMap;

use super::random::SeededRandom;
use super::threads::ThreadId;

/// Range of the priorities that are drawn; lower ones are those of threads that have fallen.
const DRAWN: u64 = 1 << 32;

/// The priorities of the threads of a run.
#[derive(Debug)]
pub(crate) struct Priorities {
    random: SeededRandom,
    known: BTreeMap<ThreadId, u64>,
    /// Number of threads that have fallen.
    fallen: u64,
}

impl Priorities {
    pub(crate) fn new(seed: u64) -> Priorities {
        Priorities { random: SeededRandom::new(seed, 4), known: BTreeMap::new(), fallen: 0 }
    }

    /// Returns the index of the thread with the highest priority.
    pub(crate) fn highest(&mut self, runnable: &[ThreadId]) -> Option<usize> {
        let ranked: Vec<u64> = runnable.iter().map(|id| self.of(*id)).collect();
        (0..ranked.len()).max_by_key(|index| ranked.get(*index))
    }

    /// Lowers the priority of a thread below all others.
    pub(crate) fn lower(&mut self, id: ThreadId) {
        self.fallen += 1;
        self.known.insert(id, DRAWN.saturating_sub(self.fallen));
    }

    fn of(&mut self, id: ThreadId) -> u64 {
        let random = &mut self.random;
        *self.known.entry(id).or_insert_with(|| DRAWN + random.below(DRAWN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_falls_is_below_all_others() {
        let all = [ThreadId(1), ThreadId(2), ThreadId(3)];
        let mut priorities = Priorities::new(5);
        let mut order = Vec::new();
        for _ in all {
            let index = priorities.highest(&all).unwrap();
            order.push(index);
            priorities.lower(all[index]);
        }
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2], "each one is the highest once");
        let first = priorities.highest(&all).unwrap();
        assert_eq!(Priorities::new(5).highest(&all), Some(first), "all have fallen, in their order");
        assert_eq!(priorities.highest(&[]), None);
    }
}
