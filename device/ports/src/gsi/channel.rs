//! Where a consumer hears of its connections.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use pumice_ground::error::ResourceError;
use pumice_objects::event_account::EventAccount;
use pumice_objects::event_queue::EventQueue;
use pumice_transport::cm::{Event, ListenerId};
use pumice_transport::mad::CommId;

/// Events of connections, in order. The descriptor is readable while there are any.
#[derive(Debug)]
pub struct CmChannel {
    events: EventQueue<Event>,
    account: Arc<EventAccount>,
}

impl CmChannel {
    /// Events that wait at most. Requests beyond it are turned away; of other events there are a few per
    /// connection.
    pub const CAPACITY: usize = 1 << 20;

    /// An empty channel.
    ///
    /// # Errors
    /// `Os`: no file descriptor is to be had.
    pub fn new() -> Result<CmChannel, ResourceError> {
        Ok(CmChannel { events: EventQueue::new(CmChannel::CAPACITY)?, account: Arc::default() })
    }

    /// Events that wait.
    pub fn queued(&self) -> usize {
        self.events.count()
    }

    /// False: there is no room.
    pub fn push(&self, event: Event) -> bool {
        self.events.push(event, &self.account)
    }

    #[doc(hidden)]
    pub fn take(&self) -> Option<Event> {
        let (event, account) = self.events.take()?;
        account.ack(1);
        Some(event)
    }

    /// Takes the requests to a listener that wait.
    pub fn take_requests(&self, to: ListenerId) -> Vec<Event> {
        self.events.remove_where(|event| match event {
            Event::ConnectRequest { listener, .. } | Event::SidrRequest { listener, .. } => *listener == to,
            _ => false,
        })
    }

    /// Takes what waits of one connection.
    pub fn take_of(&self, id: CommId) -> Vec<Event> {
        self.events.remove_where(|event| event.id() == id)
    }
}

impl AsFd for CmChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
