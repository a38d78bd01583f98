//! Completion queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_transport::types::{WcStatus, WorkCompletion};

use crate::clock::Clock;
use crate::completion_channel::{CompletionChannel, CqEvent};
use crate::error::ResourceError;
use crate::event_account::EventAccount;
use crate::send_slots::SendSlots;
use crate::table::Handle;

/// What became of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// It is in the queue.
    Stored,
    /// It is lost: the queue was full, and is in error from now on.
    Overrun,
    /// It is lost: the queue was in error already.
    InError,
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
    /// The application found the queue empty when it last polled, and no event has told it of anything since.
    believed_empty: AtomicBool,
    state: Mutex<State>,
    slots: Arc<SendSlots>,
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
    /// An entry of the ring would fire an arming for solicited ones. It may have been polled, unless all have.
    solicited: bool,
}

#[derive(Debug)]
struct Entry {
    completion: WorkCompletion,
    /// Send-queue slots of the queue pair that polling this entry frees.
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
    pub(crate) fn new(
        handle: Handle,
        depth: u32,
        cookie: u64,
        channel: Option<Arc<CompletionChannel>>,
        slots: Arc<SendSlots>,
        clock: Option<Clock>,
        fires_late: bool,
    ) -> Result<CompletionQueue, ResourceError> {
        let mut ring = VecDeque::new();
        reserve(&mut ring, depth as usize)?;
        if let Some(channel) = &channel {
            channel.attach();
        }
        Ok(CompletionQueue {
            handle,
            cookie: AtomicU64::new(cookie),
            pending: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            fires_late,
            believed_empty: AtomicBool::new(false),
            state: Mutex::new(State { ring, depth: depth as usize, armed: Armed::No, solicited: false }),
            slots,
            channel,
            account: Arc::new(EventAccount::new()),
            async_account: Arc::new(EventAccount::new()),
            clock,
        })
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
        let Entry { completion, released, at_ns } = state.ring.pop_front()?;
        if released != 0 {
            self.slots.release(completion.qp_num, released);
        }
        self.pending.store(state.ring.len(), Ordering::Release);
        self.believed_empty.store(false, Ordering::Relaxed);
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

    /// Asks for one event on the channel at the next completion; with `solicited_only`, at the next
    /// that is solicited or unsuccessful. Arming for solicited ones does not weaken an earlier arming for all.
    ///
    /// Completions already in the queue do not fire, so poll once more after arming. A queue made to fire late
    /// (`CqSetup::fires_late`) makes one exception, for completions that the application cannot know of: its last poll
    /// found the queue empty, and they came before it armed.
    pub fn arm(&self, solicited_only: bool) {
        let mut state = self.lock();
        if !solicited_only {
            state.armed = Armed::Any;
        } else if state.armed == Armed::No {
            state.armed = Armed::Solicited;
        }
        let unknown =
            self.fires_late && !state.ring.is_empty() && self.believed_empty.load(Ordering::Relaxed);
        if unknown && (state.armed == Armed::Any || state.solicited) {
            self.fire(&mut state);
        }
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

    /// Blocks until all completion events and asynchronous events of the queue are acknowledged:
    /// the last step of destroying it. Do not hold the engine's lock.
    pub fn wait_all_acked(&self) {
        self.account.wait_all_acked();
        self.async_account.wait_all_acked();
    }

    /// Adds a completion and fires the channel if it is armed for it. `solicited` is the
    /// solicited-event bit of a received message.
    pub(crate) fn push(&self, completion: WorkCompletion, released: u32, solicited: bool) -> Pushed {
        let mut state = self.lock();
        if self.failed.load(Ordering::Relaxed) {
            return Pushed::InError;
        }
        if state.ring.len() >= state.depth {
            self.failed.store(true, Ordering::Release);
            return Pushed::Overrun;
        }
        let at_ns = self.clock.as_ref().map_or(0, Clock::now_ns);
        state.ring.push_back(Entry { completion, released, at_ns });
        self.pending.store(state.ring.len(), Ordering::Release);
        let solicited = completion.status != WcStatus::Success || (solicited && completion.opcode.is_recv());
        state.solicited |= solicited;
        let wakes = match state.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => solicited,
        };
        if wakes {
            self.fire(&mut state);
        }
        Pushed::Stored
    }

    /// Under the lock, so that events of two firings cannot change places.
    fn fire(&self, state: &mut State) {
        state.armed = Armed::No;
        self.believed_empty.store(false, Ordering::Relaxed);
        if let Some(channel) = &self.channel {
            channel.fire(CqEvent { cq: self.handle, cookie: self.cookie() }, &self.account);
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
    pub(crate) fn resize(&self, depth: u32) -> Result<(), ResourceError> {
        let mut state = self.lock();
        let waiting = state.ring.len();
        if (depth as usize) < waiting {
            return Err(ResourceError::invalid(format!(
                "depth {depth} of the completion queue is less than the {waiting} completions that wait in it; poll first"
            )));
        }
        reserve(&mut state.ring, depth as usize)?;
        state.depth = depth as usize;
        state.ring.shrink_to(depth as usize);
        Ok(())
    }

    /// Removes the unpolled completions of a queue pair, which was destroyed or reset.
    pub(crate) fn remove_of(&self, qpn: u32) {
        let mut state = self.lock();
        state.ring.retain(|entry| entry.completion.qp_num != qpn);
        state.solicited &= !state.ring.is_empty();
        self.pending.store(state.ring.len(), Ordering::Release);
    }

    /// The queue is destroyed: its events that nobody got vanish.
    pub(crate) fn detach_channel(&self) {
        if let Some(channel) = &self.channel {
            channel.detach(&self.account);
        }
    }

    fn poll_some(&self, out: &mut [WorkCompletion]) -> usize {
        let mut state = self.lock();
        let mut count = 0;
        // Until it asks for more than there is.
        self.believed_empty.store(false, Ordering::Relaxed);
        for place in out {
            let Some(entry) = state.ring.pop_front() else {
                self.believe_empty();
                break;
            };
            if entry.released != 0 {
                // Under the lock: after `remove_of` no release of that queue pair is outstanding.
                self.slots.release(entry.completion.qp_num, entry.released);
            }
            *place = entry.completion;
            count += 1;
        }
        if state.ring.is_empty() {
            // Start again at the front: a shallow use of a deep queue stays in the cache.
            state.ring.clear();
            state.solicited = false;
        }
        self.pending.store(state.ring.len(), Ordering::Release);
        count
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between the operations on it, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for `depth` entries, so that adding one never allocates.
fn reserve(ring: &mut VecDeque<Entry>, depth: usize) -> Result<(), ResourceError> {
    ring.try_reserve_exact(depth.saturating_sub(ring.len())).map_err(|_| {
        ResourceError::no_memory(format!("a completion queue of {depth} entries; ask for fewer"))
    })
}

#[cfg(test)]
mod tests {
    use pumice_transport::types::WcOpcode;

    use super::*;

    fn queue(depth: u32) -> (CompletionQueue, Arc<CompletionChannel>, Arc<SendSlots>) {
        queue_that(depth, false)
    }

    fn queue_that(depth: u32, fires_late: bool) -> (CompletionQueue, Arc<CompletionChannel>, Arc<SendSlots>) {
        let channel = Arc::new(CompletionChannel::new().unwrap());
        let slots = Arc::new(SendSlots::new());
        let handle = Handle { index: 3, generation: 1 };
        let cq = CompletionQueue::new(
            handle,
            depth,
            77,
            Some(Arc::clone(&channel)),
            Arc::clone(&slots),
            None,
            fires_late,
        );
        (cq.unwrap(), channel, slots)
    }

    fn send(wr_id: u64, qp_num: u32) -> WorkCompletion {
        WorkCompletion { wr_id, qp_num, ..WorkCompletion::default() }
    }

    fn polled(cq: &CompletionQueue, most: usize) -> Vec<u64> {
        let mut out = vec![WorkCompletion::default(); most];
        let count = cq.poll(&mut out);
        out[..count].iter().map(|completion| completion.wr_id).collect()
    }

    #[test]
    fn completions_are_polled_once_in_order() {
        let (cq, ..) = queue(4);
        assert_eq!(polled(&cq, 2), []);
        for wr_id in 1..=4 {
            assert_eq!(cq.push(send(wr_id, 1), 1, false), Pushed::Stored);
        }
        assert_eq!(polled(&cq, 0), []);
        assert_eq!(polled(&cq, 3), [1, 2, 3]);
        assert_eq!(cq.push(send(5, 1), 1, false), Pushed::Stored);
        assert_eq!(cq.len(), 2);
        assert_eq!(polled(&cq, 9), [4, 5]);
        assert!(cq.is_empty());
    }

    #[test]
    fn what_is_there_does_not_fire_at_arming() {
        let (cq, channel, _) = queue(8);
        assert_eq!(polled(&cq, 4).len(), 0);
        assert_eq!(cq.push(send(1, 1), 0, false), Pushed::Stored);
        cq.arm(false);
        assert!(channel.try_event().is_none());
        assert_eq!(cq.push(send(2, 1), 0, false), Pushed::Stored);
        assert!(channel.try_event().is_some(), "it stayed armed");
    }

    #[test]
    fn a_queue_that_fires_late_fires_at_arming_for_what_came_after_an_empty_poll() {
        let (cq, channel, _) = queue_that(8, true);
        let next = || channel.try_event().is_some();
        let push = |solicited| {
            let recv = WorkCompletion { opcode: WcOpcode::Recv, ..send(1, 1) };
            assert_eq!(cq.push(recv, 0, solicited), Pushed::Stored);
        };
        // Nobody looked: it is there to be polled.
        push(false);
        cq.arm(false);
        assert!(!next());
        assert_eq!(polled(&cq, 4).len(), 1); // fewer than asked for
        push(false);
        assert!(next(), "it was armed");
        // The event told of the completion, which is polled after arming again.
        cq.arm(false);
        assert!(!next());
        assert_eq!(polled(&cq, 1).len(), 1);
        assert_eq!(polled(&cq, 1).len(), 0);
        push(false);
        assert!(next());
        // Found empty, filled, armed.
        assert_eq!(polled(&cq, 9).len(), 1);
        push(false);
        cq.arm(true);
        assert!(!next(), "not solicited");
        push(true);
        assert!(next());
        assert_eq!(polled(&cq, 9).len(), 2);
        push(true);
        cq.arm(true);
        assert!(next());
        cq.arm(false);
        assert!(!next(), "once");
        assert_eq!(polled(&cq, 9).len(), 1);
        push(false);
        assert!(next(), "it stays armed");
    }

    #[test]
    fn arming_truth_table() {
        #[derive(Debug, Clone, Copy)]
        enum Arming {
            None,
            Solicited,
            Any,
            AnyThenSolicited,
            SolicitedThenAny,
        }
        use Arming::*;
        let recv = WcOpcode::Recv;
        let (ok, bad) = (WcStatus::Success, WcStatus::WrFlushErr);
        // (arming, opcode, status, solicited bit, fires)
        let table = [
            (None, recv, bad, true, false),
            (Solicited, recv, ok, false, false),
            (Solicited, recv, ok, true, true),
            (Solicited, WcOpcode::RecvRdmaWithImm, ok, true, true),
            (Solicited, WcOpcode::Send, ok, false, false),
            (Solicited, WcOpcode::Send, ok, true, false),
            (Solicited, WcOpcode::Send, bad, false, true),
            (Solicited, recv, bad, false, true),
            (Any, WcOpcode::Send, ok, false, true),
            (Any, recv, ok, false, true),
            (AnyThenSolicited, WcOpcode::Send, ok, false, true),
            (SolicitedThenAny, WcOpcode::Send, ok, false, true),
        ];
        for case @ (arming, opcode, status, solicited, fires) in table {
            let (cq, channel, _) = queue(8);
            // A completion that is there already does not fire, however the queue is armed then.
            let early = WorkCompletion { status: WcStatus::GeneralErr, ..WorkCompletion::default() };
            assert_eq!(cq.push(early, 0, true), Pushed::Stored);
            match arming {
                None => {}
                Solicited => cq.arm(true),
                Any => cq.arm(false),
                AnyThenSolicited => {
                    cq.arm(false);
                    cq.arm(true);
                }
                SolicitedThenAny => {
                    cq.arm(true);
                    cq.arm(false);
                }
            }
            assert_eq!(channel.queued(), 0, "{case:?}");
            let completion = WorkCompletion { opcode, status, ..WorkCompletion::default() };
            assert_eq!(cq.push(completion, 0, solicited), Pushed::Stored);
            assert_eq!(channel.queued(), usize::from(fires), "{case:?}");
            assert_eq!(channel.is_readable(), fires, "{case:?}");
            if fires {
                assert_eq!(cq.push(early, 0, true), Pushed::Stored);
                assert_eq!(channel.queued(), 1, "one event per arming: {case:?}");
                assert_eq!(channel.try_event(), Some(CqEvent { cq: cq.handle(), cookie: 77 }));
            }
        }
    }

    #[test]
    fn a_completion_that_does_not_fire_leaves_the_queue_armed() {
        let (cq, channel, _) = queue(8);
        cq.arm(true);
        let recv = WorkCompletion { opcode: WcOpcode::Recv, ..WorkCompletion::default() };
        assert_eq!(cq.push(recv, 0, false), Pushed::Stored);
        assert_eq!(channel.queued(), 0);
        assert_eq!(cq.push(recv, 0, true), Pushed::Stored);
        assert_eq!(channel.queued(), 1);
    }

    #[test]
    fn overrun_loses_the_new_entry_and_fails_the_queue_once() {
        let (cq, channel, _) = queue(2);
        assert_eq!(cq.push(send(1, 1), 1, false), Pushed::Stored);
        assert_eq!(cq.push(send(2, 1), 1, false), Pushed::Stored);
        cq.arm(false);
        assert_eq!(cq.push(send(3, 1), 1, false), Pushed::Overrun);
        assert_eq!(cq.push(send(4, 1), 1, false), Pushed::InError);
        assert!(cq.is_failed());
        assert_eq!(polled(&cq, 8), [1, 2]);
        cq.resize(10).unwrap();
        assert_eq!(cq.push(send(5, 1), 1, false), Pushed::InError, "resizing does not heal");
        assert_eq!(channel.queued(), 0);
    }

    #[test]
    fn a_send_slot_is_free_when_its_completion_is_polled() {
        let (cq, _, slots) = queue(8);
        assert_eq!(cq.push(send(1, 0x01_0007), 3, false), Pushed::Stored);
        assert_eq!(cq.push(send(2, 0x01_0007), 1, false), Pushed::Stored);
        assert_eq!(cq.push(send(3, 0x01_0008), 5, false), Pushed::Stored);
        assert_eq!(slots.polled(0x01_0007), 0);
        assert_eq!(polled(&cq, 1), [1]);
        assert_eq!(slots.polled(0x01_0007), 3);
        assert_eq!(polled(&cq, 2), [2, 3]);
        assert_eq!((slots.polled(0x01_0007), slots.polled(0x01_0008)), (4, 5));
    }

    #[test]
    fn a_removed_queue_pair_leaves_no_completions() {
        let (cq, ..) = queue(8);
        for (wr_id, qpn) in [(1, 5), (2, 6), (3, 5), (4, 6)] {
            assert_eq!(cq.push(send(wr_id, qpn), 1, false), Pushed::Stored);
        }
        cq.remove_of(5);
        assert_eq!(cq.len(), 2);
        assert_eq!(polled(&cq, 8), [2, 4]);
    }

    #[test]
    fn resizing_keeps_what_waits_and_refuses_to_lose_it() {
        let (cq, ..) = queue(4);
        for wr_id in 1..=4 {
            assert_eq!(cq.push(send(wr_id, 1), 1, false), Pushed::Stored);
        }
        assert_eq!(polled(&cq, 1), [1]);
        assert_eq!(cq.resize(2).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(cq.depth(), 4);
        cq.resize(3).unwrap();
        assert_eq!(cq.depth(), 3);
        assert_eq!(cq.push(send(5, 1), 1, false), Pushed::Overrun);
        assert_eq!(polled(&cq, 8), [2, 3, 4]);
        let (cq, ..) = queue(1);
        cq.resize(100).unwrap();
        for wr_id in 0..100 {
            assert_eq!(cq.push(send(wr_id, 1), 1, false), Pushed::Stored);
        }
        assert_eq!(cq.push(send(100, 1), 1, false), Pushed::Overrun);
    }

    #[test]
    fn destroying_waits_for_the_events_that_were_got() {
        let (cq, channel, _) = queue(8);
        for _ in 0..2 {
            cq.arm(false);
            assert_eq!(cq.push(send(1, 1), 1, false), Pushed::Stored);
        }
        assert!(channel.try_event().is_some());
        let cq = Arc::new(cq);
        cq.detach_channel();
        assert_eq!(channel.queued(), 0, "an event that nobody got needs no acknowledgement");
        assert_eq!(cq.unacked_events(), 1);
        let waiter = std::thread::spawn({
            let cq = Arc::clone(&cq);
            move || {
                cq.wait_all_acked();
                cq.unacked_events()
            }
        });
        cq.ack_events(1);
        assert_eq!(waiter.join().unwrap(), 0);
    }

    #[test]
    fn pollers_and_the_engine_run_at_once() {
        const COUNT: u64 = 10_000;
        let (cq, _, slots) = queue(COUNT as u32);
        let seen = std::thread::scope(|scope| {
            let poller = || {
                let mut seen = 0;
                let mut out = [WorkCompletion::default(); 7];
                while slots.polled(9) < COUNT as u32 {
                    let count = cq.poll(&mut out);
                    assert!(out[..count].is_sorted_by_key(|completion| completion.wr_id));
                    seen += count as u64;
                }
                seen
            };
            let pollers = [scope.spawn(poller), scope.spawn(poller)];
            for wr_id in 0..COUNT {
                assert_eq!(cq.push(send(wr_id, 9), 1, false), Pushed::Stored);
            }
            pollers.map(|poller| poller.join().unwrap()).iter().sum::<u64>()
        });
        assert_eq!(seen, COUNT);
    }
}
