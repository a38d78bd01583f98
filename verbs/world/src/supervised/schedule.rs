//! The scheduler, and the report when all threads wait for ever.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::signals::PollingThread;
use super::supervisor::Supervisor;
use super::threads::{Activity, EndlessWait, IDLE_THRESHOLD, Thread, ThreadId, Threads};
use super::waits::{CHECKS_BEFORE_WATCH, FifoEnd, FutexKey, WaitCheck, WaitFor, Woken};
use crate::error::WorldError;
use crate::options::Departure;

/// Returns a line for each thread: what it waits for, and in which call.
pub(crate) fn describe_waits(threads: &Threads) -> String {
    let mut text = String::new();
    for (id, thread) in &threads.threads {
        let program = threads.program(*id);
        let _ = write!(text, "  {program} ({}): ", thread.name);
        let _ = match &thread.activity {
            _ if thread.polls.endless == Some(EndlessWait::Work) => {
                writeln!(text, "a thread of pumice, which has nothing to do")
            }
            Activity::Waiting(call, wait) => match thread.polls.endless {
                Some(EndlessWait::CompletionEvent(descriptor)) => writeln!(
                    text,
                    "{} waits for a completion event of descriptor {descriptor} (ibv_get_cq_event)",
                    call.name()
                ),
                Some(EndlessWait::ConnectionEvent(descriptor)) => writeln!(
                    text,
                    "{} waits for an event of a connection from descriptor {descriptor} (rdma_get_cm_event)",
                    call.name()
                ),
                _ => writeln!(text, "{} waits for {}", call.name(), what(&wait.on)),
            },
            Activity::InVfork(_) => writeln!(text, "vfork waits for its child"),
            _ => writeln!(text, "can go on"),
        };
    }
    text
}

fn what(on: &WaitFor) -> String {
    match on {
        WaitFor::Time => "time".to_owned(),
        WaitFor::Futex(FutexKey::Private { address, .. }, _) => format!("a wake of the word at {address:#x}"),
        WaitFor::Futex(FutexKey::Shared { file: (_, inode), offset }, _) => {
            format!("a wake of the shared word at {offset:#x} of inode {inode}")
        }
        WaitFor::Descriptors(interests) => {
            let all: Vec<String> = interests.iter().take(8).map(|one| one.descriptor.to_string()).collect();
            format!("descriptor {}", all.join(", "))
        }
        WaitFor::Child => "a child that ends".to_owned(),
        WaitFor::Fifo(FifoEnd { writes: true, .. }, _) => "a reader of a FIFO".to_owned(),
        WaitFor::Fifo(FifoEnd { writes: false, .. }, _) => "a writer of a FIFO".to_owned(),
        WaitFor::Change(what) => (*what).to_owned(),
        WaitFor::Signal => "a signal".to_owned(),
    }
}

/// Number of turns of other threads after which a thread with idle polls has a turn all the same: the others
/// may do nothing that ends by itself, and wait for that thread.
pub(crate) const MAX_IDLE_SKIPS: u32 = 64;
/// Initial cost of a round of threads whose polls are all idle, in ns of the world.
pub(crate) const IDLE_ROUND_NS: u64 = 1_000;
/// Maximum number of times that this cost is doubled.
pub(crate) const MAX_IDLE_SHIFT: u32 = 8;

/// Maximum number of pairs of points that a run notes.
const MAX_MEETINGS: usize = 1 << 12;

/// Time for which threads that wait without end wait until the run ends, in ns of the world: longer than the
/// library needs to find out that another process has ended.
const LONG_REST_NS: u64 = 10_000_000_000;

/// Reports whether a thread that does this can continue.
pub(crate) const fn is_runnable(activity: &Activity) -> bool {
    matches!(activity, Activity::Program | Activity::Call(_) | Activity::Woken(..))
}

impl Supervisor {
    /// Counts the threads that could continue now without idle polls, and all that could continue.
    pub(crate) fn count_runnable(&self) -> (usize, usize) {
        let now_ns = self.time.clock.now_ns();
        let all = self.threads.threads.values();
        let runnable = all.filter(|thread| is_runnable(&thread.activity) && thread.rests_until_ns <= now_ns);
        runnable.fold((0, 0), |(active, runnable), thread| {
            (active + usize::from(thread.polls.idle_polls < IDLE_THRESHOLD), runnable + 1)
        })
    }

