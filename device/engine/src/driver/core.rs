//! The engine behind its lock, and the application's side of driving it.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::objects::armed_queues::ArmedQueues;
use crate::objects::completion_channel::{CompletionChannel, CqEvent};
use crate::objects::completion_queue::CompletionQueue;
use pumice_model::counters::Counters;
use pumice_model::event::async_event::AsyncEventQueue;
use pumice_platform::clock::{Clock, process_time_ns};
use pumice_platform::error::ResourceError;
use pumice_platform::outside;
use pumice_platform::outside::event_fd::EventFd;
use pumice_platform::outside::fork_generation::Generation;
use pumice_platform::outside::system_call::wait_readable;
use pumice_platform::outside::world::EndlessWait;

use pumice_transport::types::WorkCompletion;

use super::handover::Handover;
use super::policy::{EmptyPoll, FOREVER_NS, PendingWork, Yielded};
use crate::engine::{Acknowledge, Engine, LanePoll};
use crate::resources::{MappingCheckPolicy, Presence};

pub(crate) struct Core {
    /// The process that opened the device: a forked child has a copy of the lock, which may be locked.
    generation: Generation,
    engine: Mutex<Engine>,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    pub(crate) async_events: Arc<AsyncEventQueue>,
    pub(crate) armed_queues: Arc<ArmedQueues>,
    pub(crate) presence: Arc<Presence>,
    /// The signals between application threads and the background thread.
    pub(crate) handover: Handover<AtomicU64, EventFd>,
}

/// Result of driving the engine for a thread that found its completion queue empty.
pub(crate) enum CqPoll {
    /// The oldest completion of the queue was stored for the thread; it is not in the queue.
    Delivered,
    /// Nothing: the port is quiet, and one of the next polls does what can wait.
    PassedOver,
    /// The completions are in the queue, if there are any. `progress`: whether anything arrived.
    Drove { progress: bool },
}

/// The error of a forked child that uses the device of its parent.
pub(crate) struct Inherited;

impl Core {
    pub(crate) fn new(engine: Engine, clock: Clock) -> Result<Core, ResourceError> {
        Ok(Core {
            generation: Generation::own(),
            counters: Arc::clone(&engine.resources.port.counters),
            async_events: Arc::clone(&engine.resources.port.async_events),
            armed_queues: Arc::clone(&engine.resources.completions.cq_common.armed),
            presence: Arc::clone(&engine.resources.port.presence),
            engine: Mutex::new(engine),
            clock,
            handover: Handover::new(EventFd::new()?),
        })
    }

