//! The schedule of questions to many processes, so that their answers do not come faster than they are read.
//!
//! The kernel queues only about eleven datagrams for a socket (net.unix.max_dgram_qlen) and drops the others.
//! 254 processes that are asked at once lose most of their answers. So a few are asked at a time, and each
//! answer releases the next question. A process that is stopped does not delay the others for long.

/// Number of processes that are expected to answer at a time: fewer than the datagrams that the kernel
/// queues.
const AT_A_TIME: usize = 8;
/// Time without any answer after which further processes are asked as well, in nanoseconds.
const STALL_NS: u64 = 5_000_000;
/// Time between asking and asking again, in nanoseconds: questions and answers may be lost.
const AGAIN_NS: u64 = 100_000_000;

/// The next step of the asker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryStep {
    /// Ask the process with this index of the list.
    Ask(usize),
    /// Wait for an answer, at most until this time.
    Wait { until_ns: u64 },
    /// All processes have answered, or have been silent for too long.
    End,
}

/// The state of one process that is asked.
#[derive(Debug, Clone, Copy)]
struct PendingQuery {
    /// Time at which it is asked (again).
    due_ns: u64,
    /// Time after which its answer is no longer awaited.
    end_ns: u64,
    /// The process is one of the [`AT_A_TIME`].
    is_expected: bool,
    is_done: bool,
}

/// The processes that are asked.
#[derive(Debug)]
pub(crate) struct QuerySchedule {
    patience_ns: u64,
    list: Vec<PendingQuery>,
    /// Number of processes that are expected to answer.
    expected: usize,
    /// Time at which a process was last asked or last answered.
    moved_ns: u64,
}

impl QuerySchedule {
    /// Starts questions to `count` processes. Each answer is awaited for `patience_ns`.
    pub(crate) fn new(count: usize, now_ns: u64, patience_ns: u64) -> QuerySchedule {
        let end_ns = now_ns.saturating_add(patience_ns);
        let new = PendingQuery { due_ns: now_ns, end_ns, is_expected: false, is_done: false };
        QuerySchedule { patience_ns, list: vec![new; count], expected: 0, moved_ns: now_ns }
    }

    /// Returns the next step at `now_ns`.
    pub(crate) fn next(&mut self, now_ns: u64) -> QueryStep {
        for pending in self.list.iter_mut().filter(|pending| !pending.is_done && pending.end_ns <= now_ns) {
            pending.is_done = true;
            self.expected -= usize::from(std::mem::take(&mut pending.is_expected));
        }
        if self.expected >= AT_A_TIME && now_ns >= self.moved_ns.saturating_add(STALL_NS) {
            self.list.iter_mut().for_each(|pending| pending.is_expected = false);
            self.expected = 0;
        }
        let has_room = self.expected < AT_A_TIME;
        let open = self.list.iter_mut().enumerate().filter(|(_, pending)| !pending.is_done);
        let mut until_ns = None;
        let mut next: Option<(usize, &mut PendingQuery)> = None;
        for (index, pending) in open {
            let may_be_asked = has_room || pending.is_expected;
            let wakes_ns = if may_be_asked { pending.due_ns.min(pending.end_ns) } else { pending.end_ns };
            until_ns = Some(until_ns.map_or(wakes_ns, |other: u64| other.min(wakes_ns)));
            let is_first = next.as_ref().is_none_or(|(_, first)| pending.due_ns < first.due_ns);
            if may_be_asked && pending.due_ns <= now_ns && is_first {
                next = Some((index, pending));
            }
        }
        if let Some((index, pending)) = next {
            pending.due_ns = now_ns.saturating_add(AGAIN_NS);
            self.expected += usize::from(!std::mem::replace(&mut pending.is_expected, true));
            self.moved_ns = now_ns;
            return QueryStep::Ask(index);
        }
        let Some(until_ns) = until_ns else { return QueryStep::End };
        let stall_ns = if has_room { u64::MAX } else { self.moved_ns.saturating_add(STALL_NS) };
        QueryStep::Wait { until_ns: until_ns.min(stall_ns) }
    }

