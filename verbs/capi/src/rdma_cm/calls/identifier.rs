//! Identifiers, their contexts, event channels and events: create, bind, listen, fetch, migrate, destroy.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ptr;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::settings::MAX_DEVICES;
use pumice_transport::cm::BacklogOverflow;

use crate::abi::{ibv_context, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use crate::check;
use crate::entry::{TRY_AGAIN, attempt, number, number_of, pointer, value};
use crate::gate::CallSubject;
use crate::platform::reserve::{Allocation, free};
use crate::platform::threads::blocking;
use crate::platform::{Errno, INVALID};
use crate::rdma_cm::address::AddressPointer;
use crate::rdma_cm::constants::{USER, event_name, is_failure_event};
use crate::rdma_cm::events::translation::{acknowledge_last, next_event};
use crate::rdma_cm::events::{RdmaCmEvent, acknowledge};
use crate::rdma_cm::id::binding::{bind, stop_sharing_of};
use crate::rdma_cm::id::channel::EventParameters;
use crate::rdma_cm::id::registry::{register_loss_callbacks, registry};
use crate::rdma_cm::id::shared::{all, shared_at, up_to_date};
use crate::rdma_cm::id::{EventChannel, EventChannelPointer, Id, IdPointer, IdStage, LocalEvent, binding};

/// Returns the contexts that identifiers can be on, ending with NULL.
pub(crate) extern "C" fn rdma_get_devices(
    num_devices: Option<&mut MaybeUninit<c_int>>,
) -> *mut *mut ibv_context {
    let mut count = 0;
    let list: *mut *mut ibv_context = pointer(Call::rdma_get_devices, || {
        // All elements begin as null, also the last, which ends the list.
        let mut list = [ptr::null_mut(); MAX_DEVICES + 1];
        let devices = up_to_date()?.iter().filter(|device| !device.is_removed()).take(MAX_DEVICES);
        for (element, device) in list.iter_mut().zip(devices) {
            *element = device.context();
            count += 1;
        }
        Ok(Allocation::new(list)?.into_raw().cast())
    });
    if let Some(number) = num_devices {
        // The number is written even if there is no list: some programs read only the number.
        number.write(if list.is_null() { 0 } else { count });
    }
    list
}

pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: NULL, or the program gives back a list of `rdma_get_devices`. The contexts themselves are not
    // freed.
    unsafe { free(list.cast()) }
}

pub(crate) extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    number(Call::rdma_ack_cm_event, || {
        let done = acknowledge(event);
        if check::is_on() {
            check::misuse::acknowledges_event(event.addr(), done.is_ok());
        }
        done.map(|()| 0)
    })
}

pub(crate) extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    event_name(event).as_ptr()
}

/// Queues RDMA_CM_EVENT_USER with this status and number, which wakes the threads that wait at the
/// identifier's channel.
pub(crate) extern "C" fn rdma_write_cm_event(id: IdPointer, event: u32, status: c_int, arg: u64) -> c_int {
    number_of(Call::rdma_write_cm_event, id.on(), || {
        let id = id.id()?;
        if event != USER {
            return Err(INVALID.because(|| "programs write RDMA_CM_EVENT_USER only".to_owned()));
        }
        let channel = id.state().channel.clone();
        channel.push(LocalEvent { id, event, status, parameters: EventParameters::Number(arg) });
        Ok(0)
    })
}

pub(crate) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(Call::rdma_create_event_channel, || {
        // Without a device there are no events.
        all()?;
        Ok(EventChannel::new()?.hand_out())
    })
}

/// Destroys a channel. Identifiers that still use it keep the parts that they need. A thread that waits in
/// it, or is about to, waits for ever, as in rdma-core; the channel is not freed then.
pub(crate) extern "C" fn rdma_destroy_event_channel(channel: EventChannelPointer) {
    value((), || {
        if check::is_on() {
            check::misuse::destroys_channel(channel.addr(), &channel.identifiers());
        }
        if let Some(channel) = channel.take_back()
            && !channel.is_nonblocking()
            && channel.reader.still_waits()
        {
            mem::forget(channel);
        }
    });
}

