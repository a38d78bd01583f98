//! Services that this process has bound.

use std::collections::{BTreeMap, BTreeSet};

use pumice_transport::cm::ListenerId;
use pumice_transport::mad::ServiceId;

use pumice_model::port::directory::ServiceEntry;

/// The identity of a service that this process has bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingId(u32);

#[derive(Debug)]
pub(crate) struct Binding {
    pub(super) entry: ServiceEntry,
    pub(super) listener: Option<ListenerId>,
}

/// The services of a process.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    next: u32,
    bindings: BTreeMap<BindingId, Binding>,
    /// Bindings of one service each, by service: there may be thousands.
    single: BTreeMap<ServiceId, Vec<BindingId>>,
    /// Bindings of several services, of which there are few.
    several: BTreeSet<BindingId>,
}

impl Bindings {
    /// Largest number of bindings: as many as there are ports in two port spaces.
    pub(crate) const LIMIT: usize = 1 << 17;

    /// Reports whether this entry and an existing one cover some request.
    pub(crate) fn is_taken(&self, entry: &ServiceEntry) -> bool {
        let overlaps = |id: &BindingId| self.bindings.get(id).is_some_and(|own| own.entry.overlaps(entry));
        if entry.mask != u64::MAX {
            return self.bindings.keys().any(overlaps);
        }
        let single = self.single.get(&entry.service_id).into_iter().flatten();
        single.chain(&self.several).any(overlaps)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bindings.len() >= Bindings::LIMIT
    }

    pub(crate) fn get_mut(&mut self, id: BindingId) -> Option<&mut Binding> {
        self.bindings.get_mut(&id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Binding> {
        self.bindings.values()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = BindingId> {
        self.bindings.keys().copied()
    }

    /// Adds a binding. The caller has checked that there is room.
    pub(crate) fn add(&mut self, entry: &ServiceEntry) -> BindingId {
        // There are fewer bindings than numbers, so one is free.
        while self.bindings.contains_key(&BindingId(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let id = BindingId(self.next);
        self.next = self.next.wrapping_add(1);
        self.insert(id, entry);
        id
    }

    fn insert(&mut self, id: BindingId, entry: &ServiceEntry) {
        if entry.mask == u64::MAX {
            self.single.entry(entry.service_id).or_default().push(id);
        } else {
            self.several.insert(id);
        }
        self.bindings.insert(id, Binding { entry: *entry, listener: None });
    }

    pub(crate) fn remove(&mut self, id: BindingId) -> Option<Binding> {
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
