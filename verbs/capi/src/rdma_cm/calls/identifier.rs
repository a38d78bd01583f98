//! Creation, migration and destruction of identifiers.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use pumice_calls::Call;

use crate::abi::rdma_cm_id;
use crate::entry::outcome::{number, number_of};
use crate::platform::errno::{Errno, INVALID};
use crate::rdma_cm::events::fetch::acknowledge_last;
use crate::rdma_cm::id::identifier::{EventChannel, EventChannelPointer, Id, IdPointer, IdStage};
use crate::rdma_cm::id::ports;
use crate::rdma_cm::id::registry::registry;
use crate::rdma_cm::id::removal::register_loss_callbacks;
use crate::rdma_cm::id::shared::shared_at;

pub(crate) extern "C" fn rdma_create_id(
    channel: EventChannelPointer,
    id: Option<&mut MaybeUninit<*mut rdma_cm_id>>,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    number(Call::rdma_create_id, || {
        let id = id.ok_or(INVALID)?;
        register_loss_callbacks();
        id.write(Id::create(channel.channel()?, context, ps, None)?.hand_out());
        Ok(0)
    })
}

/// Destroys an identifier; the peer is notified that the connection ends. The call waits until all events
/// that the program has fetched are acknowledged.
pub(crate) extern "C" fn rdma_destroy_id(id: IdPointer) -> c_int {
    number_of(Call::rdma_destroy_id, id.about(), || {
        destroy(&id.id()?, Call::rdma_destroy_id)?;
        drop(id.take_back());
        Ok(0)
    })
}

/// Ends the activity of an identifier, and waits until its events are acknowledged; `call` is the call that
/// waits. Its memory is freed with the last reference.
///
/// # Errors
/// Fails with the errors of opening the device.
pub(crate) fn destroy(id: &Arc<Id>, call: Call) -> Result<(), Errno> {
    let shared = id.shared()?;
    let (connection, bindings) = {
        let mut registry = registry();
        let mut state = id.state();
        state.stage = IdStage::Ended;
        state.channel.retract(id, |_| true);
        if let Some(connection) = state.connection {
            registry.connections.remove(&(shared.index(), connection));
        }
        for listener in std::mem::take(&mut state.listeners) {
            registry.listeners.remove(&listener);
        }
        if let Some(local) = state.addresses.local {
            ports::release(id.port_space(), id.as_ptr().addr(), local.port());
        }
        (state.connection.take(), std::mem::take(&mut state.bindings))
    };
    // Both fail for objects that the device has ended already.
    if let Some(connection) = connection {
        let _ = shared.hca().cm_destroy(connection);
    }
    for (index, binding) in bindings {
        let _ = shared_at(index)?.hca().cm_unbind(binding);
    }
    acknowledge_last(id);
    //= man:rdma_destroy_id
    //| An identifier is not destroyed before its events are acknowledged.
    id.unacknowledged().wait(call, id.as_ptr().addr());
    Ok(())
}

/// Moves an identifier and its waiting events to another channel; without one it becomes synchronous. The
/// call waits until all events that the program has fetched are acknowledged.
pub(crate) extern "C" fn rdma_migrate_id(id: IdPointer, channel: EventChannelPointer) -> c_int {
    number_of(Call::rdma_migrate_id, id.on(), || {
        let (own, given) = (id.id()?, channel.channel()?);
        let (synchronous, was_synchronous) = (given.is_none(), own.state().synchronous);
        if synchronous && was_synchronous {
            return Err(INVALID.because(|| "this identifier is synchronous already".to_owned()));
        }
        let channel = given.map_or_else(EventChannel::new, Ok)?;
        migrate(&own, channel, synchronous)?;
        if was_synchronous {
            acknowledge_last(&own);
        }
        //= man:rdma_migrate_id
        //| Moving an identifier waits until its events are acknowledged.
        own.unacknowledged().wait(Call::rdma_migrate_id, own.as_ptr().addr());
        Ok(0)
    })
}

/// Moves an identifier and its waiting events to another channel.
///
/// # Errors
/// Fails with the errors of opening the device.
pub(crate) fn migrate(id: &Arc<Id>, channel: Arc<EventChannel>, synchronous: bool) -> Result<(), Errno> {
    let _registry = registry();
    id.migrate(channel, synchronous)
}

pub(crate) extern "C" fn rdma_get_src_port(id: IdPointer) -> u16 {
    id.known().ok().and_then(|id| id.state().addresses.local).map_or(0, |local| local.port().to_be())
}

pub(crate) extern "C" fn rdma_get_dst_port(id: IdPointer) -> u16 {
    id.known().ok().and_then(|id| id.state().addresses.remote).map_or(0, |remote| remote.port().to_be())
}
