//! The objects of the program: which are there, where they were made, and which are gone.

use std::collections::{BTreeMap, HashMap, VecDeque};

use fnv::FnvBuildHasher;
use pumice_ground::call_stack::Stack;

use pumice_ground::number_map::NumberMap;
use pumice_ground::ordinal::{ObjectOrdinals, Ordinal};

use super::of_device::OfDevice;

/// Objects that are known; of later ones nothing is said.
const MAX_OBJECTS: usize = 1 << 17;
/// Destroyed objects that are remembered.
const MAX_GONE: usize = 4096;

/// What messages call memory regions.
pub(super) const REGION: &str = "memory region";

/// An object that the program has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    /// As in "queue pair".
    pub(super) kind: &'static str,
    /// Its number among those of its kind, on its device if it is of one.
    pub(super) ordinal: u32,
    /// The device that it is of.
    pub(super) device: OfDevice,
    /// The call that made it.
    pub(super) call: &'static str,
    /// Where it was made.
    pub(super) made: Stack,
    /// The program has tried to destroy it.
    pub(super) is_excused: bool,
}

impl Object {
    /// As in "queue pair 3", or "queue pair 3 of pumice1".
    pub(super) fn name(&self) -> String {
        format!("{} {}{}", self.kind, Ordinal(self.ordinal), self.device.words())
    }
}

/// An object that was destroyed.
#[derive(Debug, Clone)]
pub(super) struct Gone {
    pub(super) object: Object,
    /// Where it was destroyed.
    pub(super) destroyed: Stack,
}

/// All objects by the address of the program's pointer.
#[derive(Debug, Default)]
pub(super) struct Objects {
    live: NumberMap<u64, Object>,
    made: BTreeMap<(&'static str, Option<&'static str>), ObjectOrdinals>,
    gone: HashMap<u64, Gone, FnvBuildHasher>,
    gone_order: VecDeque<u64>,
    /// Those of the parent, in a child process.
    inherited: HashMap<u64, Object, FnvBuildHasher>,
}

impl Objects {
    /// The program gets an object.
    pub(super) fn add(
        &mut self,
        address: u64,
        device: OfDevice,
        kind: &'static str,
        call: &'static str,
        made: Stack,
    ) {
        let Ordinal(ordinal) = self.made.entry((kind, device.name)).or_default().add();
        self.gone.remove(&address);
        self.inherited.remove(&address);
        if self.live.len() < MAX_OBJECTS {
            self.live.insert(address, Object { kind, ordinal, device, call, made, is_excused: false });
        }
    }

    /// The program has destroyed an object.
    pub(super) fn remove(&mut self, address: u64, destroyed: Stack) {
        let Some(object) = self.live.remove(&address) else { return };
        if self.gone_order.len() >= MAX_GONE
            && let Some(oldest) = self.gone_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
        self.gone_order.push_back(address);
        self.gone.insert(address, Gone { object, destroyed });
    }

    /// An object went with its context.
    pub(super) fn take(&mut self, address: u64) -> Option<Object> {
        self.live.remove(&address)
    }

    pub(super) fn at(&self, address: u64) -> Option<&Object> {
        self.live.get(&address)
    }

    pub(super) fn at_mut(&mut self, address: u64) -> Option<&mut Object> {
        self.live.get_mut(&address)
    }

    pub(super) fn gone(&self, address: u64) -> Option<&Gone> {
        self.gone.get(&address)
    }

    pub(super) fn inherited(&self, address: u64) -> Option<&Object> {
        self.inherited.get(&address)
    }

    /// How many of a kind there are.
    pub(super) fn count(&self, kind: &str) -> usize {
        self.live.values().filter(|object| object.kind == kind).count()
    }

    /// What there is, by kind and age.
    pub(super) fn live(&self) -> Vec<Object> {
        let mut all: Vec<Object> = self.live.values().cloned().collect();
        all.sort_by_key(|object| (object.kind, object.device.index, object.ordinal));
        all
    }

    /// This is a child process: everything is the parent's.
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
        for address in 0..2 * MAX_GONE as u64 {
            objects.add(address, OfDevice::default(), "queue pair", "ibv_create_qp", Stack::default());
            objects.remove(address, Stack::default());
        }
        assert!(objects.gone(0).is_none());
        assert_eq!(objects.gone.len(), MAX_GONE);
        let last = 2 * MAX_GONE as u64 - 1;
        assert_eq!(objects.gone(last).map(|gone| gone.object.name()).as_deref(), Some("queue pair 8191"));
        objects.add(last, OfDevice::default(), "queue pair", "ibv_create_qp", Stack::default());
        assert!(objects.gone(last).is_none(), "the address is in use again");
        objects.forked();
        assert!(objects.at(last).is_none() && objects.inherited(last).is_some());
    }
}
