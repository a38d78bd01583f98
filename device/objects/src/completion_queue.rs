//! Completion queues.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fnv::FnvHashMap;
use pumice_events::{Event, Subscribers, Topics};
use pumice_faults::shuffle::Shuffle;
use pumice_ground::brief_lock::{Brief, BriefLock};
use pumice_ground::clock::Clock;
use pumice_ground::error::ResourceError;
use pumice_ground::table::Handle;
use pumice_transport::types::{WcStatus, WorkCompletion};

use crate::armed_queues::ArmedQueues;
use crate::completion_channel::{CompletionChannel, CqEvent};
use crate::event_account::EventAccount;
use crate::held_completions::{HeldCompletions, WorkQueue};
use crate::paced_events::{EventPacer, Paced, PacedEvents};
use crate::polled_sends::PolledSends;

/// What became of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// It is in the queue.
    Stored,
    /// It is in the queue, and its event comes then, or before.
    EventBy(u64),
    /// It is in the queue, and the oldest one is lost, the first one of this queue.
    Overwrote,
    /// It is lost: the queue was full, and is in error from now on.
    Overrun,
    /// It is lost: the queue was in error already.
    InError,
}

/// What all completion queues of a device share.
#[derive(Debug, Clone, Default)]
pub struct CqCommon {
    /// Send requests that were polled, whose entries are free.
    pub polled_sends: Arc<PolledSends>,
    /// How many queues are armed.
    pub armed: Arc<ArmedQueues>,
    /// Who listens to events.
    pub events: Arc<Subscribers>,
    /// Draws what the specification leaves open, if that is wanted.
    pub shuffle: Option<Arc<Shuffle>>,
    /// Puts events off, if a fault plan says so.
    pub pacer: Option<EventPacer>,
}

/// A completion queue. The engine adds; the application polls and arms, without the engine's lock.
#[derive(Debug)]
pub struct CompletionQueue {
    handle: Handle,
    cookie: AtomicU64,
    /// Entries in the ring, to see without the lock that there are none.
    pending: AtomicUsize,
    failed: AtomicBool,
    fires_late: bool,
    /// A seed decides what is polled next.
    shuffled: bool,
    /// The application found the queue empty when it last polled, and no event has told it of anything since.
    believed_empty: AtomicBool,
    state: BriefLock<State>,
    common: CqCommon,
    channel: Option<Arc<CompletionChannel>>,
    account: Arc<EventAccount>,
    async_account: Arc<EventAccount>,
    /// Stamps completions, if that was asked for: reading it costs as much as storing one.
    clock: Option<Clock>,
}

#[derive(Debug)]
struct State {
    ring: VecDeque<Entry>,
    depth: usize,
    armed: Armed,
    /// An entry of the ring would fire an arming for solicited ones. It may have been polled, unless all
    /// have.
    solicited: bool,
    /// What a shuffled queue knows about the ring.
    held: Option<Box<HeldCompletions>>,
    /// Completions that made an event.
    pub events: u64,
    /// What a fault plan does to events.
    paced: Option<Box<PacedEvents>>,
    /// Of a queue that loses its oldest completion where another one fails.
    lost: Option<Box<Lost>>,
}

/// What the completions that were overwritten would have told.
#[derive(Debug, Default)]
struct Lost {
    /// Entries of send queues that polling them would have freed, by the numbers of the queue pairs. The next
    /// completion of the send queue frees them, as adapters free all entries up to that of a completion.
    released: FnvHashMap<u32, u32>,
    /// There was one.
    pub is_told: bool,
}

#[derive(Debug)]
struct Entry {
    completion: WorkCompletion,
    /// Entries of the queue pair's send queue that polling this completion frees.
    released: u32,
    /// When it was added; 0 without a clock.
    at_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

impl CompletionQueue {
    /// An empty queue of exactly `depth` entries; the caller has checked `depth` against its limit.
    ///
    /// # Errors
    /// `NoMemory`: there is none for the ring.
    pub fn new(
        handle: Handle,
        depth: u32,
        cookie: u64,
        channel: Option<Arc<CompletionChannel>>,
        common: CqCommon,
        clock: Option<Clock>,
        fires_late: bool,
    ) -> Result<CompletionQueue, ResourceError> {
        let mut ring = VecDeque::new();
        reserve(&mut ring, depth as usize)?;
        if let Some(channel) = &channel {
            channel.attach(&common.events);
        }
        Ok(CompletionQueue {
            handle,
            cookie: AtomicU64::new(cookie),
            pending: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            fires_late,
            shuffled: false,
            believed_empty: AtomicBool::new(false),
            state: BriefLock::new(State {
                ring,
                depth: depth as usize,
                armed: Armed::No,
                solicited: false,
                held: None,
                events: 0,
                paced: None,
                lost: None,
            }),
            common,
            channel,
            account: Arc::new(EventAccount::new()),
            async_account: Arc::new(EventAccount::new()),
            clock,
        })
    }

