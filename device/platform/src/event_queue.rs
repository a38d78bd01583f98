//! Bounded queues of events, the account of events that were not acknowledged, and values whose changes
//! threads wait for.
//!
//! A value whose changes threads may wait for. While no thread waits, a change costs no system call: the
//! condition variables of the standard library make one at every notification.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::ResourceError;
use crate::outside::event_fd::EventPipe;
use crate::outside::time;

/// A value whose changes threads may wait for, with the number of waiting threads.
#[derive(Debug, Default)]
pub struct Awaited<T> {
    state: Mutex<AwaitedState<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AwaitedState<T> {
    value: T,
    waiters: usize,
}

impl<T> Awaited<T> {
    /// Returns an instance with this value.
    pub const fn new(value: T) -> Awaited<T> {
        Awaited { state: Mutex::new(AwaitedState { value, waiters: 0 }), changed: Condvar::new() }
    }

    /// Changes the value. Threads that wait for a change check it again.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state.value);
        if state.waiters > 0 {
            self.changed.notify_all();
        }
        result
    }

    /// Calls `look` with the value.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock().value)
    }

    /// Blocks until the value satisfies `wanted`.
    pub fn wait(&self, wanted: impl Fn(&T) -> bool) {
        let mut state = self.lock();
        state.waiters += 1;
        while !wanted(&state.value) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiters -= 1;
    }

    /// Blocks until the value satisfies `wanted`, but no longer than `patience`. Returns whether it does.
    pub fn wait_for(&self, patience: Duration, wanted: impl Fn(&T) -> bool) -> bool {
        let begun = time::now();
        let mut state = self.lock();
        state.waiters += 1;
        while !wanted(&state.value) {
            let left = patience.saturating_sub(time::since(begun));
            if left.is_zero() {
                break;
            }
            state = time::wait(&self.changed, state, left);
        }
        state.waiters -= 1;
        wanted(&state.value)
    }

    fn lock(&self) -> MutexGuard<'_, AwaitedState<T>> {
        // A poisoned lock is taken: the number of waiters is right at all times, and values are changed as a
        // whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of events of one object that were delivered and not acknowledged: the object must not vanish
/// under an application that still uses such an event.
#[derive(Debug, Default)]
pub struct EventAccount {
    unacked: Awaited<u64>,
}

impl EventAccount {
    /// Creates an account with nothing delivered.
    pub fn new() -> EventAccount {
        EventAccount::default()
    }

    /// Acknowledges `count` events. More than were delivered is the same as all.
    pub fn ack(&self, count: u64) {
        self.unacked.change(|unacked| *unacked = unacked.saturating_sub(count));
    }

    /// Returns the number of events delivered and not acknowledged.
    pub fn unacked(&self) -> u64 {
        self.unacked.look(|unacked| *unacked)
    }

    /// Blocks until every delivered event is acknowledged. Do not hold the engine's lock.
    pub fn wait_all_acked(&self) {
        //= man:ibv_get_cq_event
        //| Every event that was taken has to be acknowledged before its object goes.
        self.unacked.wait(|unacked| *unacked == 0);
    }

    /// Blocks until every delivered event is acknowledged, but no longer than `patience`. Returns true if
    /// they are.
    pub fn wait_all_acked_for(&self, patience: Duration) -> bool {
        self.unacked.wait_for(patience, |unacked| *unacked == 0)
    }

    /// Counts an event that is being handed to the application.
    pub fn delivered(&self) {
        self.unacked.change(|unacked| *unacked += 1);
    }
}

/// A queue of events in order, each charged to an object's [`EventAccount`] when it is taken. The descriptor
/// is readable exactly while an event is queued: both change under one lock, so of several readers that wake
/// up, as many get an event as there are events.
#[derive(Debug)]
pub struct EventQueue<E> {
    queued: Mutex<VecDeque<(E, Arc<EventAccount>)>>,
    readable: EventPipe,
    capacity: usize,
}

impl<E> EventQueue<E> {
    /// Creates an empty queue for at most `capacity` events.
    pub fn new(capacity: usize) -> Result<EventQueue<E>, ResourceError> {
        Ok(EventQueue { queued: Mutex::new(VecDeque::new()), readable: EventPipe::new()?, capacity })
    }

    /// Queues an event. Returns false if the queue is full and the event is lost.
    pub fn push(&self, event: E, account: &Arc<EventAccount>) -> bool {
        let mut queued = self.lock();
        if queued.len() >= self.capacity {
            return false;
        }
        queued.push_back((event, Arc::clone(account)));
        // The descriptor is signalled even when it is readable already: edge-triggered epoll reports every
        // event then.
        self.readable.put();
        true
    }

    /// Takes the oldest event, which from now on waits for its acknowledgement.
    pub fn take(&self) -> Option<(E, Arc<EventAccount>)> {
        let mut queued = self.lock();
        let taken = queued.pop_front()?;
        // Before the lock is released: a purge after this sees the event as delivered.
        //= man:ibv_get_async_event
        //| An event that was taken waits for its acknowledgement.
        taken.1.delivered();
        if queued.is_empty() {
            self.readable.clear();
        }
        Some(taken)
    }

