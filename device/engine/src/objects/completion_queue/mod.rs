//! Completion queues: the engine adds completions, which the application polls.

mod arming;
mod polling;
mod ring;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pumice_model::event::Subscribers;
use pumice_model::shuffle::Shuffle;
use pumice_platform::clock::Clock;
use pumice_platform::error::ResourceError;
use pumice_platform::spin_lock::{SpinLock, SpinLockGuard};
use pumice_platform::table::Handle;
use pumice_transport::types::{WcStatus, WorkCompletion};

use crate::objects::armed_queues::ArmedQueues;
use crate::objects::completion_channel::CompletionChannel;
use crate::objects::freed_send_slots::FreedSendSlots;
use crate::objects::held_completions::HeldCompletions;
use crate::objects::paced_events::{EventPacer, PacedEvents};
use pumice_platform::event_queue::EventAccount;

pub use ring::CqPushOutcome;
use ring::{ArmedFor, CqState, QueuedCompletion};

/// State that all completion queues of a device share.
#[derive(Debug, Clone, Default)]
pub struct CqCommon {
    /// Counts of send requests that were polled, whose entries are free.
    pub freed_send_slots: Arc<FreedSendSlots>,
    /// Number of armed queues.
    pub armed: Arc<ArmedQueues>,
    /// Subscribers of events.
    pub events: Arc<Subscribers>,
    /// Source of choices that the specification leaves open, if the schedule is shuffled.
    pub shuffle: Option<Arc<Shuffle>>,
    /// Delays of events, if a fault plan has some.
    pub pacer: Option<EventPacer>,
}

/// A completion queue. The engine adds completions; the application polls and arms, without the engine's
/// lock.
#[derive(Debug)]
pub struct CompletionQueue {
    handle: Handle,
    cookie: u64,
    /// Number of entries in the ring, by which an empty queue is recognised without the lock.
    pending: AtomicUsize,
    failed: AtomicBool,
    fires_late: bool,
    /// A seed decides what is polled next.
    shuffled: bool,
    /// A completion is polled in its turn and as it was added: none is lost, and none has a time.
    is_plain: bool,
    /// The application found the queue empty when it last polled, and got no event since.
    seen_empty: AtomicBool,
    state: SpinLock<CqState>,
    common: CqCommon,
    channel: Option<Arc<CompletionChannel>>,
    account: Arc<EventAccount>,
    async_account: Arc<EventAccount>,
    /// Clock that stamps completions, if that was asked for: reading it costs as much as storing one.
    clock: Option<Clock>,
}

impl CompletionQueue {
    /// Creates an empty queue of exactly `depth` entries; the caller has checked `depth` against its limit.
    ///
    /// # Errors
    /// Fails with `NoMemory` if there is none for the ring.
    pub fn new(
        handle: Handle,
        depth: u32,
        cookie: u64,
        channel: Option<Arc<CompletionChannel>>,
        common: CqCommon,
        clock: Option<Clock>,
        fires_late: bool,
    ) -> Result<CompletionQueue, ResourceError> {
        let state = CqState::new(depth as usize)?;
        if let Some(channel) = &channel {
            channel.attach(&common.events);
        }
        Ok(CompletionQueue {
            handle,
            cookie,
            pending: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            fires_late,
            shuffled: false,
            is_plain: clock.is_none(),
            seen_empty: AtomicBool::new(false),
            state: SpinLock::new(state),
            common,
            channel,
            account: Arc::new(EventAccount::new()),
            async_account: Arc::new(EventAccount::new()),
            clock,
        })
    }

    /// Makes the queue not fail when it is full: the oldest completion is overwritten
    /// (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`).
    pub fn overwriting(mut self) -> CompletionQueue {
        let state = self.state.get_mut();
        state.lost = Some(Box::default());
        self.is_plain = false;
        self
    }

    /// Applies what the device's [`CqCommon`] decides about the order of the queue's completions and about
    /// its events. `made` is how many queues were made before; `counted` how many of those that plans count,
    /// if they count this one.
    ///
    /// # Errors
    /// Fails with `NoMemory`.
    pub fn decided(mut self, made: u32, counted: Option<u32>) -> Result<CompletionQueue, ResourceError> {
        let CqCommon { shuffle, pacer, .. } = self.common.clone();
        if let Some(shuffle) = shuffle {
            self.fires_late &= !shuffle.arms_plainly();
            self = self.shuffled(shuffle, made)?;
        }
        if let Some((pacer, ordinal)) = pacer.zip(counted) {
            self.pace(&pacer, ordinal);
        }
        Ok(self)
    }

    /// Gives the queue an order of completions that a schedule draws; `ordinal` is that of this queue on its
    /// device.
    ///
    /// # Errors
    /// Fails with `NoMemory`.
    fn shuffled(mut self, shuffle: Arc<Shuffle>, ordinal: u32) -> Result<CompletionQueue, ResourceError> {
        let state = self.state.get_mut();
        let mut held = HeldCompletions::new(shuffle, ordinal);
        held.reserve(state.depth)?;
        state.held = Some(Box::new(held));
        self.shuffled = true;
        self.is_plain = false;
        Ok(self)
    }

    /// Lets a fault plan delay the queue's events from now on; `ordinal` is that of this queue on its device.
    pub fn pace(&self, pacer: &EventPacer, ordinal: u32) {
        let paced = || Box::new(PacedEvents::new(pacer.clone(), ordinal));
        self.lock().paced.get_or_insert_with(paced);
    }