    /// The same, which does not fail when it is full: the oldest completion is overwritten
    /// (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`).
    pub fn overwriting(mut self) -> CompletionQueue {
        let state = self.state.get_mut();
        state.lost = Some(Box::default());
        self
    }

    /// The same, with what the device's [`CqCommon`] decides about the order of its completions and about its
    /// events. `made`: how many queues were made before; `counted`: how many of those that plans count, if
    /// they count this one.
    ///
    /// # Errors
    /// `NoMemory`.
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

    /// The same, with an order of completions that a schedule draws; `ordinal`: of this queue on its device.
    ///
    /// # Errors
    /// `NoMemory`.
    fn shuffled(mut self, shuffle: Arc<Shuffle>, ordinal: u32) -> Result<CompletionQueue, ResourceError> {
        let state = self.state.get_mut();
        let mut held = HeldCompletions::new(shuffle, ordinal);
        held.reserve(state.depth)?;
        state.held = Some(Box::new(held));
        self.shuffled = true;
        Ok(self)
    }

    /// From now on a fault plan may put off its events; `ordinal`: of this queue on its device.
    pub fn pace(&self, pacer: &EventPacer, ordinal: u32) {
        let paced = || Box::new(PacedEvents::new(pacer.clone(), ordinal));
        self.lock().paced.get_or_insert_with(paced);
    }

    /// An event that was put off comes, if its time has come.
    #[cold]
    pub fn fire_due(&self, now_ns: u64) {
        let mut state = self.lock();
        if state.paced.as_ref().is_some_and(|paced| paced.is_due(now_ns)) {
            self.fire(&mut state);
        }
    }

    /// How many completions a poll that asks for `asked` is to take at most: all, unless the schedule is
    /// shuffled.
    #[inline]
    pub fn most_of(&self, asked: usize) -> usize {
        if self.shuffled { self.shuffled_most_of(asked) } else { asked }
    }

    /// Whether the batch of a program that takes one completion after the other ends here, though there may
    /// be more: never, unless the schedule is shuffled.
    #[inline]
    pub fn ends_batch(&self) -> bool {
        self.shuffled && self.shuffled_ends_batch()
    }

    #[cold]
    fn shuffled_ends_batch(&self) -> bool {
        let mut state = self.lock();
        let whole = state.armed != Armed::No || self.is_failed();
        state.held.as_mut().is_some_and(|held| held.ends_batch(whole))
    }

    #[cold]
    fn shuffled_most_of(&self, asked: usize) -> usize {
        let state = self.lock();
        let whole = state.armed != Armed::No || self.is_failed();
        state.held.as_ref().map_or(asked, |held| held.most_of(asked, whole))
    }

    /// The next poll finds every completion that came before an event that the program is told of.
    #[cold]
    pub fn release_held(&self) {
        if let Some(held) = &mut self.lock().held {
            held.release();
        }
    }

    /// Moves the oldest completions to `out` and returns how many: at most `out.len()`. Looking at
    /// an empty queue costs one load.
    #[inline]
    pub fn poll(&self, out: &mut [WorkCompletion]) -> usize {
        if self.pending.load(Ordering::Acquire) == 0 {
            self.believe_empty();
            return 0;
        }
        self.poll_some(out)
    }

