//! The engine behind its lock, and the rules by which threads take turns driving it.
//!
//! **Invariant**: nobody waits on the port's descriptors while an application thread polls. A second
//! waiter would be woken by every packet and fight for the lock (measured: p99 of 2 ms on two cores).

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::counters::Counters;
use crate::engine::{Acknowledge, Engine};
use crate::ground::clock::Clock;
use crate::ground::error::ResourceError;
use crate::objects::armed_queues::ArmedQueues;
use crate::objects::async_event::AsyncEventQueue;
use crate::objects::completion_channel::{CompletionChannel, CqEvent};
use crate::port::wait_readable;
use crate::resources::Trust;
use crate::system::event_fd::EventFd;

/// A yield that took longer than this let somebody else run.
const LONG_YIELD_NS: u64 = 2_000;
/// Empty polls between two yields while nobody else wants the processor.
const LONGEST_YIELD_INTERVAL: u32 = 32;
/// How long a thread sleeps when nothing has a deadline.
const FOREVER_NS: u64 = u64::MAX;

pub(crate) struct Core {
    engine: Mutex<Engine>,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    pub(crate) async_events: Arc<AsyncEventQueue>,
    pub(crate) armed_queues: Arc<ArmedQueues>,
    /// Polls of empty queues so far: while it moves, the application drives.
    pub(crate) polls: AtomicU64,
    /// Empty polls since the last yield, and after how many the next is due.
    empty_polls: AtomicU32,
    yield_interval: AtomicU32,
    /// Application threads that drive while they wait for an event.
    pub(crate) waiters: AtomicU32,
    /// The application waited for an event by driving, lately.
    pub(crate) waits_here: AtomicBool,
    /// A queue was armed, or something needs the background thread before its next tick.
    pub(crate) takeover: AtomicBool,
    /// Until when the background thread sleeps, in ns; 0 while it does not.
    pub(crate) sleeping_until_ns: AtomicU64,
    pub(crate) stopping: AtomicBool,
    pub(crate) wake: EventFd,
    /// `wake` is readable, or about to be.
    woken: AtomicBool,
}

impl Core {
    pub(crate) fn new(engine: Engine, clock: Clock) -> Result<Core, ResourceError> {
        Ok(Core {
            counters: Arc::clone(&engine.resources.counters),
            async_events: Arc::clone(&engine.resources.async_events),
            armed_queues: Arc::clone(&engine.resources.cq_common.armed),
            engine: Mutex::new(engine),
            clock,
            polls: AtomicU64::new(0),
            empty_polls: AtomicU32::new(0),
            yield_interval: AtomicU32::new(1),
            waiters: AtomicU32::new(0),
            waits_here: AtomicBool::new(false),
            takeover: AtomicBool::new(false),
            sleeping_until_ns: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            wake: EventFd::new()?,
            woken: AtomicBool::new(false),
        })
    }

    /// The engine. A thread that panicked inside cannot have left more than a lost packet behind,
    /// so its lock is taken over.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine, unless somebody else has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Engine>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// An application thread found its queue (of this index) empty: drive once, if nobody else does. True if
    /// anything arrived.
    pub(crate) fn poll(&self, cq: u32) -> bool {
        self.note_activity();
        let Some(mut engine) = self.try_lock() else { return false };
        let now_ns = self.clock.now_ns();
        let received =
            engine.trusting(Trust::Polled(cq), |engine| self.step(engine, now_ns, Acknowledge::Now));
        if !received {
            engine.transmit_waiting_responses(now_ns);
        }
        // The application may do something else now, and what this step has left for later is nobody's if the background
        // thread sleeps: the packets that would have woken it have been taken from the port.
        self.note_deadline(&engine, now_ns);
        received
    }

    /// The application drives. A lost update by a concurrent call is harmless: the number only has
    /// to move.
    fn note_activity(&self) {
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Receives, runs timers, sends. Acknowledgements wait if the application has completions to
    /// look at first, else they leave as told.
    fn step(&self, engine: &mut Engine, now_ns: u64, otherwise: Acknowledge) -> bool {
        engine.resources.new_completions = false;
        let received = engine.receive(now_ns);
        if engine.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            engine.expire(now_ns);
        }
        if received || engine.has_backlog() {
            let acknowledge =
                if engine.resources.new_completions { Acknowledge::AfterCompletions } else { otherwise };
            engine.transmit(now_ns, acknowledge);
        }
        received
    }

    /// Receives, runs timers and sends everything that is owed. True if anything happened.
    pub(crate) fn drive(&self) -> bool {
        let mut engine = self.lock();
        let now_ns = self.clock.now_ns();
        self.drive_locked(&mut engine, now_ns, Acknowledge::Now)
    }

    /// As [`Core::drive`], before something is destroyed: its memory may be gone already.
    pub(crate) fn drive_out(&self) {
        let mut engine = self.lock();
        let now_ns = self.clock.now_ns();
        engine.trusting(Trust::Nothing, |engine| self.drive_locked(engine, now_ns, Acknowledge::Now));
    }