    /// Notes that a process has answered. `more` says that there is another question for it, whose time
    /// begins anew.
    pub(crate) fn answered(&mut self, index: usize, now_ns: u64, more: bool) {
        let Some(pending) = self.list.get_mut(index).filter(|pending| !pending.is_done) else { return };
        self.expected -= usize::from(std::mem::take(&mut pending.is_expected));
        self.moved_ns = now_ns;
        pending.is_done = !more;
        pending.due_ns = now_ns;
        pending.end_ns = now_ns.saturating_add(self.patience_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Returns all processes that are asked at this moment.
    fn pending(query_schedule: &mut QuerySchedule, now_ns: u64) -> Vec<usize> {
        let ask = || match query_schedule.next(now_ns) {
            QueryStep::Ask(index) => Some(index),
            QueryStep::Wait { .. } | QueryStep::End => None,
        };
        std::iter::from_fn(ask).collect()
    }

    #[test]
    fn each_answer_lets_the_next_question_go() {
        let mut query_schedule = QuerySchedule::new(20, 0, SECOND_NS);
        assert_eq!(pending(&mut query_schedule, 0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(query_schedule.next(0), QueryStep::Wait { until_ns: STALL_NS });
        query_schedule.answered(3, 10, false);
        assert_eq!(pending(&mut query_schedule, 10), [8]);
        // The question for another page of a process that has answered waits for its turn.
        query_schedule.answered(0, 20, true);
        query_schedule.answered(1, 20, false);
        assert_eq!(pending(&mut query_schedule, 20), [9, 10]);
        let mut later = Vec::new();
        for index in 2..20 {
            query_schedule.answered(index, 30, false);
            query_schedule.answered(index, 30, false);
            later.extend(pending(&mut query_schedule, 30));
        }
        assert_eq!(later, [11, 12, 13, 14, 15, 16, 17, 18, 19, 0]);
        query_schedule.answered(0, 40, false);
        assert_eq!(query_schedule.next(40), QueryStep::End);
    }

    #[test]
    fn silent_processes_hold_up_the_others_for_milliseconds_only() {
        let mut query_schedule = QuerySchedule::new(254, 0, SECOND_NS);
        let (mut now_ns, mut all) = (0, Vec::new());
        while all.len() < 254 {
            all.extend(pending(&mut query_schedule, now_ns));
            let QueryStep::Wait { until_ns } = query_schedule.next(now_ns) else { panic!("all are silent") };
            assert!(now_ns < until_ns && until_ns <= now_ns + STALL_NS, "at {now_ns}");
            now_ns = until_ns;
        }
        assert!(now_ns <= 32 * STALL_NS, "{now_ns}");
        assert_eq!(all[..254], (0..254).collect::<Vec<_>>(), "each once before one is asked again");
    }

    #[test]
    fn a_process_is_asked_again_until_patience_ends_which_is_that_of_each_question() {
        let mut query_schedule = QuerySchedule::new(2, 7, SECOND_NS);
        assert_eq!(pending(&mut query_schedule, 7), [0, 1]);
        assert_eq!(query_schedule.next(8), QueryStep::Wait { until_ns: 7 + AGAIN_NS });
        let later_ns = SECOND_NS / 2;
        query_schedule.answered(1, later_ns, true);
        assert_eq!(pending(&mut query_schedule, later_ns), [0, 1]);
        // The first has been silent for as long as it may be, the second has not.
        assert_eq!(pending(&mut query_schedule, 7 + SECOND_NS), [1]);
        assert_eq!(query_schedule.next(later_ns + SECOND_NS - 1), QueryStep::Ask(1));
        assert_eq!(query_schedule.next(later_ns + SECOND_NS), QueryStep::End);
        query_schedule.answered(1, 2 * SECOND_NS, true);
        assert_eq!(query_schedule.next(2 * SECOND_NS), QueryStep::End, "an answer that comes too late");
    }

    #[test]
    fn no_process_is_no_question() {
        assert_eq!(QuerySchedule::new(0, 0, SECOND_NS).next(0), QueryStep::End);
    }
}
