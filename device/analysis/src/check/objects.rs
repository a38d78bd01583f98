//! The objects of the program, and the device that calls and events are about.
//!
//! Each device counts its objects from the beginning, so the handles of two of them are alike. Records by
//! handle are therefore by device as well. Numbers of queue pairs need no device: each device of a process
//! has numbers of its own.

use std::collections::{BTreeMap, HashMap, VecDeque};

use fnv::FnvBuildHasher;
use pumice_platform::call_stack::Stack;
use pumice_platform::number_map::NumberMap;
use pumice_platform::ordinal::{ObjectOrdinals, Ordinal};

/// A device of the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceTag {
    /// Index among the devices, below 16.
    pub index: u8,
    /// Name for findings, if there are several devices.
    pub name: Option<&'static str>,
}

impl DeviceTag {
    /// Returns the words that name the device, as in " of pumice1"; empty if there is only one.
    pub(super) fn words(self) -> String {
        self.name.map(|name| format!(" of {name}")).unwrap_or_default()
    }

    /// Returns the number that stands for a handle of this device.
    pub(super) const fn handle(self, handle: u32) -> u32 {
        // No table of a device has 2^28 entries.
        (self.index as u32) << 28 | handle
    }

    /// Returns the number that stands for a memory key of this device.
    pub(super) const fn key(self, key: u32) -> u64 {
        (self.index as u64) << 32 | key as u64
    }
}

/// Number of objects that are tracked; later ones are not checked.
const MAX_OBJECTS: usize = 1 << 17;
/// Number of destroyed objects that are remembered.
const MAX_FORMER: usize = 4096;

/// Name of memory regions in messages.
pub(super) const REGION: &str = "memory region";

/// An object that the program has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    /// Name of its kind, as in "queue pair".
    pub(super) kind: &'static str,
    /// Number among the objects of its kind, on its device if it is of one.
    pub(super) ordinal: u32,
    /// Device that it is of.
    pub(super) device: DeviceTag,
    /// Name of the call that made it.
    pub(super) call: &'static str,
    /// Call site that made it.
    pub(super) made: Stack,
    /// The program has tried to destroy it.
    pub(super) is_excused: bool,
}

impl Object {
    /// Returns the name of the object, as in "queue pair 3", or "queue pair 3 of pumice1".
    pub(super) fn name(&self) -> String {
        format!("{} {}{}", self.kind, Ordinal(self.ordinal), self.device.words())
    }
}

/// An object that was destroyed.
#[derive(Debug, Clone)]
pub(super) struct FormerObject {
    pub(super) object: Object,
    /// Call site that destroyed it.
    pub(super) destroyed: Stack,
}

/// All objects by the address of the program's pointer.
#[derive(Debug, Default)]
pub(super) struct Objects {
    live: NumberMap<u64, Object>,
    made: BTreeMap<(&'static str, Option<&'static str>), ObjectOrdinals>,
    former: HashMap<u64, FormerObject, FnvBuildHasher>,
    former_order: VecDeque<u64>,
    /// Objects of the parent, in a fork child.
    inherited: HashMap<u64, Object, FnvBuildHasher>,
}

impl Objects {
    /// Adds an object that the program got.
    pub(super) fn add(
        &mut self,
        address: u64,
        device: DeviceTag,
        kind: &'static str,
        call: &'static str,
        made: Stack,
    ) {
        let Ordinal(ordinal) = self.made.entry((kind, device.name)).or_default().add();
        self.former.remove(&address);
        self.inherited.remove(&address);
        if self.live.len() < MAX_OBJECTS {
            self.live.insert(address, Object { kind, ordinal, device, call, made, is_excused: false });
        }
    }

    /// Removes an object that the program has destroyed.
    pub(super) fn remove(&mut self, address: u64, destroyed: Stack) {
        let Some(object) = self.live.remove(&address) else { return };
        if self.former_order.len() >= MAX_FORMER
            && let Some(oldest) = self.former_order.pop_front()
        {
            self.former.remove(&oldest);
        }
        self.former_order.push_back(address);
        self.former.insert(address, FormerObject { object, destroyed });
    }

    /// Removes an object that ended with its context.
    pub(super) fn take(&mut self, address: u64) -> Option<Object> {
        self.live.remove(&address)
    }

    pub(super) fn at(&self, address: u64) -> Option<&Object> {
        self.live.get(&address)
    }

    pub(super) fn at_mut(&mut self, address: u64) -> Option<&mut Object> {
        self.live.get_mut(&address)
    }

    pub(super) fn former(&self, address: u64) -> Option<&FormerObject> {
        self.former.get(&address)
    }

    pub(super) fn inherited(&self, address: u64) -> Option<&Object> {
        self.inherited.get(&address)
    }

    /// Returns how many objects of a kind there are.
    pub(super) fn count(&self, kind: &str) -> usize {
        self.live.values().filter(|object| object.kind == kind).count()
    }

    /// Returns the existing objects, by kind and age.
    pub(super) fn live(&self) -> Vec<Object> {
        let mut all: Vec<Object> = self.live.values().cloned().collect();
        all.sort_by_key(|object| (object.kind, object.device.index, object.ordinal));
        all
    }

    /// Marks all objects as the parent's, in a fork child.
    pub(super) fn forked(&mut self) {
        self.inherited.extend(self.live.iter().map(|(address, object)| (*address, object.clone())));
        self.live.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destroyed_objects_are_remembered_for_a_while() {
        let mut objects = Objects::default();
        for address in 0..2 * MAX_FORMER as u64 {
            objects.add(address, DeviceTag::default(), "queue pair", "ibv_create_qp", Stack::default());
            objects.remove(address, Stack::default());
        }
        assert!(objects.former(0).is_none());
        assert_eq!(objects.former.len(), MAX_FORMER);
        let last = 2 * MAX_FORMER as u64 - 1;
        assert_eq!(
            objects.former(last).map(|former| former.object.name()).as_deref(),
            Some("queue pair 8191")
        );
        objects.add(last, DeviceTag::default(), "queue pair", "ibv_create_qp", Stack::default());
        assert!(objects.former(last).is_none(), "the address is in use again");
        objects.forked();
        assert!(objects.at(last).is_none() && objects.inherited(last).is_some());
    }
}