    /// Moves the oldest completion out, with the time of the device's clock at which it was added; 0 if
    /// the queue was made without one.
    pub fn poll_stamped(&self) -> Option<(WorkCompletion, u64)> {
        if self.is_empty() {
            self.believe_empty();
            return None;
        }
        let mut state = self.lock();
        let Some(Entry { completion, released, at_ns }) = state.take() else {
            self.believe_empty();
            state.found_nothing();
            return None;
        };
        if released != 0 {
            self.common.polled_sends.add(completion.qp_num, released);
        }
        self.pending.store(state.ring.len(), Ordering::Release);
        self.believed_empty.store(false, Ordering::Relaxed);
        self.common.events.emit(&Event::Polled { cq: self.handle, completion: &completion });
        Some((completion, at_ns))
    }

    /// Whether a poll would find nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// Completions to be polled.
    pub fn len(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Looks at how many completions wait to be polled, while no thread polls one.
    pub fn look(&self, look: impl FnOnce(usize)) {
        let _held = self.lock();
        look(self.len());
    }

    /// Asks for one event on the channel at the next completion; with `solicited_only`, at the next that is
    /// solicited or unsuccessful. Arming for solicited ones does not weaken an earlier arming for all.
    ///
    /// Completions already in the queue do not fire, so poll once more after arming. A queue made to fire
    /// late (`CqSetup::fires_late`) makes one exception, for completions that the application cannot know of:
    /// its last poll found the queue empty, and they came before it armed.
    pub fn arm(&self, solicited_only: bool) {
        let mut state = self.lock();
        self.common.events.emit(&Event::Armed { cq: self.handle, solicited_only });
        if state.armed == Armed::No {
            self.common.armed.add();
        }
        //= statement:33
        //| Arming for solicited completions does not weaken an earlier arming for all.
        if !solicited_only {
            state.armed = Armed::Any;
        } else if state.armed == Armed::No {
            state.armed = Armed::Solicited;
        }
        let unknown =
            self.fires_late && !state.ring.is_empty() && self.believed_empty.load(Ordering::Relaxed);
        let spurious = state.held.as_mut().is_some_and(|held| held.armed()) && self.channel.is_some();
        if spurious || (unknown && (state.armed == Armed::Any || state.solicited)) {
            self.fire(&mut state);
        }
    }

    /// Whether the next completion, or the next solicited one, makes an event.
    pub fn is_armed(&self) -> bool {
        self.lock().armed != Armed::No
    }

    /// Whether only a solicited completion, or one that failed, makes an event.
    pub fn is_armed_for_solicited(&self) -> bool {
        self.lock().armed == Armed::Solicited
    }

    /// Entries that fit.
    pub fn depth(&self) -> u32 {
        self.lock().depth as u32
    }

    /// Whether the queue overran: what it holds can be polled, and nothing is added any more.
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Names this queue in its device.
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// What the application calls this queue, in its events.
    pub fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Relaxed)
    }

    /// Changes what the application calls this queue, for events fired from now on.
    pub fn set_cookie(&self, cookie: u64) {
        self.cookie.store(cookie, Ordering::Relaxed);
    }

