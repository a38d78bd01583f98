//! Devices that are removed, or whose addresses move: their identifiers get RDMA_CM_EVENT_DEVICE_REMOVAL or
//! RDMA_CM_EVENT_ADDR_CHANGE.

use std::sync::{Arc, Weak};

use super::identifier::{IdStage, LocalEvent, known};
use super::registry::registry;
use super::shared::if_open;
use crate::objects::loss;
use crate::rdma_cm::constants::{ADDR_CHANGE, DEVICE_REMOVAL};

/// Registers the notification of identifiers. Calls that make the first identifiers call this.
pub(crate) fn register_loss_callbacks() {
    loss::set_callbacks(loss::LossCallbacks { removed, address_changed });
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