    /// Chooses the thread that continues. Advances the time if all wait.
    pub(crate) fn choose(&mut self) -> Result<ThreadId, WorldError> {
        loop {
            self.refresh_groups()?;
            self.end_if_long()?;
            self.wake();
            if self.is_exact() {
                match self.choose_exactly()? {
                    Some(id) => return Ok(id),
                    None => continue,
                }
            }
            let now_ns = self.time.clock.now_ns();
            let all = self.threads.threads.iter();
            let runnable =
                all.filter(|(_, thread)| is_runnable(&thread.activity) && thread.rests_until_ns <= now_ns);
            let runnable: Vec<(ThreadId, u32)> =
                runnable.map(|(id, thread)| (*id, thread.polls.idle_polls)).collect();
            let active: Vec<ThreadId> = runnable
                .iter()
                .filter(|(_, idle_polls)| *idle_polls < IDLE_THRESHOLD)
                .map(|(id, _)| *id)
                .collect();
            self.turns.idle_threads_skipped =
                if active.len() < runnable.len() { self.turns.idle_threads_skipped + 1 } else { 0 };
            if !active.is_empty() && self.turns.idle_threads_skipped < MAX_IDLE_SKIPS {
                return Ok(self.draw(&active));
            }
            self.turns.idle_threads_skipped = 0;
            if !active.is_empty() {
                let idle_polls: Vec<_> =
                    runnable.into_iter().filter(|(_, idle_polls)| *idle_polls >= IDLE_THRESHOLD).collect();
                return Ok(self.next_round_robin(&idle_polls));
            }
            if runnable.is_empty() {
                // A call of another thread need not have sent the signal: a socket with O_ASYNC does, too.
                if self.interrupt_waits() {
                    continue;
                }
                let next_ns = self.next_ns().filter(|_| !self.is_at_rest_for_long());
                let Some(next_ns) = next_ns else {
                    return Err(self.deadlock_error(describe_waits(&self.threads)));
                };
                self.time.clock.reach(next_ns);
                continue;
            }
            // All polls are idle: the longer they are, the more time passes between two polls.
            let least = runnable.iter().map(|(_, idle_polls)| *idle_polls).min().unwrap_or(IDLE_THRESHOLD);
            let cost_ns = IDLE_ROUND_NS << (least - IDLE_THRESHOLD).min(MAX_IDLE_SHIFT);
            let left_ns = self.next_ns().map_or(cost_ns, |next_ns| next_ns.saturating_sub(now_ns));
            self.time.clock.pass(cost_ns.min(left_ns.max(1)));
            self.wake();
            return Ok(self.next_round_robin(&runnable));
        }
    }

