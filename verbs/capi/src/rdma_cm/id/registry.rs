//! The registry of the identifiers that connections and listeners of devices belong to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::outside::fork_generation::PerProcess;
use pumice_transport::cm::ListenerId;
use pumice_transport::mad::CommId;

use super::identifier::Id;

/// Identifiers of a process that the devices know. Each device numbers its own objects: the key begins with
/// the device's index among the devices.
#[derive(Default)]
pub(crate) struct IdRegistry {
    pub(crate) connections: BTreeMap<(usize, CommId), Arc<Id>>,
    pub(crate) listeners: BTreeMap<(usize, ListenerId), Arc<Id>>,
}

static REGISTRY: PerProcess<Mutex<IdRegistry>> = PerProcess::new(|_| Mutex::default());

/// Locks the registry and returns it. Events are fetched and connections begun under this lock, so that no
/// event is fetched of a connection that is not in it yet.
pub(crate) fn registry() -> MutexGuard<'static, IdRegistry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
