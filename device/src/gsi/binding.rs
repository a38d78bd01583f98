//! Services that this process has bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_transport::cm::{BacklogOverflow, ListenParams, ListenerId};

use super::{CmChannel, ConnectionError, DirectoryError, Gsi, ServiceEntry};
use crate::port::Port;

/// A service that this process has bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingId(u32);

#[derive(Debug)]
struct Binding {
    entry: ServiceEntry,
    listener: Option<ListenerId>,
}

/// The services of a process.
#[derive(Debug, Default)]
pub(super) struct Bindings {
    next: u32,
    bindings: BTreeMap<BindingId, Binding>,
}

impl Bindings {
    /// As many as there are ports in two port spaces.
    const LIMIT: usize = 1 << 17;
}

impl Gsi {
    /// Binds a service: nobody else at the address gets it, in this process or another.
    pub(crate) fn bind(
        &mut self,
        entry: &ServiceEntry,
        port: &mut dyn Port,
    ) -> Result<BindingId, ConnectionError> {
        let refused = |error| ConnectionError::Directory { service_id: entry.service_id, error };
        let table = &mut self.bindings;
        if table.bindings.values().any(|binding| binding.entry.overlaps(entry)) {
            return Err(refused(DirectoryError::Taken { slot: self.process_slot }));
        }
        if table.bindings.len() >= Bindings::LIMIT {
            return Err(refused(DirectoryError::Full { limit: Bindings::LIMIT }));
        }
        if let Some(directory) = port.services() {
            directory.publish(entry).map_err(refused)?;
        }
        // Fewer bindings than numbers: one is free.
        while table.bindings.contains_key(&BindingId(table.next)) {
            table.next = table.next.wrapping_add(1);
        }
        let id = BindingId(table.next);
        table.next = table.next.wrapping_add(1);
        table.bindings.insert(id, Binding { entry: *entry, listener: None });
        Ok(id)
    }

    /// Releases a service, and ends listening for it.
    pub(crate) fn unbind(
        &mut self,
        id: BindingId,
        now_ns: u64,
        port: &mut dyn Port,
    ) -> Result<(), ConnectionError> {
        let binding = self.bindings.bindings.remove(&id).ok_or(ConnectionError::NotBound)?;
        if let Some(listener) = binding.listener {
            self.listeners.remove(&listener);
            self.cm.unlisten(listener, now_ns)?;
            self.forget_destroyed();
        }
        if let Some(directory) = port.services() {
            directory.withdraw(&binding.entry);
        }
        Ok(())
    }

    /// Listens for a service that was bound.
    pub(crate) fn listen(
        &mut self,
        id: BindingId,
        backlog: usize,
        overflow: BacklogOverflow,
        channel: &Arc<CmChannel>,
    ) -> Result<ListenerId, ConnectionError> {
        let binding = self.bindings.bindings.get_mut(&id).ok_or(ConnectionError::NotBound)?;
        if binding.listener.is_some() {
            return Err(ConnectionError::Listening);
        }
        let ServiceEntry { service_id, mask, local } = binding.entry;
        let listener = self.cm.listen(&ListenParams { service_id, mask, local, backlog, overflow })?;
        binding.listener = Some(listener);
        self.listeners.insert(listener, Arc::clone(channel));
        Ok(listener)
    }

    /// All services, released: the adapter is being closed.
    pub(crate) fn unbind_all(&mut self, now_ns: u64, port: &mut dyn Port) {
        let all: Vec<BindingId> = self.bindings.bindings.keys().copied().collect();
        for id in all {
            // It is there.
            let _ = self.unbind(id, now_ns, port);
        }
    }
}
