//! Beginning and ending to listen.

use alloc::vec::Vec;

use super::{Cm, CmError, ListenParams, ListenerId};
use crate::mad::CommId;

impl Cm {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`CmError::ServiceInUse`] if the same services are listened for at the same addresses,
    /// [`CmError::TooManyListeners`].
    pub fn listen(&mut self, params: &ListenParams) -> Result<ListenerId, CmError> {
        if self.listeners.is_taken(params) {
            return Err(CmError::ServiceInUse(params.service_id));
        }
        if let Some(limit) = self.listeners.full() {
            return Err(CmError::TooManyListeners { limit });
        }
        Ok(self.listeners.add(params))
    }

    /// Ends listening. Requests that wait are destroyed, hence rejected; those that were taken stay.
    ///
    /// # Errors
    /// [`CmError::UnknownListener`].
    pub fn unlisten(&mut self, listener: ListenerId, now_ns: u64) -> Result<(), CmError> {
        self.listeners.remove(listener).ok_or(CmError::UnknownListener)?;
        let waiting = self.table.ids().filter(|(_, connection)| connection.waiting_at == Some(listener));
        let waiting: Vec<CommId> = waiting.map(|(id, _)| id).collect();
        for id in waiting {
            self.destroy(id, now_ns)?;
        }
        Ok(())
    }

    /// The consumer has taken the event of a request: it counts no longer against the backlog.
    /// Answering or destroying a request does the same.
    pub fn take_request(&mut self, id: CommId) {
        if let Some(connection) = self.table.get_mut(id)
            && let Some(listener) = connection.waiting_at.take()
        {
            self.listeners.dequeue(listener);
        }
    }
}
