//! The consumers' use of services: bind them, listen for them, release them.

use std::sync::Arc;

use pumice_transport::cm::{BacklogOverflow, ListenParams, ListenerId, Served};

use super::agent::Gsi;
use super::binding::{BindingId, Bindings};
use super::channel::CmChannel;
use super::error::ConnectionError;
use pumice_model::port::Port;
use pumice_model::port::directory::{DirectoryError, ServiceEntry};

impl Gsi {
    /// Binds a service: no other consumer at the address gets it, in this process or another.
    pub fn bind(&mut self, entry: &ServiceEntry, port: &mut dyn Port) -> Result<BindingId, ConnectionError> {
        let refused = |error| ConnectionError::Directory { service_id: entry.service_id, error };
        if self.bindings.is_taken(entry) {
            return Err(refused(DirectoryError::Taken { process: self.process }));
        }
        if self.bindings.is_full() {
            return Err(refused(DirectoryError::Full { limit: Bindings::LIMIT }));
        }
        if let Some(directory) = port.group().and_then(|group| group.services()) {
            directory.publish(entry).map_err(refused)?;
        }
        Ok(self.bindings.add(entry))
    }

    /// Releases a service, and ends listening for it.
    pub fn unbind(&mut self, id: BindingId, now_ns: u64, port: &mut dyn Port) -> Result<(), ConnectionError> {
        let binding = self.bindings.remove(id).ok_or(ConnectionError::NotBound)?;
        if let Some(listener) = binding.listener {
            self.listeners.remove(&listener);
            self.cm.unlisten(listener, now_ns)?;
            self.forget_destroyed();
        }
        if let Some(directory) = port.group().and_then(|group| group.services()) {
            directory.withdraw(&binding.entry);
        }
        Ok(())
    }

    /// Listens for a service that was bound.
    pub fn listen(
        &mut self,
        id: BindingId,
        served: Served,
        backlog: usize,
        overflow: BacklogOverflow,
        channel: &Arc<CmChannel>,
        port: &mut dyn Port,
    ) -> Result<ListenerId, ConnectionError> {
        let binding = self.bindings.get_mut(id).ok_or(ConnectionError::NotBound)?;
        if binding.listener.is_some() {
            return Err(ConnectionError::Listening);
        }
        let ServiceEntry { service_id, mask, scope } = binding.entry;
        let listener =
            self.cm.listen(&ListenParams { service_id, mask, scope, served, backlog, overflow })?;
        binding.listener = Some(listener);
        if let Some(directory) = port.group().and_then(|group| group.services()) {
            directory.listen(&binding.entry);
        }
        self.listeners.insert(listener, Arc::clone(channel));
        Ok(listener)
    }

    /// Returns the services of one program each that are listened for, and how many events wait on the
    /// channel of each.
    pub fn listening(&self) -> impl Iterator<Item = (&ServiceEntry, usize)> {
        let listening = self.bindings.all().filter(|binding| binding.entry.mask == u64::MAX);
        listening.filter_map(|binding| {
            let channel = self.listeners.get(&binding.listener?)?;
            Some((&binding.entry, channel.queued()))
        })
    }

    /// Releases all services, because the adapter is being closed.
    pub fn unbind_all(&mut self, now_ns: u64, port: &mut dyn Port) {
        let all: Vec<BindingId> = self.bindings.ids().collect();
        for id in all {
            // The binding exists.
            let _ = self.unbind(id, now_ns, port);
        }
    }
}