    /// Reports whether all threads have long waited without end, some of them in waits with time-outs, which
    /// end only to begin again. What the library does by itself, such as to look for processes that have
    /// ended, has long been done then.
    pub(crate) fn is_at_rest_for_long(&mut self) -> bool {
        let waits = |thread: &Thread| match &thread.activity {
            _ if thread.polls.endless.is_some() => true,
            Activity::Waiting(_, wait) => wait.until_ns.is_none(),
            Activity::InVfork(_) => true,
            _ => false,
        };
        let is_at_rest = self.threads.threads.values().all(waits)
            && self.time.timers.next_ns().is_none()
            && self.time.alarms.next_ns().is_none();
        let now_ns = self.time.clock.now_ns();
        self.turns.at_rest_since_ns = is_at_rest.then(|| self.turns.at_rest_since_ns.unwrap_or(now_ns));
        self.turns.at_rest_since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= LONG_REST_NS)
    }

    /// Returns the error for a run that cannot continue.
    pub(crate) fn deadlock_error(&self, who: String) -> WorldError {
        WorldError::Deadlock {
            who,
            departures: self.course.departures.clone(),
            locations: self.course.locations.clone(),
        }
    }

    /// Ends a run that has taken longer than it may.
    fn end_if_long(&self) -> Result<(), WorldError> {
        let Some(seconds) = self.options.longest_s else { return Ok(()) };
        if self.is_preparing || self.time.clock.now_ns() / 1_000_000_000 < seconds {
            return Ok(());
        }
        Err(WorldError::Long {
            seconds,
            departures: self.course.departures.clone(),
            locations: self.course.locations.clone(),
        })
    }

    /// Draws one of these: the one that ran last, unless the seed switches to another one.
    pub(crate) fn draw(&mut self, runnable: &[ThreadId]) -> ThreadId {
        if self.is_preparing {
            return runnable.first().copied().unwrap_or(ThreadId(0));
        }
        let choice = self.course.decisions.at_choice(self.turns.last);
        let plain = self.turns.last.filter(|last| runnable.contains(last)).or(runnable.first().copied());
        let switch = match &self.options.departures {
            Some(listed) => match choice.and_then(|choice| listed.get(&choice)) {
                Some(Departure::Switch(index)) => Some(*index),
                _ => None,
            },
            None if choice.is_none() => None,
            None if self.options.draws.priorities => self.highest_priority(runnable),
            None if runnable.len() < 2
                || !self.draws.switches.hits(&mut self.draws.order, self.options.draws.switch_ppm) =>
            {
                None
            }
            None => {
                // The index of another thread than the plain one.
                let index = self.draws.order.below(runnable.len() as u64 - 1) as usize;
                let plain = runnable.iter().position(|one| Some(*one) == plain).unwrap_or(runnable.len());
                u32::try_from(index + usize::from(index >= plain)).ok()
            }
        };
        let switched = switch.and_then(|index| runnable.get(index as usize).copied().zip(Some(index)));
        let chosen = match (switched, plain) {
            (Some((chosen, index)), plain) if Some(chosen) != plain => {
                let number = choice.unwrap_or_default();
                let name = |id: ThreadId| self.threads.get(id).map_or("", |thread| thread.name.as_str());
                let instead = plain.map_or("", name);
                let words =
                    format!("{} went on instead of {instead} (event {})", name(chosen), self.log.events);
                self.course.departures.insert(number, (Departure::Switch(index), words));
                self.locate(plain.unwrap_or(chosen), number);
                chosen
            }
            _ => plain.unwrap_or(ThreadId(0)),
        };
        self.note_meeting(chosen);
        self.turns.last = Some(chosen);
        chosen
    }

    /// Returns the index of the thread with the highest priority. At points that the seed draws, the thread
    /// that ran last falls below all others before.
    fn highest_priority(&mut self, runnable: &[ThreadId]) -> Option<u32> {
        let falls = runnable.len() > 1
            && self.draws.switches.hits(&mut self.draws.order, self.options.draws.switch_ppm);
        if let Some(last) = self.turns.last.filter(|_| falls) {
            self.draws.priorities.lower(last);
        }
        self.draws.priorities.highest(runnable).and_then(|index| u32::try_from(index).ok())
    }

    /// Notes that a thread continues after another one, with the last point of each.
    fn note_meeting(&mut self, chosen: ThreadId) {
        let point = |id: ThreadId| self.threads.get(id).map_or(0, |thread| thread.last_point);
        if let Some(last) =
            self.turns.last.filter(|last| *last != chosen && self.course.met.len() < MAX_MEETINGS)
        {
            self.course.met.insert((point(last), point(chosen)));
        }
    }

    /// Returns the next of these in turn after the one that ran last.
    fn next_round_robin(&mut self, runnable: &[(ThreadId, u32)]) -> ThreadId {
        let after = |(id, _): &&(ThreadId, u32)| self.turns.last.is_none_or(|last| *id > last);
        let next = runnable.iter().find(after).or(runnable.first()).map_or(ThreadId(0), |(id, _)| *id);
        self.turns.last = Some(next);
        next
    }

    /// Returns the time of the next event that happens without any thread's action.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let now_ns = self.time.clock.now_ns();
        let of_threads = self.threads.threads.values().filter_map(|thread| match &thread.activity {
            Activity::Waiting(_, wait) => wait.until_ns,
            Activity::InVfork(_) => None,
            _ => Some(thread.rests_until_ns).filter(|until_ns| *until_ns > now_ns),
        });
        of_threads.chain(self.time.timers.next_ns()).chain(self.time.alarms.next_ns()).min()
    }

    /// Ends the waits whose condition is met.
    fn wake(&mut self) {
        self.network.delivery.settle();
        let now_ns = self.time.clock.now_ns();
        if self.time.timers.fire(now_ns) {
            self.turns.changes += 1;
        }
        if self.send_due_signals() {
            self.turns.changes += 1;
            self.interrupt_waits();
        }
        let changes = self.turns.changes;
        let check = WaitCheck { change: changes, at_ns: now_ns, is_complete: true };
        if self.turns.last_check == check {
            return;
        }
        let has_signal_files = self.files.has_signal_files;
        // The supervisor must not poll a descriptor that may have one for signals in it.
        let is_watched = self.turns.last_check.change != changes && !has_signal_files;
        let ready = if is_watched { self.files.watches.ready() } else { BTreeSet::new() };
        self.turns.last_check = check;
        for (id, thread) in &mut self.threads.threads {
            let polling_thread = PollingThread::new(thread.tracee, has_signal_files);
            let Activity::Waiting(call, wait) = &mut thread.activity else { continue };
            let is_over = wait.until_ns.is_some_and(|until_ns| until_ns <= now_ns);
            let is_ready = match &wait.on {
                WaitFor::Descriptors(interests) if wait.checked_at_change != changes => {
                    wait.checked_at_change = changes;
                    wait.checks += 1;
                    let process = self.files.descriptors.get(&thread.process);
                    if has_signal_files {
                        wait.watch = None;
                    } else if let Some(process) = process.filter(|_| wait.checks == CHECKS_BEFORE_WATCH) {
                        let asked = interests.iter().filter(|interest| interest.descriptor >= 0);
                        let files = asked.map(|one| (process.get(one.descriptor), one.events));
                        wait.watch = self.files.watches.watch(id.0, files);
                    }
                    match &wait.watch {
                        Some(_) if wait.checks > CHECKS_BEFORE_WATCH => ready.contains(&id.0),
                        _ => process.is_none_or(|process| process.any_is_ready(polling_thread, interests)),
                    }
                }
                WaitFor::Change(_) if wait.checked_at_change != changes => {
                    wait.checked_at_change = changes;
                    true
                }
                _ => false,
            };
            if is_ready || is_over {
                let why = if is_ready { Woken::Ready } else { Woken::TimedOut };
                thread.activity = Activity::Woken(*call, why);
                thread.polls.idle_polls = 0;
            }
        }
    }
}
