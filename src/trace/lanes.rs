//! Arranges overlapping spans in lanes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Assigns each span to the lowest lane in which it overlaps no other.
#[derive(Debug, Default)]
pub(super) struct SpanLanes {
    /// Times at which lanes become free, and the lanes.
    busy: BinaryHeap<Reverse<(u64, usize)>>,
    free: BinaryHeap<Reverse<usize>>,
    count: usize,
}

impl SpanLanes {
    /// Returns the lane of a span. Spans must be given in the order of their beginnings.
    pub(super) fn take(&mut self, start_ns: u64, end_ns: u64) -> usize {
        while let Some(Reverse((until_ns, lane))) = self.busy.peek().copied() {
            if until_ns > start_ns {
                break;
            }
            self.busy.pop();
            self.free.push(Reverse(lane));
        }
        let lane = match self.free.pop() {
            Some(Reverse(lane)) => lane,
            None => {
                self.count += 1;
                self.count - 1
            }
        };
        // A span of no length still takes up its lane.
        self.busy.push(Reverse((end_ns.max(start_ns.saturating_add(1)), lane)));
        lane
    }

    /// Returns the number of lanes that were needed.
    pub(super) const fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_one_lane_do_not_overlap() {
        let spans = [(0, 10), (1, 3), (2, 5), (3, 4), (10, 11), (10, 10), (10, 12)];
        let mut lanes = SpanLanes::default();
        let given: Vec<usize> = spans.iter().map(|&(start, end)| lanes.take(start, end)).collect();
        assert_eq!(given, [0, 1, 2, 1, 0, 1, 2]);
        assert_eq!(lanes.count(), 3);
    }
}
