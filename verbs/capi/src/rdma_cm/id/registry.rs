//! Which identifier a connection or a listener of a device belongs to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::outside::lineage::PerProcess;
use pumice_transport::cm::ListenerId;
use pumice_transport::mad::CommId;

use super::identifier::Id;

/// The identifiers of a process that the devices know. Each device numbers what it has: the key begins with
/// the device's index among the devices.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) connections: BTreeMap<(usize, CommId), Arc<Id>>,
    pub(crate) listeners: BTreeMap<(usize, ListenerId), Arc<Id>>,
}

static REGISTRY: PerProcess<Mutex<Registry>> = PerProcess::new(|_| Mutex::default());

/// The registry, locked. Events are fetched and connections begun under it, so that no event is fetched
/// of a connection that is not in it yet.
pub(crate) fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