    pub(crate) fn drive_locked(&self, engine: &mut Engine, now_ns: u64, acknowledge: Acknowledge) -> bool {
        let due = engine.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns);
        let received = self.step(engine, now_ns, acknowledge);
        let left = engine.transmit(now_ns, acknowledge);
        received || left || due
    }

    /// Drives if nobody else does, while the application is believed to; whether packets lay waiting.
    pub(crate) fn look(&self) -> bool {
        let Ok(mut engine) = self.engine.try_lock() else { return false };
        let before = engine.received_trains();
        let now_ns = self.clock.now_ns();
        self.drive_locked(&mut engine, now_ns, Acknowledge::WithReply);
        engine.received_trains() != before
    }

    /// Whether messages that nobody acknowledges would find no receive request; false if somebody else drives.
    pub(crate) fn short_of_receives(&self) -> bool {
        self.engine.try_lock().is_ok_and(|mut engine| engine.resources.short_of_receives())
    }

    /// An empty poll that found nothing: let other processes of this core run, if there are any.
    /// Spinning would keep the very process from running whose packet is awaited; yielding for
    /// nothing costs as much as a poll. A yield that took long shows that somebody else ran.
    pub(crate) fn idle(&self) {
        if self.clock.is_virtual() {
            return;
        }
        let polls = self.empty_polls.load(Ordering::Relaxed).wrapping_add(1);
        self.empty_polls.store(polls, Ordering::Relaxed);
        let interval = self.yield_interval.load(Ordering::Relaxed);
        if polls < interval {
            return;
        }
        self.empty_polls.store(0, Ordering::Relaxed);
        let before_ns = self.clock.now_ns();
        std::thread::yield_now();
        let taken_ns = self.clock.now_ns().saturating_sub(before_ns);
        let next = if taken_ns > LONG_YIELD_NS { 1 } else { (interval * 2).min(LONGEST_YIELD_INTERVAL) };
        self.yield_interval.store(next, Ordering::Relaxed);
    }

    /// A completion queue was armed: the application is about to sleep. If it has been sleeping in
    /// [`Core::wait_event`] it will do so again and drive from there; if not, the background thread
    /// has to take over at once.
    pub(crate) fn armed(&self) {
        if !self.waits_here.load(Ordering::Relaxed) {
            self.call_background();
        }
    }

    /// Wakes the background thread now rather than at its next tick.
    pub(crate) fn call_background(&self) {
        self.takeover.store(true, Ordering::Release);
        self.wake_background();
    }

    /// Makes the wake descriptor readable, once until it is cleared.
    pub(crate) fn wake_background(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.wake.set();
        }
    }

    /// Makes the wake descriptor unreadable; a look at a flag unless somebody woke the thread.
    pub(crate) fn clear_wake(&self) {
        if self.woken.load(Ordering::Acquire) {
            self.wake.clear();
            self.woken.store(false, Ordering::Release);
        }
    }

    /// A call made a deadline: the background thread must not sleep past it.
    pub(crate) fn note_deadline(&self, engine: &Engine, now_ns: u64) {
        let sleeping_until_ns = self.sleeping_until_ns.load(Ordering::Acquire);
        if sleeping_until_ns <= now_ns {
            return;
        }
        let busy = engine.has_backlog();
        if busy || engine.deadline_ns().is_some_and(|at_ns| at_ns < sleeping_until_ns) {
            self.sleeping_until_ns.store(0, Ordering::Release);
            self.wake_background();
        }
    }

    /// Blocks until `channel` has an event, driving the engine meanwhile; `interruptible`: or until a
    /// signal handler has run.
    pub(crate) fn wait_event(
        &self,
        channel: &CompletionChannel,
        timeout: Option<Duration>,
        interruptible: bool,
    ) -> Option<CqEvent> {
        if let Some(event) = channel.try_event() {
            return Some(event);
        }
        let start_ns = self.clock.now_ns();
        let end_ns = timeout.map_or(FOREVER_NS, |timeout| start_ns.saturating_add(timeout.as_nanos() as u64));
        self.waits_here.store(true, Ordering::Relaxed);
        self.waiters.fetch_add(1, Ordering::AcqRel);
        let event = self.wait_event_until(channel, end_ns, interruptible);
        self.note_activity();
        self.waiters.fetch_sub(1, Ordering::AcqRel);
        event
    }

    fn wait_event_until(
        &self,
        channel: &CompletionChannel,
        end_ns: u64,
        interruptible: bool,
    ) -> Option<CqEvent> {
        let mut fds: Vec<RawFd> = Vec::new();
        let mut woken = false;
        loop {
            let now_ns = self.clock.now_ns();
            let sleep_ns = {
                let mut engine = self.lock();
                if woken {
                    engine.woken();
                }
                self.step(&mut engine, now_ns, Acknowledge::Now);
                if let Some(event) = channel.try_event() {
                    self.note_deadline(&engine, now_ns);
                    return Some(event);
                }
                engine.transmit(now_ns, Acknowledge::Now);
                fds.clear();
                fds.extend(engine.port.descriptors());
                let deadline_ns = engine.deadline_ns().unwrap_or(FOREVER_NS).min(end_ns);
                if engine.has_backlog() { 0 } else { deadline_ns.saturating_sub(now_ns) }
            };
            if now_ns >= end_ns {
                return None;
            }
            fds.push(channel.as_fd().as_raw_fd());
            let timeout = (sleep_ns < FOREVER_NS / 2).then(|| Duration::from_nanos(sleep_ns));
            // A failing poll(2) turns this into polling, which still makes progress.
            woken = wait_readable(&fds, None, timeout).unwrap_or(false);
            let early = timeout
                .is_none_or(|timeout| self.clock.now_ns().saturating_sub(now_ns) < timeout.as_nanos() as u64);
            if interruptible && !woken && early && channel.queued() == 0 {
                return None;
            }
        }
    }
}