    /// Removes the events charged to an account, whose object is being destroyed.
    pub fn purge(&self, account: &Arc<EventAccount>) {
        let mut queued = self.lock();
        let before = queued.len();
        queued.retain(|(_, other)| !Arc::ptr_eq(account, other));
        if before != 0 && queued.is_empty() {
            self.readable.clear();
        }
    }

    /// Removes and returns the events that `wanted` chooses, in order.
    pub fn remove_where(&self, wanted: impl Fn(&E) -> bool) -> Vec<E> {
        let mut queued = self.lock();
        let mut removed = Vec::new();
        for (event, account) in std::mem::take(&mut *queued) {
            if wanted(&event) {
                removed.push(event);
            } else {
                queued.push_back((event, account));
            }
        }
        if !removed.is_empty() && queued.is_empty() {
            self.readable.clear();
        }
        removed
    }

    /// Returns the number of queued events.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(E, Arc<EventAccount>)>> {
        // A deque is consistent between its operations, so a panic elsewhere does not spoil it.
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether the descriptor of the queue is readable.
    pub fn is_readable(&self) -> bool {
        self.readable.is_readable()
    }
}

impl<E> AsFd for EventQueue<E> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

    use super::*;

    #[test]
    fn a_thread_that_waits_is_woken_by_every_change_until_the_wanted_one() {
        let number = Arc::new(Awaited::new(0));
        let waiter = std::thread::spawn({
            let number = Arc::clone(&number);
            move || {
                number.wait(|&number| number == 1000);
                number.look(|&number| number)
            }
        });
        for _ in 0..1000 {
            number.change(|number| *number += 1);
        }
        assert_eq!(waiter.join().unwrap(), 1000);
    }

    #[test]
    fn patience_ends() {
        let number = Awaited::new(0);
        assert!(!number.wait_for(Duration::from_millis(1), |&number| number == 1));
        number.change(|number| *number = 1);
        assert!(number.wait_for(Duration::ZERO, |&number| number == 1));
    }

    #[test]
    fn waiting_ends_with_the_last_acknowledgement() {
        let account = Arc::new(EventAccount::new());
        account.wait_all_acked();
        account.delivered();
        account.delivered();
        let (done, finished) = mpsc::channel();
        let waiter = std::thread::spawn({
            let account = Arc::clone(&account);
            move || {
                account.wait_all_acked();
                done.send(account.unacked()).unwrap();
            }
        });
        account.ack(1);
        // The waiter cannot be done: one event is open.
        assert!(finished.try_recv().is_err());
        assert_eq!(account.unacked(), 1);
        account.ack(1);
        assert_eq!(finished.recv().unwrap(), 0);
        waiter.join().unwrap();
    }

    #[test]
    fn too_many_acknowledgements_are_harmless() {
        let account = EventAccount::new();
        account.delivered();
        account.ack(5);
        assert_eq!(account.unacked(), 0);
        account.delivered();
        assert_eq!(account.unacked(), 1);
    }

    #[test]
    fn readable_exactly_while_an_event_is_queued() {
        let queue = EventQueue::new(3).unwrap();
        let (a, b) = (Arc::new(EventAccount::new()), Arc::new(EventAccount::new()));
        assert!(!queue.is_readable());
        for (event, account) in [(1, &a), (2, &b), (3, &a)] {
            assert!(queue.push(event, account));
        }
        assert!(!queue.push(4, &a), "bounded");
        assert_eq!(queue.take().map(|(event, _)| event), Some(1));
        assert!(queue.is_readable());
        queue.purge(&a);
        assert!(queue.is_readable());
        assert_eq!(queue.take().map(|(event, _)| event), Some(2));
        assert!(!queue.is_readable());
        assert_eq!((a.unacked(), b.unacked()), (1, 1), "purged events need no acknowledgement");
        assert!(queue.push(5, &a));
        queue.purge(&a);
        assert!(!queue.is_readable());
        assert!(queue.take().is_none());
    }

    #[test]
    fn chosen_events_are_removed_and_the_others_stay_in_order() {
        let queue = EventQueue::new(9).unwrap();
        let account = Arc::new(EventAccount::new());
        for event in 1..=4 {
            queue.push(event, &account);
        }
        assert_eq!(queue.remove_where(|event| event % 2 == 0), [2, 4]);
        assert!(queue.is_readable());
        assert!(queue.remove_where(|_| false).is_empty());
        assert_eq!(queue.take().map(|(event, _)| event), Some(1));
        assert_eq!(queue.remove_where(|_| true), [3]);
        assert!(!queue.is_readable());
        assert_eq!(account.unacked(), 1);
    }

    #[test]
    fn concurrent_readers_get_each_event_once() {
        const EVENTS: usize = 2000;
        let queue = EventQueue::new(EVENTS).unwrap();
        let account = Arc::new(EventAccount::new());
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while taken.load(Ordering::Relaxed) < EVENTS {
                        if queue.take().is_some() {
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for event in 0..EVENTS {
                assert!(queue.push(event, &account));
            }
        });
        assert_eq!(taken.load(Ordering::Relaxed), EVENTS);
        assert_eq!(account.unacked(), EVENTS as u64);
        assert!(!queue.is_readable());
    }
}
