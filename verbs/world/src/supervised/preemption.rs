//! Preemption between two points: a thread runs a drawn number of instructions of its program, and rests.

use nix::errno::Errno;

use super::stepper::{Stepper, cancel, location_of};
use super::supervisor::Supervisor;
use super::threads::{Activity, Preemption, ThreadId};
use crate::error::WorldError;
use crate::options::{Departure, MAX_PREEMPTION_STEPS};

/// Number of powers of two from which the number of instructions is drawn.
const STEP_POWERS: u64 = MAX_PREEMPTION_STEPS.ilog2() as u64;
/// The longest rest is divided by up to this power of four.
const REST_POWERS: u64 = 7;
/// The shortest rest, in ns.
const SHORTEST_REST_NS: u64 = 1_000;

impl Supervisor {
    /// Decides at a point whether the thread is preempted before the next one.
    pub(crate) fn draw_preemption(&mut self, id: ThreadId, point: u64) {
        let draws = self.options.draws;
        let drawn = match &self.options.departures {
            Some(listed) => match listed.get(&point) {
                Some(Departure::Preempt { steps, rest_ns }) => Some((*steps, *rest_ns)),
                _ => None,
            },
            None if self.draws.steps_left.get() == 0 => None,
            None => self.draws.preemptions.hits(&mut self.draws.instructions, draws.preempt_ppm).then(|| {
                let power = 1 << self.draws.instructions.below(STEP_POWERS);
                let steps = power + self.draws.instructions.below(power);
                let longest_ns = draws.longest_stall_ns >> (2 * self.draws.instructions.below(REST_POWERS));
                (steps, longest_ns.max(SHORTEST_REST_NS))
            }),
        };
        let preemption = drawn.map(|(steps, rest_ns)| Preemption { point, steps, rest_ns });
        if let Some(thread) = self.threads.get_mut(id) {
            thread.preemption = preemption;
        }
    }

    /// Returns the way of a thread that is about to run in its program to its preemption, if it has one.
    pub(crate) fn begin_preemption(&mut self, id: ThreadId) -> Result<Option<Stepper>, WorldError> {
        let Some(thread) = self.threads.get_mut(id) else { return Ok(None) };
        let (tracee, Some(preemption)) = (thread.tracee, thread.preemption) else { return Ok(None) };
        match Stepper::begin(tracee, preemption, &self.draws.steps_left) {
            Ok(stepper) => Ok(stepper),
            Err(Errno::ESRCH | Errno::EFAULT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Ends the way of a thread to its preemption if a function takes too long, which the next run may do
    /// otherwise.
    pub(crate) fn end_long_way(
        &mut self,
        id: ThreadId,
        stepper: &mut Option<Stepper>,
        is_long: bool,
    ) -> Result<(), WorldError> {
        if !is_long || stepper.is_none() {
            return Ok(());
        }
        cancel(self.tracee(id)?, stepper);
        self.doubt(id, "ran for long without a call")
    }

    /// Finds the place in the program at which a thread departs, if the departures are listed: to find it
    /// takes time, and in other runs departures are many.
    pub(crate) fn locate(&mut self, id: ThreadId, number: u64) {
        let Some(thread) = self.threads.get(id).filter(|_| self.options.departures.is_some()) else { return };
        if let Some(place) = location_of(thread.tracee) {
            self.course.locations.insert(number, place);
        }
    }

    /// Makes a thread rest between two of its instructions.
    pub(crate) fn preempt(&mut self, id: ThreadId) {
        let now_ns = self.time.clock.now_ns();
        let Some(thread) = self.threads.get_mut(id) else { return };
        let Some(Preemption { point, steps, rest_ns }) = thread.preemption.take() else { return };
        thread.rests_until_ns = now_ns.saturating_add(rest_ns);
        thread.activity = Activity::Program;
        let words = format!(
            "{} rested {} us between two instructions, {steps} behind event {}",
            thread.name,
            rest_ns / 1_000,
            self.log.events
        );
        self.course.departures.insert(point, (Departure::Preempt { steps, rest_ns }, words));
        self.locate(id, point);
    }
}