    /// The channel that this queue reports to.
    pub const fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref()
    }

    /// Acknowledges `count` events got from the channel.
    pub fn ack_events(&self, count: u64) {
        self.account.ack(count);
    }

    /// Events got from the channel and not acknowledged.
    pub fn unacked_events(&self) -> u64 {
        self.account.unacked()
    }

    /// Account of this queue's asynchronous events (CQ_ERR).
    pub const fn async_account(&self) -> &Arc<EventAccount> {
        &self.async_account
    }

    /// Blocks until all completion events of the queue are acknowledged, but no longer than `patience`. True
    /// if they are.
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

    /// It fails as by an overrun.
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
    pub(crate) fn push(&self, completion: WorkCompletion, released: u32, solicited: bool) -> Pushed {
        self.push_of(0, completion, released, solicited)
    }

    /// As `push`: the completion is of the queue pair with this ordinal.
    #[inline]
    pub fn push_of(
        &self,
        ordinal: u32,
        completion: WorkCompletion,
        released: u32,
        solicited: bool,
    ) -> Pushed {
        let mut state = self.lock();
        if self.failed.load(Ordering::Relaxed) {
            //= statement:36
            //| A queue that has overrun takes nothing more.
            return Pushed::InError;
        }
        let mut stored = Pushed::Stored;
        if state.ring.len() >= state.depth {
            let Some(overwrote) = state.overwrite() else {
                self.failed.store(true, Ordering::Release);
                if let Some(held) = &mut state.held {
                    held.release();
                }
                return Pushed::Overrun;
            };
            stored = overwrote;
        }
        let at_ns = self.clock.as_ref().map_or(0, Clock::now_ns);
        state.ring.push_back(Entry { completion, released, at_ns });
        self.pending.store(state.ring.len(), Ordering::Release);
        //= man:ibv_req_notify_cq
        //| A completion is solicited if its message was, or if it failed.
        let solicited = completion.status != WcStatus::Success || (solicited && completion.opcode.is_recv());
        state.solicited |= solicited;
        if state.held.is_some() {
            state.hold(ordinal, &completion);
        }
        let wakes = match state.armed {
            Armed::No => false,
            Armed::Any => true,
            //= statement:33
            //| A queue that is armed for solicited completions fires for those and for errors only.
            Armed::Solicited => solicited,
        };
        if wakes && let woken @ Pushed::EventBy(_) = self.wake(&mut state) {
            return woken;
        }
        stored
    }

    /// A completion came for which the queue is armed.
    fn wake(&self, state: &mut State) -> Pushed {
        if !state.paced.as_ref().is_some_and(|paced| paced.is_waiting()) {
            state.events = state.events.saturating_add(1);
        }
        let paced = match &mut state.paced {
            Some(paced) if self.channel.is_some() => paced.completed(state.events, &self.common.events),
            _ => Paced::Now,
        };
        match paced {
            Paced::Now => {
                self.fire(state);
                Pushed::Stored
            }
            Paced::By(due_ns) => Pushed::EventBy(due_ns),
            Paced::Waits => Pushed::Stored,
        }
    }

    /// Under the lock, so that events of two firings cannot overtake each other.
    fn fire(&self, state: &mut State) {
        //= statement:34
        //| One arming makes one event, however many completions follow.
        self.disarm(state);
        self.believed_empty.store(false, Ordering::Relaxed);
        if let Some(channel) = &self.channel {
            self.common.events.emit(&Event::CompletionEventRaised { cq: self.handle });
            channel.fire(CqEvent { cq: self.handle, cookie: self.cookie() }, &self.account);
        }
    }

    fn disarm(&self, state: &mut State) {
        if let Some(paced) = &mut state.paced {
            paced.end();
        }
        if std::mem::replace(&mut state.armed, Armed::No) != Armed::No {
            self.common.armed.remove();
        }
    }

    /// A lost update by a firing at the same time makes for one event too many.
    #[inline]
    fn believe_empty(&self) {
        if !self.believed_empty.load(Ordering::Relaxed) {
            self.believed_empty.store(true, Ordering::Relaxed);
        }
    }

    /// Changes the number of entries that fit; order and content stay.
    ///
    /// # Errors
    /// `Invalid`: more than `depth` completions wait to be polled. `NoMemory`: there is none.
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
        reserve(&mut state.ring, depth as usize)?;
        if let Some(held) = &mut state.held {
            held.reserve(depth as usize)?;
        }
        state.depth = depth as usize;
        state.ring.shrink_to(depth as usize);
        Ok(())
    }

    /// Removes the unpolled completions of a queue pair, which was destroyed or reset.
    pub fn remove_of(&self, qpn: u32) {
        let mut state = self.lock();
        state.remove_of(qpn);
        state.solicited &= !state.ring.is_empty();
        self.pending.store(state.ring.len(), Ordering::Release);
    }

    /// The queue is destroyed: events that no thread has taken vanish.
    pub fn detach_channel(&self) {
        self.disarm(&mut self.lock());
        if let Some(channel) = &self.channel {
            //= statement:35
            //| Events that were not taken vanish with the queue.
            channel.detach(&self.account);
        }
    }

    fn poll_some(&self, out: &mut [WorkCompletion]) -> usize {
        let mut state = self.lock();
        let mut count = 0;
        // Until it asks for more than there is.
        self.believed_empty.store(false, Ordering::Relaxed);
        for slot in out.iter_mut() {
            let Some(released) = state.take_into(slot) else {
                self.believe_empty();
                break;
            };
            if released != 0 {
                // Under the lock: after `remove_of` no release of that queue pair is outstanding.
                self.common.polled_sends.add(slot.qp_num, released);
            }
            count += 1;
        }
        if count == 0 {
            state.found_nothing();
        }
        if state.ring.is_empty() {
            // Start again at the front: a shallow use of a deep queue stays in the cache.
            state.ring.clear();
            state.solicited = false;
        }
        self.pending.store(state.ring.len(), Ordering::Release);
        if self.common.events.listen(Topics::POLLS) {
            self.emit_polled(out.get(..count).unwrap_or_default());
        }
        count
    }

    #[cold]
    fn emit_polled(&self, completions: &[WorkCompletion]) {
        for completion in completions {
            self.common.events.emit(&Event::Polled { cq: self.handle, completion });
        }
    }

    #[inline]
    fn lock(&self) -> Brief<'_, State> {
        // The state is whole between the operations on it, so a panic elsewhere does not spoil it.
        self.state.lock()
    }
}

