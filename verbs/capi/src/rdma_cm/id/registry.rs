//! The registry of the identifiers that connections and listeners of devices belong to, and devices that are
//! removed.
//!
//! Devices that are removed, or whose addresses move: their identifiers get RDMA_CM_EVENT_DEVICE_REMOVAL or
//! RDMA_CM_EVENT_ADDR_CHANGE.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pumice_device::outside::fork_generation::PerProcess;
use pumice_transport::cm::ListenerId;
use pumice_transport::mad::CommId;

use super::shared::if_open;
use super::{Id, IdStage, LocalEvent, known};
use crate::objects::device;
use crate::rdma_cm::constants::{ADDR_CHANGE, DEVICE_REMOVAL};

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

/// Registers the notification of identifiers. Calls that make the first identifiers call this.
pub(crate) fn register_loss_callbacks() {
    device::set_callbacks(device::LossCallbacks { removed, address_changed });
}

/// Notifies each identifier of a removed device, and drops its objects on it.
fn removed(index: usize) {
    let Some(shared) = if_open().and_then(|all| all.iter().find(|shared| shared.index() == index)) else {
        return;
    };
    let known = known();
    let mut registry = registry();
    registry.connections.retain(|(device, _), _| *device != index);
    registry.listeners.retain(|(device, _), _| *device != index);
    for id in known.iter().filter_map(Weak::upgrade) {
        let is_listening = {
            let mut state = id.state();
            let before = state.listeners.len();
            state.listeners.retain(|(device, _)| *device != index);
            state.bindings.retain(|(device, _)| *device != index);
            before != state.listeners.len()
        };
        let is_on_it = id.c.verbs() == shared.context();
        if is_on_it || is_listening {
            let mut state = id.state();
            if is_on_it {
                (state.connection, state.stage) = (None, IdStage::Ended);
            }
            let channel = Arc::clone(&state.channel);
            drop(state);
            // One that listens on all devices continues on the others.
            if is_on_it {
                channel.push(LocalEvent::new(Arc::clone(&id), DEVICE_REMOVAL, 0));
            }
        }
    }
}

/// Notifies each identifier of a device whose addresses lead to another adapter; the identifiers continue.
fn address_changed(index: usize) {
    let Some(shared) = if_open().and_then(|all| all.iter().find(|shared| shared.index() == index)) else {
        return;
    };
    for id in known().iter().filter_map(Weak::upgrade) {
        if id.c.verbs() == shared.context() {
            let channel = Arc::clone(&id.state().channel);
            channel.push(LocalEvent::new(Arc::clone(&id), ADDR_CHANGE, 0));
        }
    }
}
