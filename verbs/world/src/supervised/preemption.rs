//! Preemption between two points, of threads that run for long without a call.
//!
//! Threads that run for long without a call: others go first, because such a thread may wait for a value that
//! one of them writes.

use nix::errno::Errno;

use super::spin::{SpinProof, prove_spin};
use super::stepper::{Stepper, Stop, await_stop, await_stop_or_preemption, cancel, location_of};
use super::supervisor::Supervisor;
use super::threads::{Activity, IDLE_THRESHOLD, Preemption, ThreadId};
use crate::error::WorldError;
use crate::options::{Departure, MAX_PREEMPTION_STEPS};

/// Number of idle polls for which a long run without a call counts.
const SPIN_IDLE_POLLS: u32 = 64;
/// Time that a long run without a call costs, in ns of the world.
const SPIN_NS: u64 = 1_000_000;
/// Number for a look in memory.
const IN_MEMORY: u64 = u64::MAX;

impl Supervisor {
    /// Stops a thread that runs for long, and finds whether it loops until memory changes. Returns `None` if
    /// it does.
    pub(crate) fn examine_long_run(
        &mut self,
        id: ThreadId,
        stepper: &mut Option<Stepper>,
        is_too_long: bool,
    ) -> Result<Option<Stop>, WorldError> {
        let tracee = self.tracee(id)?;
        // The thread stops at an arbitrary instruction.
        tracee.interrupt()?;
        let stop = await_stop_or_preemption(tracee, stepper, u64::MAX)?;
        if !matches!(stop, Stop::NoEvent) {
            return Ok(Some(stop));
        }
        match prove_spin(tracee)? {
            SpinProof::Loops => {
                cancel(tracee, stepper);
                self.reclaim_clock(id);
                Ok(None)
            }
            SpinProof::Unproven => {
                self.end_long_way(id, stepper, is_too_long)?;
                Ok(Some(Stop::NoEvent))
            }
            SpinProof::Stopped(stop) => {
                cancel(tracee, stepper);
                Ok(Some(stop))
            }
        }
    }

    /// Lets other threads go first, because a thread has long done nothing but read the time stamp counter.
    pub(crate) fn reads_tsc(&mut self, id: ThreadId) -> Result<(), WorldError> {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.activity = Activity::Program;
            thread.polls.idle_polls = thread.polls.idle_polls.saturating_add(IDLE_THRESHOLD);
        }
        self.park_if_idle(id, IN_MEMORY);
        self.note(id, "rdtsc", 0)
    }

    /// Lets other threads go first, because a thread loops until memory changes.
    pub(crate) fn loops(&mut self, id: ThreadId) -> Result<(), WorldError> {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.activity = Activity::Program;
            thread.polls.idle_polls = match self.options.exact_time {
                true => thread.polls.idle_polls.max(IDLE_THRESHOLD),
                false => thread.polls.idle_polls.max(SPIN_IDLE_POLLS),
            };
        }
        self.park_if_idle(id, IN_MEMORY);
        self.note(id, "loops", 0)
    }

    /// Stops a thread that runs for long without a call. The instruction at which it stops differs in the
    /// next run.
    pub(crate) fn interrupt(&mut self, id: ThreadId) -> Result<(), WorldError> {
        self.doubt(id, "ran for long without a call")?;
        let tracee = self.tracee(id)?;
        tracee.interrupt()?;
        loop {
            match await_stop(tracee)? {
                Stop::NoEvent => break,
                Stop::Exited(exit) => return self.thread_exited(id, exit),
                Stop::Call(call) => {
                    self.reclaim_clock(id);
                    return self.called(id, *call);
                }
                _ => tracee.resume(None)?,
            }
        }
        self.reclaim_clock(id);
        if let Some(thread) = self.threads.get_mut(id) {
            thread.activity = Activity::Program;
            thread.polls.idle_polls = SPIN_IDLE_POLLS;
        }
        self.time.clock.pass(SPIN_NS);
        Ok(())
    }

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
    fn end_long_way(
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

/// Number of powers of two from which the number of instructions is drawn.
const STEP_POWERS: u64 = MAX_PREEMPTION_STEPS.ilog2() as u64;
/// The longest rest is divided by up to this power of four.
const REST_POWERS: u64 = 7;
/// The shortest rest, in ns.
const SHORTEST_REST_NS: u64 = 1_000;
