//! A tree of numbers that finds the first one above a limit, and the maximum of a range, in logarithmic time.

use std::ops::Range;

use crate::steps::count_steps;

/// A list of numbers with a tree of maxima above it.
#[derive(Debug, Default)]
pub(super) struct MaxTree {
    /// The leaves from the middle on; each node before is the maximum of its two children.
    nodes: Vec<u64>,
    leaves: usize,
    len: usize,
}

impl MaxTree {
    pub(super) fn of(values: impl ExactSizeIterator<Item = u64>) -> MaxTree {
        let len = values.len();
        let leaves = len.next_power_of_two();
        let mut nodes = vec![0; leaves * 2];
        for (node, value) in nodes.iter_mut().skip(leaves).zip(values) {
            *node = value;
        }
        for at in (1..leaves).rev() {
            let below = nodes.get(at * 2..at * 2 + 2).and_then(|both| both.iter().max()).copied();
            if let (Some(node), Some(below)) = (nodes.get_mut(at), below) {
                *node = below;
            }
        }
        MaxTree { nodes, leaves, len }
    }

    fn node(&self, at: usize) -> u64 {
        count_steps(1);
        self.nodes.get(at).copied().unwrap_or(0)
    }

    /// Returns the index of the first number, from an index on, that is above a limit.
    pub(super) fn first_above(&self, from: usize, limit: u64) -> Option<usize> {
        if from >= self.len {
            return None;
        }
        let mut at = from + self.leaves;
        while self.node(at) <= limit {
            // The range behind this node, as large as one node covers.
            at += 1;
            if at.is_power_of_two() {
                return None;
            }
            at >>= at.trailing_zeros();
        }
        while at < self.leaves {
            at *= 2;
            at += usize::from(self.node(at) <= limit);
        }
        Some(at - self.leaves)
    }

    /// Returns the maximum of a range; 0 if it is empty.
    pub(super) fn greatest(&self, range: Range<usize>) -> u64 {
        let (mut from, mut to) = (range.start + self.leaves, range.end.min(self.len) + self.leaves);
        let mut greatest = 0;
        while from < to {
            if from % 2 == 1 {
                greatest = greatest.max(self.node(from));
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                greatest = greatest.max(self.node(to));
            }
            (from, to) = (from / 2, to / 2);
        }
        greatest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_a_look_at_all_of_them_finds() {
        for len in 0..20_usize {
            let values: Vec<u64> = (0..len).map(|index| (index as u64 * 7 + len as u64) % 11).collect();
            let tree = MaxTree::of(values.iter().copied());
            for from in 0..len + 2 {
                for limit in 0..12 {
                    let wanted = (from..len).find(|index| values[*index] > limit);
                    assert_eq!(tree.first_above(from, limit), wanted, "{values:?} {from} {limit}");
                }
                for to in from..len + 2 {
                    let wanted = values.iter().take(to).skip(from).max().copied().unwrap_or(0);
                    assert_eq!(tree.greatest(from..to), wanted, "{values:?} {from}..{to}");
                }
            }
        }
    }
}
