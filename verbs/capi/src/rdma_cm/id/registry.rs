//! Which identifier a connection or a listener of a device belongs to.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_transport::cm::ListenerId;
use pumice_transport::mad::CommId;

use super::identifier::Id;
use crate::ground::process::own_process;

/// The identifiers of a process that the devices know. Each device numbers what it has: the key begins with
/// the device's place among the devices.
pub(crate) struct Registry {
    process: u32,
    pub(crate) connections: BTreeMap<(usize, CommId), Arc<Id>>,
    pub(crate) listeners: BTreeMap<(usize, ListenerId), Arc<Id>>,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { process: 0, connections: BTreeMap::new(), listeners: BTreeMap::new() });

/// The registry, locked. Events are fetched and connections begun under it, so that no event is fetched
/// of a connection that is not in it yet.
pub(crate) fn registry() -> MutexGuard<'static, Registry> {
    let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    let process = own_process();
    if registry.process != process {
        // A fork: these are the parent's, and so is what they would release.
        registry.process = process;
        mem::forget((mem::take(&mut registry.connections), mem::take(&mut registry.listeners)));
    }
    registry
}
