//! Adding and removing listeners.

use alloc::vec::Vec;

use super::{Cm, CmError, ListenParams, ListenerId};
use crate::mad::CommId;

impl Cm {
    /// Begins to listen for the services of `params`.
    ///
    /// # Errors
    /// Fails with [`CmError::ServiceInUse`] if another listener has the same services at the same addresses,
    /// and with [`CmError::TooManyListeners`].
    pub fn listen(&mut self, params: &ListenParams) -> Result<ListenerId, CmError> {
        if self.listeners.is_taken(params) {
            return Err(CmError::ServiceInUse(params.service_id));
        }
        if let Some(limit) = self.listeners.full() {
            return Err(CmError::TooManyListeners { limit });
        }
        Ok(self.listeners.add(params))
    }

    /// Removes a listener. Requests that wait are destroyed, hence rejected; requests that were taken stay.
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownListener`] if there is no such listener.
    pub fn unlisten(&mut self, listener: ListenerId, now_ns: u64) -> Result<(), CmError> {
        self.listeners.remove(listener).ok_or(CmError::UnknownListener)?;
        let waiting = self.table.ids().filter(|(_, connection)| connection.waiting_at == Some(listener));
        let waiting: Vec<CommId> = waiting.map(|(id, _)| id).collect();
        for id in waiting {
            self.destroy(id, now_ns)?;
        }
        Ok(())
    }

    /// Removes a request from its listener's backlog because the consumer has taken its event. Answering or
    /// destroying a request does the same.
    pub fn take_request(&mut self, id: CommId) {
        if let Some(connection) = self.table.get_mut(id)
            && let Some(listener) = connection.waiting_at.take()
        {
            self.listeners.dequeue(listener);
        }
    }
}
