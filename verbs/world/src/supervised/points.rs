//! Points at which a library says that another thread may go on, or that it has looked in vain.
//!
//! A library that has a page makes no call at points at which the schedule has the same thread go on. How
//! many in a row these are is drawn ahead of time. A point does the same with a stop as without one: which
//! ones stop decides nothing, so that a run whose departures are listed is the run in which they were drawn.

use nix::errno::Errno;

use super::lent::LentPoints;
use super::schedule::PATIENCE;
use super::serve::AS_IT_IS;
use super::supervisor::Supervisor;
use super::threads::{Call, Doing, ThreadId, VAIN};
use crate::error::WorldError;

/// What a point takes, in ns of the world.
pub(crate) const POINT_NS: u64 = 600;
/// Points in a row without a stop.
const MOST_POINTS: u32 = 64;

/// Kinds of hints, as in the library's `outside::world`.
const IN_VAIN: u64 = 1;
const ASKS_FOR_PAGE: u64 = 2;

impl Supervisor {
    /// How many points in a row may pass without a stop: nothing would come of it.
    pub(crate) fn lend_points(&mut self, id: ThreadId) -> u32 {
        let (working, able) = self.able_now();
        self.lent = LentPoints { count: 0, has_choice: working > 1, passes_over: working < able };
        let is_working = self.threads.get(id).is_some_and(|thread| thread.vain < VAIN);
        // Others may be ready now, which is looked at in a stop.
        if self.looked_at != self.changes || !is_working {
            return 0;
        }
        let mut count = MOST_POINTS.min(self.departures_ahead());
        if self.lent.passes_over {
            count = count.min(PATIENCE.saturating_sub(self.passed_over + 1));
        }
        self.lent.count = count;
        count
    }

    /// Points up to the next departure from the plain order, as far as they are known.
    fn departures_ahead(&mut self) -> u32 {
        if let Some(listed) = &self.options.departures {
            // Each point has two numbers: whether the thread rests, and who goes on.
            let next = listed.range(self.points + 1..).next();
            let ahead = next.map_or(u64::MAX, |(next, _)| (next - self.points - 1) / 2);
            return u32::try_from(ahead).unwrap_or(u32::MAX);
        }
        let draws = self.options.draws;
        let switches = match self.lent.has_choice {
            true => self.switches.quiet(&mut self.order, draws.switch_ppm),
            false => u32::MAX,
        };
        switches.min(self.stalls.quiet(&mut self.order, draws.stall_ppm))
    }

    /// The thread has stopped: so many points are left of those that it was lent.
    pub(crate) fn take_points(&mut self, left: u32) {
        let LentPoints { count, has_choice, passes_over } = std::mem::take(&mut self.lent);
        let used = count.saturating_sub(left);
        if used == 0 {
            return;
        }
        self.points += 2 * u64::from(used);
        if self.options.departures.is_none() {
            self.stalls.pass(used);
            self.switches.pass(if has_choice { used } else { 0 });
        }
        self.passed_over = if passes_over { self.passed_over + used } else { 0 };
    }

    /// A hint of a program that knows that it is in a world: another thread may go on, or it looked in vain.
    pub(crate) fn take_hint(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, kind, ..] = call.arguments();
        if !call.is_hint() {
            return self.make_and_go(id, call, AS_IT_IS);
        }
        if kind == ASKS_FOR_PAGE {
            let page = self.page_of(id).map_or(0, |(_, page)| page as i64);
            // Each kernel has other room for it.
            return self.answer_noted(id, call, page, i64::from(page != 0));
        }
        let is_vain = kind == IN_VAIN;
        if let Some(thread) = self.threads.get_mut(id) {
            // A call that begins says that the one before it found something, if that one said nothing.
            if !is_vain && !std::mem::replace(&mut thread.looked_in_vain, false) {
                thread.vain = 0;
            }
            if is_vain {
                thread.looked_in_vain = true;
                thread.vain = thread.vain.saturating_add(1);
            }
        }
        self.clock.pass(POINT_NS);
        self.stall(id, "a call of verbs");
        match self.tracee(id)?.answer(&call.registers, 0) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Another thread may go on now.
        if let Some(thread) = self.threads.get_mut(id) {
            thread.doing = Doing::Program;
        }
        Ok(())
    }
}