impl State {
    /// Puts the next completion there, and says what polling it frees.
    #[inline]
    fn take_into(&mut self, slot: &mut WorkCompletion) -> Option<u32> {
        if self.held.is_some() || self.lost.is_some() {
            let entry = self.take()?;
            *slot = entry.completion;
            return Some(entry.released);
        }
        // An entry is long: the usual way copies it once.
        let Entry { completion, released, .. } = self.ring.front()?;
        *slot = *completion;
        let released = *released;
        self.ring.pop_front();
        Some(released)
    }

    /// The next completion; the oldest one, unless the schedule is shuffled.
    fn take(&mut self) -> Option<Entry> {
        let taken = if self.held.is_some() { self.take_shuffled() } else { self.ring.pop_front() };
        if self.lost.is_some() { taken.map(|entry| self.with_lost(entry)) } else { taken }
    }

    /// Makes room in a full queue that does not fail.
    #[cold]
    fn overwrite(&mut self) -> Option<Pushed> {
        let lost = self.lost.as_mut()?;
        let oldest = self.ring.pop_front();
        if let Some(held) = &mut self.held {
            held.overwritten();
        }
        if let Some(Entry { completion, released: released @ 1.., .. }) = oldest {
            let before = lost.released.entry(completion.qp_num).or_default();
            *before = before.wrapping_add(released);
        }
        let was_told = std::mem::replace(&mut lost.is_told, true);
        Some(if was_told { Pushed::Stored } else { Pushed::Overwrote })
    }

    /// A completion that frees what lost ones before it would have freed.
    #[cold]
    fn with_lost(&mut self, mut entry: Entry) -> Entry {
        if !entry.completion.opcode.is_recv()
            && let Some(lost) = &mut self.lost
        {
            let before = lost.released.remove(&entry.completion.qp_num).unwrap_or_default();
            entry.released = entry.released.wrapping_add(before);
        }
        entry
    }

    fn take_shuffled(&mut self) -> Option<Entry> {
        let index = self.held.as_mut()?.take(self.armed != Armed::No)?;
        self.ring.remove(index)
    }

    /// Notes what was added to the end of the ring. A program that learns of a failure finds everything that
    /// came before it.
    #[cold]
    fn hold(&mut self, ordinal: u32, completion: &WorkCompletion) {
        let receives = completion.opcode.is_recv();
        let failed = completion.status != WcStatus::Success;
        let urgent = failed || self.armed != Armed::No;
        if let Some(held) = &mut self.held {
            held.added(WorkQueue { ordinal, receives }, completion.qp_num, urgent, failed);
        }
    }

    fn found_nothing(&mut self) {
        if let Some(held) = &mut self.held {
            held.found_nothing();
        }
    }

    fn remove_of(&mut self, qpn: u32) {
        if let Some(held) = &mut self.held {
            let mut entries = self.ring.iter();
            held.retain(qpn, || entries.next().is_some_and(|entry| entry.completion.qp_num != qpn));
        }
        self.ring.retain(|entry| entry.completion.qp_num != qpn);
        if let Some(lost) = &mut self.lost {
            lost.released.remove(&qpn);
        }
    }
}

/// Makes room for `depth` entries, so that adding one never allocates.
fn reserve(ring: &mut VecDeque<Entry>, depth: usize) -> Result<(), ResourceError> {
    ring.try_reserve_exact(depth.saturating_sub(ring.len())).map_err(|_| {
        ResourceError::no_memory(format!("a completion queue of {depth} entries; ask for fewer"))
    })
}

#[cfg(test)]
#[path = "completion_queue_tests.rs"]
mod tests;
