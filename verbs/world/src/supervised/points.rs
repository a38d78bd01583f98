//! Points at which a library says that another thread may continue, or that its poll was idle.
//!
//! A library that has a page makes no call at points at which the schedule has the same thread continue. The
//! number of these in a row is drawn in advance. A point has the same effect with a stop as without one: it
//! does not matter which points stop, so that a run with listed departures equals the run in which they were
//! drawn.

use nix::errno::Errno;

use super::occasions::{HostNumber, Receiver};
use super::point_budget::PointBudget;
use super::schedule::MAX_IDLE_SKIPS;
use super::serve::UNCHANGED;
use super::supervisor::Supervisor;
use super::threads::{Activity, Call, EndlessWait, IDLE_THRESHOLD, ThreadId};
use crate::error::WorldError;

/// Time that a point takes, in ns of the world.
pub(crate) const POINT_NS: u64 = 600;
/// Time that each reading takes, in ns of the world.
pub(crate) const READING_NS: u64 = 50;
/// Time that a point at a lock takes, in ns of the world, as in the library's `world_page`.
const LOCK_POINT_NS: u64 = READING_NS;
/// Maximum number of points in a row without a stop.
const MAX_POINTS: u32 = 64;

/// Name of a point that is a call of the library.
const CALL: &str = "a call of verbs";

/// Kinds of hints, as in the library's `outside::world`.
const IDLE_POLL: u64 = 1;
const PAGE_REQUEST: u64 = 2;
const ENDLESS: u64 = 3;
const CHARGE: u64 = 4;
const LOCK_POINT: u64 = 5;
const RECEIVER: u64 = 6;
const HOST: u64 = 7;
const DEVICE_POLL: u64 = 8;
/// Values of the last kind besides descriptors: a thread of the library waits for work, or the wait ends.
const NO_DESCRIPTOR: u64 = u32::MAX as u64;
const NO_WAIT: u64 = u64::MAX;
/// Bit beside the descriptor of a channel of connections.
const OF_CONNECTIONS: u64 = 1 << 32;

impl Supervisor {
    /// Returns how many points in a row may pass without a stop, because they would have no effect.
    pub(crate) fn grant_points(&mut self, id: ThreadId) -> u32 {
        if self.is_exact() {
            self.draws.point_budget = PointBudget::default();
            return 0;
        }
        let (active, runnable) = self.count_runnable();
        self.draws.point_budget =
            PointBudget { count: 0, has_choice: active > 1, skips_idle_threads: active < runnable };
        let is_active = self
            .threads
            .get(id)
            .is_some_and(|thread| thread.polls.idle_polls < IDLE_THRESHOLD && thread.preemption.is_none());
        // Other threads may be ready now, which only a stop finds out.
        if self.turns.last_check.change != self.turns.changes || !is_active || self.is_preparing {
            return 0;
        }
        // A thread of higher priority may be ready.
        if self.options.draws.priorities && active > 1 && self.options.departures.is_none() {
            return 0;
        }
        let mut count = MAX_POINTS.min(self.departures_ahead(id));
        if self.draws.point_budget.skips_idle_threads {
            count = count.min(MAX_IDLE_SKIPS.saturating_sub(self.turns.idle_threads_skipped + 1));
        }
        self.draws.point_budget.count = count;
        count
    }

    /// Returns the number of points up to the next departure from the plain order, as far as it is known.
    fn departures_ahead(&mut self, id: ThreadId) -> u32 {
        if let Some(listed) = &self.options.departures {
            return u32::try_from(self.course.decisions.points_before(id, listed)).unwrap_or(u32::MAX);
        }
        let draws = self.options.draws;
        let switches = match self.draws.point_budget.has_choice {
            true => self.draws.switches.misses(&mut self.draws.order, draws.switch_ppm),
            false => u32::MAX,
        };
        switches
            .min(self.draws.stalls.misses(&mut self.draws.order, draws.stall_ppm))
            .min(self.draws.preemptions.misses(&mut self.draws.instructions, draws.preempt_ppm))
    }

