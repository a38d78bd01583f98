//! Which of many processes is asked when, so that their answers do not come faster than they are taken.
//!
//! The kernel keeps only about eleven datagrams for a socket (net.unix.max_dgram_qlen) and drops the others.
//! 254 processes that are asked at once lose most of their answers. So a few are asked at a time, and each
//! answer lets the next question go. A process that is stopped does not hold up the others for long.

/// Processes that are expected to answer at a time: fewer than the datagrams that the kernel keeps.
const AT_A_TIME: usize = 8;
/// How long no process answers before others are asked as well.
const STALL_NS: u64 = 5_000_000;
/// Between asking and asking again: questions and answers may be lost.
const AGAIN_NS: u64 = 100_000_000;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Asks the process with this index of the list.
    Ask(usize),
    /// Waits for an answer, at most until then.
    Wait { until_ns: u64 },
    /// All have answered, or have been silent for too long.
    End,
}

/// One process.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// When it is asked (again).
    due_ns: u64,
    /// When its answer is waited for no more.
    end_ns: u64,
    /// It is one of the [`AT_A_TIME`].
    is_expected: bool,
    is_done: bool,
}

/// The processes that are asked.
#[derive(Debug)]
pub(super) struct Turns {
    patience_ns: u64,
    list: Vec<Asked>,
    /// How many are expected to answer.
    expected: usize,
    /// When a process was asked or answered last.
    moved_ns: u64,
}

impl Turns {
    /// Questions to so many processes, which begin now. Each answer is waited for `patience_ns`.
    pub(super) fn new(count: usize, now_ns: u64, patience_ns: u64) -> Turns {
        let end_ns = now_ns.saturating_add(patience_ns);
        let new = Asked { due_ns: now_ns, end_ns, is_expected: false, is_done: false };
        Turns { patience_ns, list: vec![new; count], expected: 0, moved_ns: now_ns }
    }

    /// What to do at `now_ns`.
    pub(super) fn next(&mut self, now_ns: u64) -> Turn {
        for asked in self.list.iter_mut().filter(|asked| !asked.is_done && asked.end_ns <= now_ns) {
            asked.is_done = true;
            self.expected -= usize::from(std::mem::take(&mut asked.is_expected));
        }
        if self.expected >= AT_A_TIME && now_ns >= self.moved_ns.saturating_add(STALL_NS) {
            self.list.iter_mut().for_each(|asked| asked.is_expected = false);
            self.expected = 0;
        }
        let has_room = self.expected < AT_A_TIME;
        let open = self.list.iter_mut().enumerate().filter(|(_, asked)| !asked.is_done);
        let mut until_ns = None;
        let mut next: Option<(usize, &mut Asked)> = None;
        for (index, asked) in open {
            let may_be_asked = has_room || asked.is_expected;
            let wakes_ns = if may_be_asked { asked.due_ns.min(asked.end_ns) } else { asked.end_ns };
            until_ns = Some(until_ns.map_or(wakes_ns, |other: u64| other.min(wakes_ns)));
            let is_first = next.as_ref().is_none_or(|(_, first)| asked.due_ns < first.due_ns);
            if may_be_asked && asked.due_ns <= now_ns && is_first {
                next = Some((index, asked));
            }
        }
        if let Some((index, asked)) = next {
            asked.due_ns = now_ns.saturating_add(AGAIN_NS);
            self.expected += usize::from(!std::mem::replace(&mut asked.is_expected, true));
            self.moved_ns = now_ns;
            return Turn::Ask(index);
        }
        let Some(until_ns) = until_ns else { return Turn::End };
        let stall_ns = if has_room { u64::MAX } else { self.moved_ns.saturating_add(STALL_NS) };
        Turn::Wait { until_ns: until_ns.min(stall_ns) }
    }

    /// A process has answered. `more`: there is another question for it, and its patience begins anew.
    pub(super) fn answered(&mut self, index: usize, now_ns: u64, more: bool) {
        let Some(asked) = self.list.get_mut(index).filter(|asked| !asked.is_done) else { return };
        self.expected -= usize::from(std::mem::take(&mut asked.is_expected));
        self.moved_ns = now_ns;
        asked.is_done = !more;
        asked.due_ns = now_ns;
        asked.end_ns = now_ns.saturating_add(self.patience_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// All that are asked at this moment.
    fn asked(turns: &mut Turns, now_ns: u64) -> Vec<usize> {
        let ask = || match turns.next(now_ns) {
            Turn::Ask(index) => Some(index),
            Turn::Wait { .. } | Turn::End => None,
        };
        std::iter::from_fn(ask).collect()
    }

    #[test]
    fn each_answer_lets_the_next_question_go() {
        let mut turns = Turns::new(20, 0, SECOND_NS);
        assert_eq!(asked(&mut turns, 0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(turns.next(0), Turn::Wait { until_ns: STALL_NS });
        turns.answered(3, 10, false);
        assert_eq!(asked(&mut turns, 10), [8]);
        // Another page of a process that has answered comes in its turn.
        turns.answered(0, 20, true);
        turns.answered(1, 20, false);
        assert_eq!(asked(&mut turns, 20), [9, 10]);
        let mut later = Vec::new();
        for index in 2..20 {
            turns.answered(index, 30, false);
            turns.answered(index, 30, false);
            later.extend(asked(&mut turns, 30));
        }
        assert_eq!(later, [11, 12, 13, 14, 15, 16, 17, 18, 19, 0]);
        turns.answered(0, 40, false);
        assert_eq!(turns.next(40), Turn::End);
    }

    #[test]
    fn silent_processes_hold_up_the_others_for_milliseconds_only() {
        let mut turns = Turns::new(254, 0, SECOND_NS);
        let (mut now_ns, mut all) = (0, Vec::new());
        while all.len() < 254 {
            all.extend(asked(&mut turns, now_ns));
            let Turn::Wait { until_ns } = turns.next(now_ns) else { panic!("all are silent") };
            assert!(now_ns < until_ns && until_ns <= now_ns + STALL_NS, "at {now_ns}");
            now_ns = until_ns;
        }
        assert!(now_ns <= 32 * STALL_NS, "{now_ns}");
        assert_eq!(all[..254], (0..254).collect::<Vec<_>>(), "each once before one is asked again");
    }

    #[test]
    fn a_process_is_asked_again_until_patience_ends_which_is_that_of_each_question() {
        let mut turns = Turns::new(2, 7, SECOND_NS);
        assert_eq!(asked(&mut turns, 7), [0, 1]);
        assert_eq!(turns.next(8), Turn::Wait { until_ns: 7 + AGAIN_NS });
        let later_ns = SECOND_NS / 2;
        turns.answered(1, later_ns, true);
        assert_eq!(asked(&mut turns, later_ns), [0, 1]);
        // The first has been silent for as long as it may be, the second has not.
        assert_eq!(asked(&mut turns, 7 + SECOND_NS), [1]);
        assert_eq!(turns.next(later_ns + SECOND_NS - 1), Turn::Ask(1));
        assert_eq!(turns.next(later_ns + SECOND_NS), Turn::End);
        turns.answered(1, 2 * SECOND_NS, true);
        assert_eq!(turns.next(2 * SECOND_NS), Turn::End, "an answer that comes too late");
    }

    #[test]
    fn no_process_is_no_question() {
        assert_eq!(Turns::new(0, 0, SECOND_NS).next(0), Turn::End);
    }
}
