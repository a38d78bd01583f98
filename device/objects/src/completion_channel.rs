//! Completion channels: how a sleeping application learns that an armed CQ has something new.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use pumice_events::{Event, Subscribers};
use pumice_ground::error::ResourceError;
use pumice_ground::table::Handle;

use crate::event_account::EventAccount;
use crate::event_queue::EventQueue;

/// An armed CQ fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqEvent {
    /// The completion queue.
    pub cq: Handle,
    /// What the application calls it.
    pub cookie: u64,
}

/// A completion channel, shared by any number of CQs. Events come in the order of firing; each is
/// to be acknowledged at its CQ ([`crate::completion_queue::CompletionQueue::ack_events`]).
#[derive(Debug)]
pub struct CompletionChannel {
    events: EventQueue<CqEvent>,
    cq_count: AtomicU32,
    /// Who listens to the device of its CQs.
    subscribers: OnceLock<Arc<Subscribers>>,
}

impl CompletionChannel {
    /// Most events queued. Applications that never read their channel lose the newest ones, which
    /// changes nothing for them: the descriptor stays readable.
    pub const CAPACITY: usize = 1 << 16;

    /// A channel without CQs.
    ///
    /// # Errors
    /// `Os`: no file descriptor is to be had.
    pub fn new() -> Result<CompletionChannel, ResourceError> {
        Ok(CompletionChannel {
            events: EventQueue::new(CompletionChannel::CAPACITY)?,
            cq_count: AtomicU32::new(0),
            subscribers: OnceLock::new(),
        })
    }

    /// The oldest event, if one is queued; its CQ then waits for the acknowledgement. To wait, poll
    /// the descriptor for reading and try again.
    pub fn try_event(&self) -> Option<CqEvent> {
        let (event, _) = self.events.take()?;
        if let Some(subscribers) = self.subscribers.get() {
            subscribers.emit(&Event::CompletionEventDelivered { cq: event.cq });
        }
        Some(event)
    }

    /// Events queued.
    pub fn queued(&self) -> usize {
        self.events.count()
    }

    /// CQs that report here.
    pub fn cq_count(&self) -> u32 {
        self.cq_count.load(Ordering::Acquire)
    }

    /// Whether the channel may be destroyed.
    ///
    /// # Errors
    /// `Busy`: CQs report here.
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
