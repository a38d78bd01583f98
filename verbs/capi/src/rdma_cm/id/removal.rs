//! Devices that are pulled out, or whose addresses move: their identifiers get RDMA_CM_EVENT_DEVICE_REMOVAL
//! or RDMA_CM_EVENT_ADDR_CHANGE.

use std::sync::{Arc, Weak};

use super::identifier::{LocalEvent, Stage, known};
use super::registry::registry;
use super::shared::if_open;
use crate::objects::loss;
use crate::rdma_cm::constants::{ADDR_CHANGE, DEVICE_REMOVAL};

/// From now on identifiers are told. Calls that make the first ones ask for it.
pub(crate) fn tell_identifiers() {
    loss::tell(loss::Told { removed, address_changed });
}

/// A device was pulled out: each of its identifiers is told, and knows nothing on it any more.
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
                (state.connection, state.stage) = (None, Stage::Ended);
            }
            let channel = Arc::clone(&state.channel);
            drop(state);
            // One that listens on all devices goes on listening on the others.
            if is_on_it {
                channel.push(LocalEvent::new(Arc::clone(&id), DEVICE_REMOVAL, 0));
            }
        }
    }
}

/// The addresses of a device lead to another adapter: each of its identifiers is told, and goes on.
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
