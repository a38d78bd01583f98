//! Points at which another thread may continue, and the schedule of a world of exact time.
//!
//! A library that has a page makes no call at points at which the schedule has the same thread continue. The
//! number of these in a row is drawn in advance. A point has the same effect with a stop as without one: it
//! does not matter which points stop, so that a run with listed departures equals the run in which they were
//! drawn.
//!
//! Calls of the kernel and readings of clocks take no time. What takes time, the program says: the thread
//! rests then, and others continue meanwhile. A thread that has polled in vain is parked. It looks again, at
//! no cost, whenever another thread has done something that it may find (`occasions.rs`), and at the time at
//! which, as it says, the answer can change. So it finds what it looks for at the very instant at which that
//! comes.

use std::collections::BTreeSet;

use nix::errno::Errno;

use super::look::{HostNumber, Look, LookedFor, Parked, Receiver, reaches_other_hosts};
use super::rows::syscall_class;
use super::schedule::{IDLE_ROUND_NS, MAX_IDLE_SHIFT, MAX_IDLE_SKIPS, describe_waits, is_runnable};
use super::serve::UNCHANGED;
use super::state::PointBudget;
use super::supervisor::{CALL_NS, Supervisor};
use super::threads::{Activity, Call, EndlessWait, IDLE_THRESHOLD, Thread, ThreadId};
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

    /// Reports whether the run has exact time. What prepares it has not.
    pub(crate) const fn is_exact(&self) -> bool {
        self.options.exact_time && !self.is_preparing
    }

    /// Serves the hint of a poll in vain; `until_ns` is a time of the monotonic clock. `drives`: the poll has
    /// driven the device of the process.
    pub(super) fn found_nothing(&mut self, id: ThreadId, until_ns: u64, looked_for: u64, drives: bool) {
        let until_ns = self.world_ns(until_ns);
        if let Some(thread) = self.threads.get_mut(id) {
            (thread.polls.idle_poll, thread.polls.calls_in_row) = (true, 0);
            thread.polls.idle_polls = thread.polls.idle_polls.saturating_add(1);
        }
        match until_ns {
            UNKNOWN => self.park_if_idle(id, looked_for),
            until_ns => {
                self.note_devices(id, until_ns, drives);
                self.park(id, until_ns, LookedFor { what: looked_for, is_told: true, of_devices: false });
                if let Some(Look::Parked(parked)) =
                    self.threads.get_mut(id).map(|thread| &mut thread.polls.look)
                {
                    parked.drives = drives;
                }
            }
        }
    }

    /// Serves the hint that a call begins. The one before it was not in vain, unless it has said so.
    pub(crate) fn begins_call(&mut self, id: ThreadId) {
        let Some(thread) = self.threads.get_mut(id) else { return };
        thread.polls.calls_in_row = 0;
        if !std::mem::replace(&mut thread.polls.idle_poll, false) {
            thread.polls.idle_polls = 0;
            self.found_something(id);
        }
    }

    /// Serves the hint that a thread needs a time, in which others continue.
    fn charge(&mut self, id: ThreadId, ns: u64) {
        let now_ns = self.time.clock.now_ns();
        if let Some(thread) = self.threads.get_mut(id) {
            (thread.polls.idle_polls, thread.polls.calls_in_row) = (0, 0);
            thread.rests_until_ns = thread.rests_until_ns.max(now_ns).saturating_add(ns);
        }
        self.found_something(id);
    }

    /// Notes that a thread is about to run, whose computing may be measured.
    pub(crate) fn begin_computing(&mut self, id: ThreadId) {
        let is_measured = self.options.measures_computing && self.is_exact();
        if let Some(thread) = self.threads.get_mut(id).filter(|_| is_measured) {
            thread.computes_from_ns = Some(thread.tracee.processor_ns());
        }
    }

    /// Lets the time pass that a thread has computed since it was about to run.
    pub(crate) fn end_computing(&mut self, id: ThreadId) {
        let Some(thread) = self.threads.get_mut(id) else { return };
        let Some(from_ns) = thread.computes_from_ns.take() else { return };
        let ns = thread.tracee.processor_ns().saturating_sub(from_ns);
        if ns >= LEAST_COMPUTING_NS {
            self.charge(id, ns);
        }
    }

    /// Says that the run does not repeat if computing takes as long as it is measured to take.
    pub(crate) fn doubt_measured_computing(&mut self, id: ThreadId) -> Result<(), WorldError> {
        if !self.options.measures_computing {
            return Ok(());
        }
        self.doubt(id, "needs the processor time that its computing is measured to take")
    }

    /// Counts a call of the kernel. Many in a row at one instant take time after all.
    pub(crate) fn count_call(&mut self, id: ThreadId) {
        let now_ns = self.time.clock.now_ns();
        let until_ns = now_ns.saturating_add(u64::from(MAX_FREE_CALLS) * CALL_NS);
        let Some(thread) = self.threads.get_mut(id) else { return };
        self.turns.occasions.on_devices(thread.process);
        if std::mem::replace(&mut thread.polls.calls_at_ns, now_ns) != now_ns {
            thread.polls.calls_in_row = 0;
        }
        thread.polls.calls_in_row += 1;
        if thread.polls.calls_in_row >= MAX_FREE_CALLS {
            thread.polls.calls_in_row = 0;
            thread.rests_until_ns = thread.rests_until_ns.max(until_ns);
        }
    }

    /// Notes that a thread has found something, which others of its host may look for as well. Returns
    /// whether it had looked in vain before.
    pub(crate) fn found_something(&mut self, id: ThreadId) -> bool {
        let Some(thread) = self.threads.get_mut(id) else { return false };
        if std::mem::replace(&mut thread.polls.look, Look::Active) == Look::Active {
            return false;
        }
        self.turns.occasions.on_host(self.threads.host(id));
        true
    }

    /// Parks a thread that has often looked in vain, and of which it is not known when that will end.
    /// `looked_for` is a number for what it looks for.
    pub(crate) fn park_if_idle(&mut self, id: ThreadId, looked_for: u64) {
        let is_idle = |thread: &Thread| thread.polls.idle_polls >= IDLE_THRESHOLD;
        if self.is_exact() && self.threads.get(id).is_some_and(is_idle) {
            self.park(id, NEVER, LookedFor { what: looked_for, is_told: false, of_devices: false });
        }
    }

    pub(crate) fn park(&mut self, id: ThreadId, until_ns: u64, looked_for: LookedFor) {
        let of_devices = looked_for.of_devices;
        let occasion = self.occasion_of(id, of_devices);
        let latest_ns = self.time.clock.now_ns().saturating_add(IDLE_ROUND_NS << MAX_IDLE_SHIFT);
        let Some(thread) = self.threads.get_mut(id) else { return };
        thread.polls.round = thread.polls.round.add(looked_for, thread.polls.look == Look::Active);
        thread.polls.look = Look::Parked(match thread.polls.look {
            Look::Parked(parked) | Look::Looking(parked) if parked.of_devices == of_devices => {
                Parked { until_ns, latest_ns, drives: false, ..parked }
            }
            _ => Parked { until_ns, latest_ns, occasion, looks: 1, of_devices, drives: false },
        });
    }

    /// Returns the number of occasions on which a thread looks.
    fn occasion_of(&self, id: ThreadId, of_devices: bool) -> u64 {
        match self.threads.get(id) {
            Some(thread) if of_devices => self.turns.occasions.of_devices(thread.process),
            _ => self.turns.occasions.of(self.threads.host(id)),
        }
    }

    /// Notes what a thread is about to do, which others may find.
    fn note_occasion(&mut self, id: ThreadId) {
        let call = match self.threads.get(id).map(|thread| &thread.activity) {
            Some(Activity::Call(call) | Activity::Woken(call, _)) => Some(*call),
            _ => None,
        };
        let class = call.and_then(|call| syscall_class(call.number));
        match class.is_some_and(reaches_other_hosts) {
            true => self.turns.occasions.everywhere(),
            false => self.turns.occasions.on_host(self.threads.host(id)),
        }
    }

    /// Chooses the thread that continues; `None` if time has passed instead.
    pub(crate) fn choose_exactly(&mut self) -> Result<Option<ThreadId>, WorldError> {
        self.end_segment();
        let now_ns = self.time.clock.now_ns();
        let all = self.threads.threads.iter();
        let runnable: Vec<(ThreadId, Look)> = all
            .filter(|(_, thread)| is_runnable(&thread.activity) && thread.rests_until_ns <= now_ns)
            .map(|(id, thread)| match thread.activity {
                // What it waited for has come.
                Activity::Woken(..) => (*id, Look::Active),
                _ => (*id, thread.polls.look),
            })
            .collect();
        if let Some((id, _)) = runnable.iter().find(|(_, look)| matches!(look, Look::Looking(_))) {
            self.turns.last = Some(*id);
            self.begin_segment(*id);
            return Ok(Some(*id));
        }
        let active = runnable.iter().filter(|(_, look)| *look == Look::Active);
        let active: Vec<ThreadId> = active.map(|(id, _)| *id).collect();
        if !active.is_empty() {
            let chosen = self.draw(&active);
            self.note_occasion(chosen);
            if let Some(thread) = self.threads.get_mut(chosen) {
                thread.polls.look = Look::Active;
            }
            self.begin_segment(chosen);
            return Ok(Some(chosen));
        }
        let parked: Vec<(ThreadId, Parked, u64)> = self.parked_threads(&runnable);
        let looks = |id: ThreadId| self.threads.get(id).map_or(0, |thread| thread.polls.round.looks());
        let next = parked.iter().filter(|(id, parked, occasion)| parked.looks_so_far(*occasion) < looks(*id));
        let next = next.min_by_key(|(id, parked, occasion)| (parked.looks_so_far(*occasion), *id));
        if let Some((id, parked, occasion)) = next.copied() {
            if let Some(thread) = self.threads.get_mut(id) {
                thread.polls.look = Look::Looking(parked.looked_on(occasion));
            }
            self.turns.last = Some(id);
            self.begin_segment(id);
            return Ok(Some(id));
        }
        let parked: Vec<(ThreadId, Parked)> =
            parked.into_iter().map(|(id, parked, _)| (id, parked)).collect();
        self.pass_to_next(&parked)?;
        Ok(None)
    }

    /// Returns the parked ones of these threads, with the number of the occasion on which each looks. Threads
    /// of the library are left out if another thread of their process drives its device; otherwise their
    /// times are those of the device.
    fn parked_threads(&self, runnable: &[(ThreadId, Look)]) -> Vec<(ThreadId, Parked, u64)> {
        let process_of = |id: ThreadId| self.threads.get(id).map_or(0, |thread| thread.process);
        let all = runnable.iter().filter_map(|(id, look)| match look {
            Look::Parked(parked) => Some((*id, *parked)),
            _ => None,
        });
        let driven: BTreeSet<u32> =
            all.clone().filter(|(_, parked)| parked.drives).map(|(id, _)| process_of(id)).collect();
        let needed = all.filter_map(|(id, mut parked)| {
            let number = process_of(id);
            let occasion = self.occasion_of(id, parked.of_devices);
            if parked.of_devices {
                let devices = self.threads.processes.get(&number)?.devices;
                if devices.due_ns != UNKNOWN {
                    parked.until_ns = parked.until_ns.min(devices.due_ns);
                }
                if driven.contains(&number) {
                    return None;
                }
                if devices.looked == occasion {
                    parked.occasion = occasion;
                    parked.looks = parked.looks.max(1);
                }
            }
            Some((id, parked, occasion))
        });
        needed.collect()
    }

    /// Lets time pass to the next instant at which something can change.
    fn pass_to_next(&mut self, parked: &[(ThreadId, Parked)]) -> Result<(), WorldError> {
        let now_ns = self.time.clock.now_ns();
        let of_parked = parked.iter().map(|(_, parked)| parked.until_ns);
        let of_parked = of_parked.filter(|until_ns| *until_ns > now_ns && *until_ns != NEVER);
        let next_ns = of_parked.chain(self.next_ns()).min();
        if parked.is_empty() {
            if self.interrupt_waits() {
                return Ok(());
            }
            let Some(next_ns) = next_ns.filter(|_| !self.is_at_rest_for_long()) else {
                return Err(self.deadlock_error(describe_waits(&self.threads)));
            };
            self.time.clock.reach(next_ns);
            return Ok(());
        }
        let idle_polls =
            |(id, _): &(ThreadId, Parked)| self.threads.get(*id).map(|thread| thread.polls.idle_polls);
        let least = parked.iter().filter_map(idle_polls).min().unwrap_or(0);
        let shift = least.saturating_sub(IDLE_THRESHOLD).clamp(MIN_IDLE_SHIFT, MAX_IDLE_SHIFT);
        let most_ns = now_ns.saturating_add(IDLE_ROUND_NS << shift);
        let reached_ns = next_ns.map_or(most_ns, |next_ns| next_ns.clamp(now_ns + 1, most_ns));
        self.time.clock.reach(reached_ns);
        // A timer sends signals, which a parked thread gets when it looks.
        let timers_ns = self.time.timers.next_ns().into_iter().chain(self.time.alarms.next_ns()).min();
        if reached_ns == most_ns || timers_ns.is_some_and(|at_ns| at_ns <= reached_ns) {
            self.turns.occasions.everywhere();
            return Ok(());
        }
        let due = parked.iter().filter(|(_, parked)| parked.looks_by(reached_ns));
        let (of_devices, others): (Vec<_>, Vec<_>) = due.copied().partition(|(_, parked)| parked.of_devices);
        let hosts: BTreeSet<HostNumber> = others.iter().map(|(id, _)| self.threads.host(*id)).collect();
        hosts.into_iter().for_each(|host| self.turns.occasions.on_host(host));
        for (id, _) in of_devices {
            let process = self.threads.get(id).map(|thread| thread.process);
            process.into_iter().for_each(|process| self.turns.occasions.on_devices(process));
        }
        Ok(())
    }
}

/// Shortest computing that is measured: a stop of the thread takes some of its processor time, too.
const LEAST_COMPUTING_NS: u64 = 20_000;
/// Number of calls of the kernel in a row without a hint, all at one instant, after which they take time
/// after all: the thread may wait for another one. One that has slept meanwhile lets others go on anyway.
const MAX_FREE_CALLS: u32 = 64;
/// Longest time without a look by a thread that has not looked in vain for long, as a power of two of rounds:
/// the program may also wait for a time, which it compares with a clock.
const MIN_IDLE_SHIFT: u32 = 2;
/// Value of an idle poll of which it is not known when its answer can change, and of one that only another
/// thread can end.
pub(crate) const UNKNOWN: u64 = 0;
pub(crate) const NEVER: u64 = u64::MAX;