    /// Returns the number of entries that fit.
    pub fn depth(&self) -> u32 {
        self.lock().depth as u32
    }

    /// Reports whether the queue overran: its completions can be polled, and no more are added.
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the handle of this queue in its device.
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the application's cookie for this queue, which is in its events.
    pub const fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Returns the channel that this queue reports to.
    pub const fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref()
    }

    /// Acknowledges `count` events got from the channel.
    pub fn ack_events(&self, count: u64) {
        self.account.ack(count);
    }

    /// Returns how many events were got from the channel and not acknowledged.
    pub fn unacked_events(&self) -> u64 {
        self.account.unacked()
    }

    /// Returns the account of this queue's asynchronous events (CQ_ERR).
    pub const fn async_account(&self) -> &Arc<EventAccount> {
        &self.async_account
    }

    /// Blocks until all completion events of the queue are acknowledged, but no longer than `patience`.
    /// Returns true if they are.
    pub fn wait_acked_for(&self, patience: Duration) -> bool {
        self.account.wait_all_acked_for(patience)
    }

    /// Blocks until all completion events and asynchronous events of the queue are acknowledged:
    /// the last step of destroying it. Do not hold the engine's lock.
    pub fn wait_all_acked(&self) {
        //= statement:35
        //| A destroyed queue waits until all events that were taken are acknowledged.
        self.account.wait_all_acked();
        self.async_account.wait_all_acked();
    }

    /// Makes the queue fail as by an overrun.
    pub fn fail(&self) {
        let mut state = self.lock();
        self.failed.store(true, Ordering::Release);
        if let Some(held) = &mut state.held {
            held.release();
        }
    }

    /// Adds a completion and fires the channel if it is armed for it. `solicited` is the
    /// solicited-event bit of a received message.
    #[cfg(test)]
    pub(crate) fn push(&self, completion: WorkCompletion, released: u32, solicited: bool) -> CqPushOutcome {
        self.push_of(0, &completion, released, solicited)
    }

    /// Adds a completion as `push` does, of the queue pair with this ordinal.
    #[inline]
    pub fn push_of(
        &self,
        ordinal: u32,
        completion: &WorkCompletion,
        released: u32,
        solicited: bool,
    ) -> CqPushOutcome {
        let mut state = self.lock();
        if self.failed.load(Ordering::Relaxed) {
            //= statement:36
            //| A queue that has overrun takes nothing more.
            return CqPushOutcome::InError;
        }
        let mut stored = CqPushOutcome::Stored;
        if state.ring.len() >= state.depth {
            let Some(overwrote) = state.overwrite() else {
                self.failed.store(true, Ordering::Release);
                if let Some(held) = &mut state.held {
                    held.release();
                }
                return CqPushOutcome::Overrun;
            };
            stored = overwrote;
        }
        let at_ns = self.clock.as_ref().map_or(0, Clock::now_ns);
        state.ring.push_back(QueuedCompletion { completion: *completion, released, at_ns });
        self.pending.store(state.ring.len(), Ordering::Release);
        //= man:ibv_req_notify_cq
        //| A completion is solicited if its message was, or if it failed.
        let solicited = completion.status != WcStatus::Success || (solicited && completion.opcode.is_recv());
        state.solicited |= solicited;
        if state.held.is_some() {
            state.hold(ordinal, completion);
        }
        let wakes = match state.armed {
            ArmedFor::No => false,
            ArmedFor::Any => true,
            //= statement:33
            //| A queue that is armed for solicited completions fires for those and for errors only.
            ArmedFor::Solicited => solicited,
        };
        if wakes && let woken @ CqPushOutcome::EventBy(_) = self.wake(&mut state) {
            return woken;
        }
        stored
    }

    /// Changes the number of entries that fit; order and content stay.
    ///
    /// # Errors
    /// Fails with `Invalid` if more than `depth` completions wait to be polled, and with `NoMemory`.
    pub fn resize(&self, depth: u32) -> Result<(), ResourceError> {
        let mut state = self.lock();
        let waiting = state.ring.len();
        //= man:ibv_resize_cq
        //| A queue cannot become smaller than the number of completions that wait in it.
        if (depth as usize) < waiting {
            return Err(ResourceError::invalid(format!(
                "depth {depth} of the completion queue is less than the {waiting} completions that wait in \
                it; poll first"
            )));
        }
        state.resize(depth as usize)
    }

    /// Removes the unpolled completions of a queue pair that was destroyed or reset.
    pub fn remove_of(&self, qpn: u32) {
        let mut state = self.lock();
        state.remove_of(qpn);
        state.solicited &= !state.ring.is_empty();
        self.pending.store(state.ring.len(), Ordering::Release);
    }

    /// Keeps the unpolled completions of a queue pair that was destroyed or reset, but without effect on a
    /// send queue: polling them frees no entries of the send queue that then has its number.
    pub fn orphan(&self, qpn: u32) {
        self.lock().orphan(qpn);
    }

    /// Detaches the queue, which is destroyed, from its channel: events that no thread has taken vanish.
    pub fn detach_channel(&self) {
        self.disarm(&mut self.lock());
        if let Some(channel) = &self.channel {
            //= statement:35
            //| Events that were not taken vanish with the queue.
            channel.detach(&self.account);
        }
    }

    #[inline]
    fn lock(&self) -> SpinLockGuard<'_, CqState> {
        // The state is consistent between the operations on it, so a panic elsewhere does not spoil it.
        self.state.lock()
    }
}

#[cfg(test)]
mod tests;
