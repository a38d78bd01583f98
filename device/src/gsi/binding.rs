//! Services that this process has bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pumice_transport::cm::{BacklogOverflow, ListenParams, ListenerId, Served};
use pumice_transport::mad::ServiceId;
use pumice_transport::wire::ProcessIndex;

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
    /// Those of one service each, by service: there may be thousands.
    single: BTreeMap<ServiceId, Vec<BindingId>>,
    /// Those of several services, of which there are few.
    several: BTreeSet<BindingId>,
}

impl Bindings {
    /// As many as there are ports in two port spaces.
    const LIMIT: usize = 1 << 17;

    /// Whether some request would be meant for this and for one that is there.
    fn is_taken(&self, entry: &ServiceEntry) -> bool {
        let overlaps = |id: &BindingId| self.bindings.get(id).is_some_and(|own| own.entry.overlaps(entry));
        if entry.mask != u64::MAX {
            return self.bindings.keys().any(overlaps);
        }
        let single = self.single.get(&entry.service_id).into_iter().flatten();
        single.chain(&self.several).any(overlaps)
    }

    fn insert(&mut self, id: BindingId, entry: &ServiceEntry) {
        if entry.mask == u64::MAX {
            self.single.entry(entry.service_id).or_default().push(id);
        } else {
            self.several.insert(id);
        }
        self.bindings.insert(id, Binding { entry: *entry, listener: None });
    }

    fn remove(&mut self, id: BindingId) -> Option<Binding> {
        let binding = self.bindings.remove(&id)?;
        self.several.remove(&id);
        if let Some(same) = self.single.get_mut(&binding.entry.service_id) {
            same.retain(|other| *other != id);
            if same.is_empty() {
                self.single.remove(&binding.entry.service_id);
            }
        }
        Some(binding)
    }
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
        if table.is_taken(entry) {
            return Err(refused(DirectoryError::Taken { process: ProcessIndex::new(self.process_slot) }));
        }
        if table.bindings.len() >= Bindings::LIMIT {
            return Err(refused(DirectoryError::Full { limit: Bindings::LIMIT }));
        }
        if let Some(directory) = port.group().and_then(|group| group.services()) {
            directory.publish(entry).map_err(refused)?;
        }
        // Fewer bindings than numbers: one is free.
        while table.bindings.contains_key(&BindingId(table.next)) {
            table.next = table.next.wrapping_add(1);
        }
        let id = BindingId(table.next);
        table.next = table.next.wrapping_add(1);
        table.insert(id, entry);
        Ok(id)
    }

    /// Releases a service, and ends listening for it.
    pub(crate) fn unbind(
        &mut self,
        id: BindingId,
        now_ns: u64,
        port: &mut dyn Port,
    ) -> Result<(), ConnectionError> {
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
    pub(crate) fn listen(
        &mut self,
        id: BindingId,
        served: Served,
        backlog: usize,
        overflow: BacklogOverflow,
        channel: &Arc<CmChannel>,
        port: &mut dyn Port,
    ) -> Result<ListenerId, ConnectionError> {
        let binding = self.bindings.bindings.get_mut(&id).ok_or(ConnectionError::NotBound)?;
        if binding.listener.is_some() {
            return Err(ConnectionError::Listening);
        }
        let ServiceEntry { service_id, mask, place } = binding.entry;
        let listener =
            self.cm.listen(&ListenParams { service_id, mask, place, served, backlog, overflow })?;
        binding.listener = Some(listener);
        if let Some(directory) = port.group().and_then(|group| group.services()) {
            directory.listen(&binding.entry);
        }
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
