//! Completion channels: they notify a sleeping application that an armed CQ has a new completion.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use pumice_model::event::{Event, Subscribers};
use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;

use pumice_platform::event_queue::{EventAccount, EventQueue};

/// The event of an armed CQ that fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqEvent {
    /// Handle of the completion queue.
    pub cq: Handle,
    /// Cookie of the application for the queue.
    pub cookie: u64,
}

/// A completion channel, shared by any number of CQs. Events come in the order of firing; each has to be
/// acknowledged at its CQ ([`crate::objects::completion_queue::CompletionQueue::ack_events`]).
#[derive(Debug)]
pub struct CompletionChannel {
    events: EventQueue<CqEvent>,
    cq_count: AtomicU32,
    /// Subscribers of the device that its CQs belong to.
    subscribers: OnceLock<Arc<Subscribers>>,
}

impl CompletionChannel {
    /// Largest number of queued events. Applications that never read their channel lose the newest ones,
    /// which changes nothing for them: the descriptor stays readable.
    pub const CAPACITY: usize = 1 << 16;

    /// Creates a channel without CQs.
    ///
    /// # Errors
    /// Fails with `Os` if no file descriptor is available.
    pub fn new() -> Result<CompletionChannel, ResourceError> {
        Ok(CompletionChannel {
            events: EventQueue::new(CompletionChannel::CAPACITY)?,
            cq_count: AtomicU32::new(0),
            subscribers: OnceLock::new(),
        })
    }

    /// Takes the oldest event, if one is queued; its CQ then waits for the acknowledgement. To wait, poll the
    /// descriptor for reading and try again.
    pub fn try_event(&self) -> Option<CqEvent> {
        let (event, _) = self.events.take()?;
        if let Some(subscribers) = self.subscribers.get() {
            subscribers.emit(&Event::CompletionEventDelivered { cq: event.cq });
        }
        Some(event)
    }

    /// Returns the number of queued events.
    pub fn queued(&self) -> usize {
        self.events.count()
    }

    /// Returns the number of CQs that report to this channel.
    pub fn cq_count(&self) -> u32 {
        self.cq_count.load(Ordering::Acquire)
    }

    /// Checks whether the channel may be destroyed.
    ///
    /// # Errors
    /// Fails with `Busy` if CQs report to it.
    pub fn check_unused(&self) -> Result<(), ResourceError> {
        match self.cq_count() {
            0 => Ok(()),
            //= man:ibv_create_comp_channel
            //| A channel that completion queues report to cannot be destroyed.
            count => Err(ResourceError::busy(format!(
                "{count} completion queues report to the completion channel; destroy them first"
            ))),
        }
    }

    pub(crate) fn fire(&self, event: CqEvent, account: &Arc<EventAccount>) {
        self.events.push(event, account);
    }

    #[doc(hidden)]
    pub fn attach(&self, subscribers: &Arc<Subscribers>) {
        self.subscribers.get_or_init(|| Arc::clone(subscribers));
        self.cq_count.fetch_add(1, Ordering::AcqRel);
    }

    #[doc(hidden)]
    pub fn detach(&self, account: &Arc<EventAccount>) {
        self.events.purge(account);
        self.cq_count.fetch_sub(1, Ordering::AcqRel);
    }

    #[cfg(test)]
    pub(crate) fn is_readable(&self) -> bool {
        self.events.is_readable()
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_and_a_detached_cq_has_none_left() {
        let channel = CompletionChannel::new().unwrap();
        let event = |index| CqEvent { cq: Handle { index, generation: 1 }, cookie: u64::from(index) };
        let (a, b) = (Arc::new(EventAccount::new()), Arc::new(EventAccount::new()));
        channel.attach(&Arc::default());
        channel.attach(&Arc::default());
        assert_eq!(channel.check_unused().unwrap_err().errno(), libc::EBUSY);
        channel.fire(event(1), &a);
        channel.fire(event(2), &b);
        channel.fire(event(1), &a);
        assert_eq!(channel.try_event(), Some(event(1)));
        assert_eq!(a.unacked(), 1);
        channel.detach(&a);
        assert_eq!(channel.try_event(), Some(event(2)));
        assert_eq!(channel.try_event(), None);
        assert!(!channel.is_readable());
        channel.detach(&b);
        channel.check_unused().unwrap();
    }
}
