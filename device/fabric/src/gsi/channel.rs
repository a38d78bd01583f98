//! The channel on which a consumer gets the events of its connections.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use pumice_platform::error::ResourceError;
use pumice_platform::event_queue::{EventAccount, EventQueue};
use pumice_transport::cm::{CmEvent, ListenerId};
use pumice_transport::mad::CommId;

/// A queue of events of connections, in order. The descriptor is readable while there are any.
#[derive(Debug)]
pub struct CmChannel {
    events: EventQueue<CmEvent>,
    account: Arc<EventAccount>,
}

impl CmChannel {
    /// Largest number of events that wait. Requests beyond it are turned away; of other events there are a
    /// few per connection.
    pub const CAPACITY: usize = 1 << 20;

    /// Creates an empty channel.
    ///
    /// # Errors
    /// Fails with `Os` if no file descriptor is available.
    pub fn new() -> Result<CmChannel, ResourceError> {
        Ok(CmChannel { events: EventQueue::new(CmChannel::CAPACITY)?, account: Arc::default() })
    }

    /// Returns the number of events that wait.
    pub fn queued(&self) -> usize {
        self.events.count()
    }

    /// Adds an event. Returns false if there is no room.
    pub fn push(&self, event: CmEvent) -> bool {
        self.events.push(event, &self.account)
    }

    #[doc(hidden)]
    pub fn take(&self) -> Option<CmEvent> {
        let (event, account) = self.events.take()?;
        account.ack(1);
        Some(event)
    }

    /// Takes the requests to a listener that wait.
    pub fn take_requests(&self, to: ListenerId) -> Vec<CmEvent> {
        self.events.remove_where(|event| match event {
            CmEvent::ConnectRequest { listener, .. } | CmEvent::SidrRequest { listener, .. } => {
                *listener == to
            }
            _ => false,
        })
    }

    /// Takes the events of one connection that wait.
    pub fn take_of(&self, id: CommId) -> Vec<CmEvent> {
        self.events.remove_where(|event| event.id() == id)
    }
}

impl AsFd for CmChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