/// Returns the next event of a channel: waits for it unless the descriptor is O_NONBLOCK (EAGAIN). A signal
/// ends the wait (EINTR). A waiting thread can be cancelled.
pub(crate) extern "C-unwind" fn rdma_get_cm_event(
    channel: EventChannelPointer,
    mut event: Option<&mut MaybeUninit<*mut rdma_cm_event>>,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        attempt(Call::rdma_get_cm_event, CallSubject::NOTHING, || {
            let event = event.as_deref_mut().ok_or(INVALID)?;
            let channel = channel.channel()?.ok_or(INVALID)?;
            let next = next_event(&channel)?;
            let of = next.waiter().as_ptr().addr();
            let (about, failed) = (next.id().as_ptr().addr(), failure(&next));
            let pointer = next.hand_out();
            check::with_checker(|checker| checker.cm_event_got(of as u64, pointer.addr() as u64));
            if check::is_on() {
                check::misuse::got_event(pointer.addr(), about, failed);
            }
            event.write(pointer);
            Ok(0)
        })
    })
}

/// Returns, if an event says that its identifier is not connected, the addresses of the identifier and of its
/// queue pair, and the event's name.
fn failure(event: &RdmaCmEvent) -> Option<(usize, usize, String)> {
    let (kind, _) = event.facts();
    let name = is_failure_event(kind).then(|| event_name(kind as c_int).to_string_lossy().into_owned())?;
    let id = event.id();
    Some((id.as_ptr().addr(), id.c.qp().addr(), name))
}

/// Largest number of waiting requests, also used when the program gives none, as in Linux.
const BACKLOG: usize = 1024;

pub(crate) extern "C" fn rdma_bind_addr(id: IdPointer, addr: AddressPointer) -> c_int {
    number_of(Call::rdma_bind_addr, id.on(), || {
        let (own, address) = (id.id()?, addr.parse()?);
        let mut state = own.state();
        state.addresses.by_gid = addr.is_gid();
        bind(&own, &mut state, address)?;
        Ok(0)
    })
}

pub(crate) extern "C" fn rdma_listen(id: IdPointer, backlog: c_int) -> c_int {
    number_of(Call::rdma_listen, id.on(), || {
        listen(&id.id()?, backlog)?;
        Ok(0)
    })
}

/// Offers the service of the identifier's address.
///
/// # Errors
/// Fails with the errors of `rdma_listen`.
pub(crate) fn listen(own: &Arc<Id>, backlog: c_int) -> Result<(), Errno> {
    let mut registry = registry();
    let mut state = own.state();
    if state.stage == IdStage::Idle {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        bind(own, &mut state, any)?;
    }
    //= man:rdma_listen
    //| An identifier is bound before it listens.
    if state.stage != IdStage::Bound {
        return Err(INVALID.because(|| "only an identifier that is bound, and no more, listens".to_owned()));
    }
    if state.bindings.is_empty() {
        state.bindings = stop_sharing_of(own, &state)?;
    }
    //= man:rdma_listen
    //| The backlog limits the requests that wait.
    let backlog = usize::try_from(backlog).ok().filter(|backlog| (1..BACKLOG).contains(backlog));
    let (backlog, overflow) = (backlog.unwrap_or(BACKLOG), BacklogOverflow::Ignore);
    for (index, binding) in state.bindings.clone() {
        let (hca, channel) = (shared_at(index)?.hca(), Arc::clone(state.channel.device(index)));
        let listener = hca.cm_listen(binding, own.served(), backlog, overflow, &channel)?;
        state.listeners.push((index, listener));
        registry.listeners.insert((index, listener), Arc::clone(own));
    }
    state.stage = IdStage::Listening;
    Ok(())
}

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
            binding::release_port(id.port_space(), id.as_ptr().addr(), local.port());
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
