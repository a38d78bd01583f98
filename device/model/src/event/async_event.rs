//! The device's asynchronous events.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_transport::types::AsyncEventType;

use pumice_platform::error::ResourceError;
use pumice_platform::event_queue::{EventAccount, EventQueue};

pub use crate::event::AsyncElement;
use crate::event::{Event, Subscribers};

/// An asynchronous event that the application got.
#[derive(Debug, Clone)]
pub struct AsyncEvent {
    /// Type of the event.
    pub event: AsyncEventType,
    /// Object, port or device that it is about.
    pub element: AsyncElement,
    account: Arc<EventAccount>,
}

impl AsyncEvent {
    /// Acknowledges the event; its object cannot be destroyed before.
    pub fn ack(self) {
        self.account.ack(1);
    }

    /// Returns the account that the event is charged to, to acknowledge it by.
    pub const fn account(&self) -> &Arc<EventAccount> {
        &self.account
    }
}

/// A queue of asynchronous events of a device.
#[derive(Debug)]
pub struct AsyncEventQueue {
    events: EventQueue<(AsyncEventType, AsyncElement)>,
    /// Account of ports and the device, which are never destroyed.
    unaffiliated: Arc<EventAccount>,
    lost: AtomicU64,
    subscribers: Arc<Subscribers>,
}

impl AsyncEventQueue {
    /// Creates an empty queue for at most `capacity` events.
    ///
    /// # Errors
    /// Fails with `Os` if no file descriptor is available.
    pub fn new(capacity: usize, subscribers: Arc<Subscribers>) -> Result<AsyncEventQueue, ResourceError> {
        Ok(AsyncEventQueue {
            events: EventQueue::new(capacity)?,
            unaffiliated: Arc::new(EventAccount::new()),
            lost: AtomicU64::new(0),
            subscribers,
        })
    }

    /// Takes the oldest event, if one is queued. To wait, poll the descriptor for reading and try again.
    pub fn try_event(&self) -> Option<AsyncEvent> {
        let ((event, element), account) = self.events.take()?;
        self.subscribers.emit(&Event::AsyncEventDelivered { event, element });
        Some(AsyncEvent { event, element, account })
    }

    /// Returns the number of queued events.
    pub fn queued(&self) -> usize {
        self.events.count()
    }

    /// Returns how many events were lost because the application did not read them and the queue was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Raises an event of a port or the device.
    pub fn raise(&self, event: AsyncEventType, element: AsyncElement) {
        self.raise_for(event, element, &self.unaffiliated);
    }

    /// Raises an event of an object, charged to its account.
    pub fn raise_for(&self, event: AsyncEventType, element: AsyncElement, account: &Arc<EventAccount>) {
        self.subscribers.emit(&Event::AsyncEventRaised { event, element });
        if !self.events.push((event, element), account) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes the events of an object that is being destroyed, if no thread has taken them.
    pub fn purge(&self, account: &Arc<EventAccount>) {
        self.events.purge(account);
    }
}

impl AsFd for AsyncEventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_name_their_element_and_wait_for_their_acknowledgement() {
        let queue = AsyncEventQueue::new(8, Arc::default()).unwrap();
        let account = Arc::new(EventAccount::new());
        let element = AsyncElement::Qp { qpn: 17, cookie: 99 };
        queue.raise_for(AsyncEventType::CommEst, element, &account);
        queue.raise(AsyncEventType::PortActive, AsyncElement::Port(1));
        let event = queue.try_event().unwrap();
        assert_eq!((event.event, event.element), (AsyncEventType::CommEst, element));
        assert_eq!(account.unacked(), 1);
        event.ack();
        account.wait_all_acked();
        let event = queue.try_event().unwrap();
        assert_eq!(event.element, AsyncElement::Port(1));
        event.ack();
        assert!(queue.try_event().is_none());
    }

    #[test]
    fn events_of_a_destroyed_object_vanish() {
        let queue = AsyncEventQueue::new(8, Arc::default()).unwrap();
        let account = Arc::new(EventAccount::new());
        queue.raise_for(AsyncEventType::QpFatal, AsyncElement::Qp { qpn: 1, cookie: 1 }, &account);
        queue.raise(AsyncEventType::GidChange, AsyncElement::Port(1));
        queue.purge(&account);
        account.wait_all_acked();
        assert_eq!(queue.try_event().unwrap().event, AsyncEventType::GidChange);
        assert_eq!(queue.queued(), 0);
    }

    #[test]
    fn a_full_queue_counts_what_it_loses() {
        let queue = AsyncEventQueue::new(1, Arc::default()).unwrap();
        for _ in 0..3 {
            queue.raise(AsyncEventType::GidChange, AsyncElement::Port(1));
        }
        assert_eq!((queue.queued(), queue.lost()), (1, 2));
    }
}