    /// Takes back the `left` points that a thread did not use before it stopped.
    pub(crate) fn reclaim_points(&mut self, id: ThreadId, left: u32) {
        let PointBudget { count, has_choice, skips_idle_threads } =
            std::mem::take(&mut self.draws.point_budget);
        let used = count.saturating_sub(left);
        if used == 0 {
            return;
        }
        self.course.decisions.pass(id, used);
        if self.options.departures.is_none() {
            self.draws.stalls.pass(used);
            self.draws.preemptions.pass(used);
            self.draws.switches.pass(if has_choice { used } else { 0 });
        }
        self.turns.idle_threads_skipped =
            if skips_idle_threads { self.turns.idle_threads_skipped + used } else { 0 };
    }

    /// Serves a hint of a program that knows that it is in a world: another thread may continue, or its poll
    /// was idle.
    pub(crate) fn take_hint(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, kind, value, looked_for, more, ..] = call.arguments();
        if !call.is_hint() {
            let [option, ..] = call.arguments();
            // The time stamp counter stays the world's.
            return match option as i32 {
                libc::PR_SET_TSC => self.answer(id, call, 0),
                _ => self.make_and_resume(id, call, UNCHANGED),
            };
        }
        if kind == PAGE_REQUEST {
            let page = self.page_of(id).map_or(0, |(_, page)| page as i64);
            // The address of the page differs between kernels, so the noted result only says whether there is
            // one.
            return self.answer_noted(id, call, page, i64::from(page != 0));
        }
        if kind == ENDLESS {
            if let Some(thread) = self.threads.get_mut(id) {
                thread.polls.endless = match value {
                    NO_WAIT => None,
                    NO_DESCRIPTOR => Some(EndlessWait::Work),
                    value if value & OF_CONNECTIONS != 0 => Some(EndlessWait::ConnectionEvent(value as i32)),
                    descriptor => Some(EndlessWait::CompletionEvent(descriptor as i32)),
                };
            }
            self.turns.at_rest_since_ns = None;
            return self.answer(id, call, 0);
        }
        if matches!(kind, RECEIVER | HOST) {
            self.locate_receiver(id, kind, value);
            return self.answer(id, call, 0);
        }
        let is_idle_poll = kind == IDLE_POLL;
        if self.is_exact() {
            match kind {
                IDLE_POLL => self.found_nothing(id, value, looked_for, more != 0),
                DEVICE_POLL => self.found_no_work(id, value, looked_for, more),
                CHARGE => {
                    self.charge(id, value);
                    if looked_for != 0 {
                        self.note_devices(id, self.world_ns(looked_for), false);
                    }
                }
                _ => self.begins_call(id),
            }
            return self.end_point(id, call, CALL);
        }
        let is_lock = kind == LOCK_POINT;
        if let Some(thread) = self.threads.get_mut(id).filter(|_| !is_lock) {
            // The beginning of a call implies that the one before it was not idle, unless that one gave an
            // idle hint.
            if !is_idle_poll && !std::mem::replace(&mut thread.polls.idle_poll, false) {
                thread.polls.idle_polls = 0;
            }
            if is_idle_poll {
                thread.polls.idle_poll = true;
                thread.polls.idle_polls = thread.polls.idle_polls.saturating_add(1);
            }
        }
        self.time.clock.pass(if is_lock { LOCK_POINT_NS } else { POINT_NS });
        self.end_point(id, call, if is_lock { "a lock" } else { CALL })
    }

    /// Notes the number by which other processes name a process that receives packets, or the host that a
    /// process has entered.
    fn locate_receiver(&mut self, id: ThreadId, kind: u64, value: u64) {
        match kind {
            HOST => self.threads.enter_host(id, HostNumber::try_from(value).unwrap_or(0)),
            _ => {
                let process = self.threads.get(id).map_or(0, |thread| thread.process);
                self.turns.occasions.receives(value, Receiver { host: self.threads.host(id), process });
            }
        }
    }

    /// Ends a point, at which the thread may rest and another one may continue. `at` names the point.
    fn end_point(&mut self, id: ThreadId, call: Call, at: &str) -> Result<(), WorldError> {
        self.stall(id, at);
        match self.tracee(id)?.answer(&call.registers, 0) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Another thread may continue now.
        if let Some(thread) = self.threads.get_mut(id) {
            thread.activity = Activity::Program;
        }
        Ok(())
    }
}