    /// Locks the engine. A thread that panicked while it held the lock has lost no more than a packet, so a
    /// poisoned lock is taken as well.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether this process opened the device, and is not a fork of the one that did.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.generation.is_own()
    }

    /// Locks the engine as [`Core::lock`] does.
    ///
    /// # Errors
    /// [`Inherited`], in a forked child.
    #[inline]
    pub(crate) fn lock_own(&self) -> Result<MutexGuard<'_, Engine>, Inherited> {
        if self.is_own() { Ok(self.lock()) } else { Err(Inherited) }
    }

    /// Locks the engine, unless another thread holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Engine>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the engine because the process exits; `None` if another thread keeps it for 50 ms. A thread that
    /// drives returns it within microseconds, but the thread that exits may be the one that holds it, in a
    /// signal handler.
    pub(crate) fn lock_at_exit(&self) -> Option<MutexGuard<'_, Engine>> {
        const TRIES: u32 = 50;
        const PAUSE: Duration = Duration::from_millis(1);
        for _ in 0..TRIES {
            if let Some(engine) = self.try_lock() {
                return Some(engine);
            }
            outside::sleep(PAUSE);
        }
        None
    }

    /// Drives once for an application thread that found its queue empty, unless another thread drives. The
    /// next completion of the queue is stored in `first` at once, if that is possible. The thread takes
    /// `wanted` completions now, if there are so many.
    pub(crate) fn poll(&self, cq: &CompletionQueue, first: &mut WorkCompletion, wanted: usize) -> CqPoll {
        self.handover.polled();
        let Some(mut engine) = self.try_lock() else { return CqPoll::Drove { progress: false } };
        // The time of a world goes on by polls that find nothing.
        let may_pass_over = self.handover.polls_are_dense() && !outside::world::is_in_world();
        if may_pass_over && engine.is_passed_over() {
            return CqPoll::PassedOver;
        }
        let now_ns = self.clock.now_ns();
        let index = cq.handle().index;
        let checks = MappingCheckPolicy::DatagramsNotPolled { cq: index };
        engine.resources.completions.direct.begin(index);
        engine.expect_polls(wanted);
        let received = self.step(&mut engine, now_ns, Acknowledge::Now, checks);
        if !received {
            engine.transmit_waiting_responses(now_ns, MappingCheckPolicy::Datagrams);
        }
        // The application may do something else now. If the background thread sleeps, no thread does what
        // this step has left for later: the packets that would have woken it have been taken from the port.
        self.note_deadline(&engine, now_ns);
        match engine.end_direct_delivery(cq, first) {
            true => CqPoll::Delivered,
            false => CqPoll::Drove { progress: received },
        }
    }

    /// Receives, runs timers, sends. Acknowledgements wait if the application has completions to process
    /// first, else `acknowledge` decides. Returns whether anything arrived.
    fn step(
        &self,
        engine: &mut Engine,
        now_ns: u64,
        otherwise: Acknowledge,
        checks: MappingCheckPolicy,
    ) -> bool {
        let received = match engine.poll_by_lane(now_ns, checks) {
            LanePoll::Done(received) => {
                if received {
                    outside::world::progressed();
                }
                return received;
            }
            LanePoll::Looked(received) => received,
            LanePoll::MayHaveMore => {
                engine.receive(now_ns, checks);
                true
            }
            LanePoll::NotHere => engine.receive(now_ns, checks),
        };
        let is_due = engine.is_due(now_ns);
        if is_due {
            engine.expire(now_ns, checks);
        }
        if received || is_due {
            outside::world::progressed();
        }
        self.send(engine, now_ns, otherwise, checks, received);
        received
    }

    /// Sends what a step has to send. Returns whether everything has left that would leave in another turn.
    fn send(
        &self,
        engine: &mut Engine,
        now_ns: u64,
        otherwise: Acknowledge,
        checks: MappingCheckPolicy,
        received: bool,
    ) -> bool {
        if !received && !engine.has_backlog() {
            return false;
        }
        let completes = engine.resources.completions.new_completions;
        let acknowledge = if completes { Acknowledge::AfterCompletions } else { otherwise };
        let left = engine.transmit(now_ns, acknowledge, checks);
        !completes && !left && engine.is_settled() && !engine.has_backlog()
    }

    /// Receives, runs timers and sends everything that is due. Returns whether anything happened.
    pub(crate) fn drive(&self) -> bool {
        let mut engine = self.lock();
        let now_ns = self.clock.now_ns();
        self.drive_locked(&mut engine, now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams)
    }

    /// Drives as [`Core::drive`] does, before something is destroyed: its memory may be unmapped already.
    pub(crate) fn drive_out(&self) {
        let mut engine = self.lock();
        engine.resources.drain_stores();
        let now_ns = self.clock.now_ns();
        self.drive_locked(&mut engine, now_ns, Acknowledge::Now, MappingCheckPolicy::Everything);
    }

    /// Drives the engine once; requests that a shuffled schedule delays leave and complete.
    pub(crate) fn drive_held(&self) {
        self.lock().end_holding();
        self.drive_out();
        self.lock().resources.end_held_sends();
    }

    pub(crate) fn drive_locked(
        &self,
        engine: &mut Engine,
        now_ns: u64,
        acknowledge: Acknowledge,
        checks: MappingCheckPolicy,
    ) -> bool {
        let due = engine.is_due(now_ns);
        let received = engine.receive(now_ns, checks);
        // A receive that found nothing has made nothing due, except perhaps in the port.
        let may_be_due = due || !engine.was_last_receive_empty();
        debug_assert!(may_be_due || engine.own_deadline_ns().is_none_or(|at_ns| at_ns > now_ns));
        if may_be_due && engine.is_due(now_ns) {
            engine.expire(now_ns, checks);
        }
        if received || due {
            outside::world::progressed();
        }
        let has_sent_all = self.send(engine, now_ns, acknowledge, checks, received);
        let left = !has_sent_all && engine.transmit(now_ns, acknowledge, checks);
        received || left || due
    }

    /// Handles an empty poll: lets other processes of this core run, if the policy says so.
    pub(crate) fn idle(&self) {
        if self.clock.is_virtual() {
            return;
        }
        let EmptyPoll::Yield { observe } = self.handover.found_nothing() else { return };
        let busy_before_ns = observe.then(process_time_ns);
        let before_ns = self.clock.now_ns();
        outside::idle();
        let took_ns = self.clock.now_ns().saturating_sub(before_ns);
        // This thread's own part is only the switch from it and back.
        let others_ns = busy_before_ns.map(|before_ns| process_time_ns().saturating_sub(before_ns));
        self.handover.yielded(Yielded { took_ns, others_ns });
    }

    /// Wakes the background thread if it would sleep past what a call leaves in the engine.
    pub(crate) fn note_deadline(&self, engine: &Engine, now_ns: u64) {
        self.handover.leave(now_ns, || self.left(engine));
    }

    /// Returns what the engine has to do later.
    pub(crate) fn left(&self, engine: &Engine) -> PendingWork {
        PendingWork { deadline_ns: engine.deadline_ns(), backlog: engine.has_backlog() }
    }

    /// Returns when driving the engine can find something although nothing arrives, in ns of its clock.
    pub(crate) fn next_change_ns(&self) -> Option<u64> {
        let left = self.left(&self.lock());
        if left.backlog { Some(self.clock.now_ns()) } else { left.deadline_ns }
    }

    /// Blocks until `channel` has an event, and drives the engine meanwhile; with `interruptible` a signal
    /// handler that has run ends the wait as well. Such a wait may be a slice of a longer one, and its caller
    /// tells the supervisor of a world when that one ends.
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
        self.handover.wait_begins();
        let event = self.wait_event_until(channel, end_ns, interruptible);
        self.handover.wait_ends();
        if !interruptible {
            outside::world::waits_without_end(None);
        }
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
                self.step(&mut engine, now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
                if let Some(event) = channel.try_event() {
                    self.note_deadline(&engine, now_ns);
                    return Some(event);
                }
                engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
                fds.clear();
                fds.extend(engine.descriptors());
                if outside::world::is_in_world() {
                    let event = EndlessWait::CompletionEvent(channel.as_fd().as_raw_fd());
                    let is_endless = engine.is_at_rest() && (interruptible || end_ns == FOREVER_NS);
                    outside::world::waits_without_end(is_endless.then_some(event));
                }
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
