//! The queue pairs that have something to do, and when: lists of table indices and a heap of deadlines.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use pumice_platform::error::ResourceError;

use super::queue_pairs::room_for_all;

/// The queue pairs that wait for a turn, each at most once.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// The first queue pair: most often the only one.
    first: Option<u32>,
    /// The other queue pairs; empty if there is no first one.
    others: VecDeque<u32>,
    member: Vec<bool>,
}

impl Ready {
    /// Returns an empty set with room for all queue pairs.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the memory cannot be allocated.
    pub(crate) fn new() -> Result<Ready, ResourceError> {
        Ok(Ready { member: room_for_all()?, ..Ready::default() })
    }

    /// Touches the memory for queue pair `index`, so that its first turn does not.
    pub(crate) fn make_room(&mut self, index: u32) {
        let length = index as usize + 1;
        if self.member.len() < length {
            self.member.resize(length, false);
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, index: u32) {
        let at = index as usize;
        if self.member.len() <= at {
            self.make_room(index);
        }
        if let Some(member) = self.member.get_mut(at)
            && !std::mem::replace(member, true)
        {
            match self.first {
                None => self.first = Some(index),
                Some(_) => self.others.push_back(index),
            }
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let index = self.first?;
        self.first = if self.others.is_empty() { None } else { self.others.pop_front() };
        if let Some(member) = self.member.get_mut(index as usize) {
            *member = false;
        }
        Some(index)
    }

    /// Returns the queue pair that waits, if it is the only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<u32> {
        self.first.filter(|_| self.others.is_empty())
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

/// The deadlines of queue pairs. Each has at most one live entry: a deadline that moves later is discovered
/// when the old one comes up, so progress costs nothing here. Entries that an earlier deadline has superseded
/// are removed when they may be half of all.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    registered_ns: Vec<u64>,
    /// Number of entries that were live when superseded ones were removed last.
    live: usize,
}

const NONE: u64 = u64::MAX;
/// Number of entries below twice which none is removed.
const MIN_LIVE: usize = 256;

impl Deadlines {
    /// Returns an empty set of deadlines with room for one of each queue pair.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the memory cannot be allocated.
    pub(crate) fn new() -> Result<Deadlines, ResourceError> {
        Ok(Deadlines { registered_ns: room_for_all()?, ..Deadlines::default() })
    }

    /// Touches the memory for queue pair `index`, so that its first deadline does not.
    pub(crate) fn make_room(&mut self, index: u32) {
        let length = index as usize + 1;
        if self.registered_ns.len() < length {
            self.registered_ns.resize(length, NONE);
        }
    }

    /// Registers that queue pair `index` has to be driven at `deadline_ns`.
    #[inline]
    pub(crate) fn register(&mut self, index: u32, deadline_ns: Option<u64>) {
        let Some(deadline_ns) = deadline_ns else { return };
        let at = index as usize;
        if self.registered_ns.len() <= at {
            self.make_room(index);
        }
        if let Some(registered_ns) = self.registered_ns.get_mut(at)
            && deadline_ns < *registered_ns
        {
            *registered_ns = deadline_ns;
            self.heap.push(Reverse((deadline_ns, index)));
            if self.heap.len() > 2 * self.live.max(MIN_LIVE) {
                self.take_out_superseded();
            }
        }
    }

    /// Removes superseded entries. Queue pairs with a rate have a new deadline with each packet, long before
    /// that of their timer.
    #[cold]
    fn take_out_superseded(&mut self) {
        let registered_ns = &self.registered_ns;
        self.heap.retain(|Reverse((at_ns, index))| registered_ns.get(*index as usize) == Some(at_ns));
        self.live = self.heap.len();
    }

    /// Returns the earliest entry; the deadline itself may have moved later.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Takes a queue pair whose entry is due. The caller asks it for its deadline and registers again.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<u32> {
        while let Some(&Reverse((at_ns, index))) = self.heap.peek() {
            if at_ns > now_ns {
                return None;
            }
            self.heap.pop();
            if let Some(registered) = self.registered_ns.get_mut(index as usize)
                && *registered == at_ns
            {
                *registered = NONE;
                return Some(index);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_waits_once() {
        let mut ready = Ready::default();
        ready.push(3);
        ready.push(1);
        ready.push(3);
        assert_eq!((ready.pop(), ready.pop(), ready.pop()), (Some(3), Some(1), None));
        assert_eq!(ready.only(), None);
        ready.push(3);
        assert_eq!((ready.len(), ready.only()), (1, Some(3)));
        ready.push(1);
        assert_eq!((ready.len(), ready.only()), (2, None), "one of two is not the only one");
    }

    #[test]
    fn the_first_turn_and_deadline_of_a_queue_pair_touch_no_new_memory() {
        let (mut ready, mut deadlines) = (Ready::default(), Deadlines::default());
        ready.make_room(60_000);
        deadlines.make_room(60_000);
        ready.push(60_000);
        deadlines.register(60_000, Some(10));
        assert_eq!((ready.member.len(), deadlines.registered_ns.len()), (60_001, 60_001));
        assert_eq!((ready.pop(), deadlines.pop_due(10)), (Some(60_000), Some(60_000)));
    }

    #[test]
    fn superseded_entries_do_not_pile_up() {
        let mut deadlines = Deadlines::default();
        deadlines.register(7, Some(1 << 40));
        for packet in 0..100_000 {
            // The first deadline is the timer, the second the time of the next packet, which comes first.
            deadlines.register(3, Some((1 << 40) + packet));
            deadlines.register(3, Some(packet));
            assert_eq!(deadlines.pop_due(packet), Some(3));
        }
        assert!(deadlines.heap.len() <= 2 * MIN_LIVE + 1, "{}", deadlines.heap.len());
        assert_eq!(deadlines.pop_due(1 << 40), Some(7));
    }

    #[test]
    fn deadlines_come_up_in_order_and_superseded_entries_do_not() {
        let mut deadlines = Deadlines::default();
        deadlines.register(0, Some(50));
        deadlines.register(1, Some(20));
        deadlines.register(0, Some(10));
        deadlines.register(0, Some(90));
        assert_eq!(deadlines.next_ns(), Some(10));
        assert_eq!(deadlines.pop_due(15), Some(0));
        assert_eq!(deadlines.pop_due(15), None);
        deadlines.register(0, Some(90));
        assert_eq!(deadlines.pop_due(60), Some(1));
        assert_eq!(deadlines.pop_due(60), None);
        assert_eq!(deadlines.pop_due(90), Some(0));
        assert_eq!(deadlines.pop_due(1000), None);
    }
}
