//! Threads that run for long without a call: others go first, because such a thread may wait for a value that
//! one of them writes.

use super::spin::{SpinProof, prove_spin};
use super::stepper::{Stepper, await_stop_or_preemption, cancel};
use super::stop::{Stop, await_stop};
use super::supervisor::Supervisor;
use super::threads::{Activity, IDLE_THRESHOLD, ThreadId};
use crate::error::WorldError;

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
}
