//! The numbers of the schedule's decisions, by which departures from the plain order are identified.
//!
//! The numbers of a thread do not depend on what other threads do. So a departure keeps its number when
//! others are left out.

use std::collections::BTreeMap;

use super::threads::ThreadId;
use crate::options::POINT;

/// Number of bits of a decision's number for the choice at a point, and for the point.
const CHOICE_BITS: u32 = POINT.ilog2();
const POINT_BITS: u32 = 32;
/// Number of choices at a point that have a number.
const MAX_CHOICES: u64 = (1 << CHOICE_BITS) - 1;

/// How far a thread has come.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Number of points of the thread.
    points: u64,
    /// Number of choices of the next thread since its last point.
    choices: u64,
}

/// The numbers of decisions so far.
#[derive(Debug, Default)]
pub(crate) struct Decisions(BTreeMap<ThreadId, Progress>);

impl Decisions {
    /// Counts a point of a thread. Returns the number of the decision whether it rests there.
    pub(crate) fn at_point(&mut self, id: ThreadId) -> u64 {
        let progress = self.0.entry(id).or_default();
        *progress = Progress { points: progress.points + 1, choices: 0 };
        number(id, *progress)
    }

    /// Counts a choice of the next thread, after `last` ran. Returns its number, if it has one.
    pub(crate) fn at_choice(&mut self, last: Option<ThreadId>) -> Option<u64> {
        let id = last.unwrap_or(ThreadId(0));
        let progress = self.0.entry(id).or_default();
        progress.choices += 1;
        (progress.choices <= MAX_CHOICES).then(|| number(id, *progress))
    }

    /// Counts points of a thread after each of which the same thread continued.
    pub(crate) fn pass(&mut self, id: ThreadId, points: u32) {
        let progress = self.0.entry(id).or_default();
        *progress = Progress { points: progress.points + u64::from(points), choices: 1 };
    }

    /// Returns the number of points of a thread before the first of these departures, which are sorted.
    pub(crate) fn points_before<T>(&self, id: ThreadId, listed: &BTreeMap<u64, T>) -> u64 {
        let now = self.0.get(&id).copied().unwrap_or_default();
        let end = number(ThreadId(id.0 + 1), Progress::default());
        let next = listed.range(number(id, now) + 1..end.max(number(id, now) + 1)).next();
        next.map_or(u64::MAX, |(next, _)| {
            (next >> CHOICE_BITS & ((1 << POINT_BITS) - 1)).saturating_sub(now.points + 1)
        })
    }
}

fn number(id: ThreadId, Progress { points, choices }: Progress) -> u64 {
    let points = points.min((1 << POINT_BITS) - 1);
    u64::from(id.0) << (POINT_BITS + CHOICE_BITS) | points << CHOICE_BITS | choices.min(MAX_CHOICES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_thread_do_not_depend_on_others() {
        let (mut alone, mut among) = (Decisions::default(), Decisions::default());
        let (id, other) = (ThreadId(3), ThreadId(4));
        let wanted = [alone.at_point(id), alone.at_point(id)];
        let first = among.at_point(id);
        among.at_choice(Some(id));
        among.at_point(other);
        among.at_choice(Some(other));
        assert_eq!([first, among.at_point(id)], wanted);
    }

    #[test]
    fn points_that_pass_are_counted_like_those_that_stop() {
        let (mut stops, mut passes) = (Decisions::default(), Decisions::default());
        let id = ThreadId(1);
        for _ in 0..5 {
            stops.at_point(id);
            stops.at_choice(Some(id));
        }
        passes.pass(id, 5);
        assert_eq!(stops.at_choice(Some(id)), passes.at_choice(Some(id)));
        let sixth = stops.at_point(id);
        stops.at_point(id);
        let listed: BTreeMap<u64, ()> = [(sixth, ())].into();
        assert_eq!(passes.points_before(id, &listed), 0);
        assert_eq!(Decisions::default().points_before(id, &listed), 5);
        assert_eq!(stops.points_before(id, &listed), u64::MAX);
        assert_eq!(passes.points_before(ThreadId(0), &listed), u64::MAX);
    }

    #[test]
    fn a_choice_beyond_all_numbers_has_none() {
        let mut decisions = Decisions::default();
        assert!((0..MAX_CHOICES).all(|_| decisions.at_choice(None).is_some()));
        assert_eq!(decisions.at_choice(None), None);
    }
}
