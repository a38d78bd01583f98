//! A bounded queue of events with a descriptor to sleep on.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::ResourceError;
use crate::outside::event_pipe::EventPipe;

use crate::event_account::EventAccount;

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

    use super::*;

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
