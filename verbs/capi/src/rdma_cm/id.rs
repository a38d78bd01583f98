//! Identifiers: a program's end of a connection, a listener or a question.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::gsi::BindingId;
use pumice_transport::cm::{CmPath, ListenerId, Served};
use pumice_transport::mad::{CommId, Ece, PortSpace, TransportType};
use pumice_transport::wire::Psn;

use super::acknowledgement::Unacknowledged;
use super::address;
use super::channel::Channel;
use super::event::rdma_ack_cm_event;
use super::infiniband;
use super::multicast::Membership;
use super::registry::registry;
use super::resolve_info::Question;
use super::shared::{Shared, random, shared};
use crate::ground::abi::{ibv_qp_init_attr, ibv_sa_path_rec, rdma_cm_id, rdma_event_channel};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::{Held, Shown, zeroed};
use crate::ground::outcome::number;

/// `IBV_QPT_*`.
pub(crate) const QPT_RC: u32 = 2;
pub(crate) const QPT_UC: u32 = 3;
pub(crate) const QPT_UD: u32 = 4;
pub(crate) const QPT_XRC_SEND: u32 = 9;
pub(crate) const QPT_XRC_RECV: u32 = 10;

/// An identifier.
#[repr(C)]
pub(crate) struct Id {
    c: Shown<rdma_cm_id>,
    /// What `route.path_rec` points at once there is a path.
    path: Shown<ibv_sa_path_rec>,
    state: Mutex<State>,
    unacknowledged: Unacknowledged,
}

// SAFETY: the C structure's fields are written by the program's own calls on it, which must not race, and
// by this library before the program gets it; the rest is locked.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}
// SAFETY: the first field is the C structure.
unsafe impl Held for Id {
    type C = rdma_cm_id;
}

/// What an identifier is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing yet.
    Idle,
    /// It has an address.
    Bound,
    /// It has a peer's address.
    AddressResolved,
    /// It has a path.
    RouteResolved,
    /// Requests come to it.
    Listening,
    /// A request of its own is under way.
    Connecting,
    /// It is somebody's request.
    Requested,
    /// The request was accepted.
    Accepted,
    /// Connected, or the question is answered.
    Connected,
    /// Nothing more will come of it.
    Over,
}

/// `rdma_set_option`.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) type_of_service: u8,
    pub(crate) reuse_address: bool,
    /// Whether all addresses are those of one family, if the program says so.
    pub(crate) one_family: Option<bool>,
    /// Time code of the transport timeout.
    pub(crate) ack_timeout: Option<u8>,
}

/// What changes of an identifier.
pub(crate) struct State {
    pub(crate) channel: Arc<Channel>,
    /// Calls wait for their event.
    pub(crate) synchronous: bool,
    pub(crate) stage: Stage,
    pub(crate) connection: Option<CommId>,
    pub(crate) binding: Option<BindingId>,
    pub(crate) listener: Option<ListenerId>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) path: Option<CmPath>,
    /// Where the peer's PSNs begin.
    pub(crate) psn: Psn,
    pub(crate) options: Options,
    /// READs and atomics to serve, and to have outstanding.
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    /// Of an endpoint: what queue pairs its requests get, and what it says when it connects.
    pub(crate) queue_pair: Option<ibv_qp_init_attr>,
    pub(crate) greeting: Vec<u8>,
    pub(crate) local_ece: Ece,
    pub(crate) remote_ece: Ece,
    /// The program was told of the disconnection.
    pub(crate) parted: bool,
    pub(crate) groups: Vec<Membership>,
    /// The program writes its addresses as GIDs (AF_IB).
    pub(crate) by_gid: bool,
    pub(crate) question: Question,
}

// SAFETY: the pointers in it are the program's, and only handed on.
unsafe impl Send for State {}

impl Id {
    /// A new identifier.
    pub(crate) fn new(
        channel: Arc<Channel>,
        synchronous: bool,
        context: *mut c_void,
        ps: u32,
        kind: u32,
    ) -> Arc<Id> {
        // SAFETY: numbers and pointers.
        let mut c: rdma_cm_id = unsafe { zeroed() };
        c.channel = channel.as_ptr();
        c.context = context;
        c.ps = ps;
        c.qp_type = kind;
        let state = State {
            channel,
            synchronous,
            stage: Stage::Idle,
            connection: None,
            binding: None,
            listener: None,
            local: None,
            remote: None,
            path: None,
            psn: Psn::new(random()),
            options: Options::default(),
            responder_resources: 0,
            initiator_depth: 0,
            queue_pair: None,
            greeting: Vec::new(),
            local_ece: Ece { vendor_id: 0, options: 0 },
            remote_ece: Ece { vendor_id: 0, options: 0 },
            parted: false,
            groups: Vec::new(),
            by_gid: false,
            question: Question::default(),
        };
        let path = Shown::new(ibv_sa_path_rec::default());
        let unacknowledged = Unacknowledged::default();
        Arc::new(Id { c: Shown::new(c), path, state: Mutex::new(state), unacknowledged })
    }

    /// The identifier behind a program's pointer.
    ///
    /// # Safety
    /// `id` is null, or of this library and not destroyed.
    ///
    /// # Errors
    /// EINVAL: it is null.
    pub(crate) unsafe fn of(id: *mut rdma_cm_id) -> Result<Arc<Id>, Errno> {
        if id.is_null() {
            return Err(INVALID);
        }
        let id = id.cast_const().cast::<Id>();
        // SAFETY: the caller's promise: it came from `hand_out`.
        Ok(unsafe {
            Arc::increment_strong_count(id);
            Arc::from_raw(id)
        })
    }

    /// Gives the identifier to the program, until `rdma_destroy_id`.
    pub(crate) fn hand_out(self: &Arc<Id>) -> *mut rdma_cm_id {
        Arc::into_raw(Arc::clone(self)).cast_mut().cast()
    }

    /// The program's structure.
    pub(crate) const fn c(&self) -> *mut rdma_cm_id {
        self.c.as_ptr()
    }

    /// Its events that programs have in hands.
    pub(crate) const fn unacknowledged(&self) -> &Unacknowledged {
        &self.unacknowledged
    }

    /// Its state, locked.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it exchanges datagrams.
    pub(crate) fn is_datagram(&self) -> bool {
        // SAFETY: a field of our own structure.
        unsafe { (*self.c()).qp_type == QPT_UD }
    }

    /// What it serves when it listens: what its type of queue pair is for, anything if it has none, as in Linux.
    pub(crate) fn served(&self) -> Served {
        // SAFETY: a field of our own structure.
        match unsafe { (*self.c()).qp_type } {
            0 => Served::Anything,
            QPT_UD => Served::Datagrams,
            QPT_RC => Served::Connections(TransportType::Rc),
            QPT_UC => Served::Connections(TransportType::Uc),
            QPT_XRC_RECV => Served::Connections(TransportType::Xrc),
            // No request asks for it.
            _ => Served::Connections(TransportType::Rd),
        }
    }

    /// Its port space.
    pub(crate) fn port_space(&self) -> PortSpace {
        // SAFETY: a field of our own structure.
        let number = unsafe { (*self.c()).ps };
        // It was looked at when the identifier was made.
        u16::try_from(number).ok().and_then(PortSpace::from_number).unwrap_or(PortSpace::Tcp)
    }

    /// It is on the device now.
    pub(crate) fn attach(&self, shared: Shared) {
        // SAFETY: fields of our own structure.
        unsafe {
            let c = &mut *self.c();
            c.verbs = shared.context;
            c.port_num = 1;
            if c.pd.is_null() {
                c.pd = shared.pd;
            }
        }
    }

    /// Shows the program its addresses.
    pub(crate) fn show_addresses(&self, state: &State) {
        // SAFETY: a field of our own structure.
        let shown = unsafe { &mut (*self.c()).route.addr };
        let space = self.port_space();
        let to_c = |address| {
            if state.by_gid { infiniband::to_c(address, space) } else { address::to_c(address) }
        };
        if let Some(local) = state.local {
            shown.src_storage = to_c(local);
        }
        if let Some(remote) = state.remote {
            shown.dst_storage = to_c(remote);
        }
        shown.addr.pkey = 0xffff;
        if let Some(path) = &state.path {
            shown.addr.sgid.raw = path.route.local.0;
            shown.addr.dgid.raw = path.route.remote.0;
        }
    }

    /// Shows the program its path.
    pub(crate) fn show_path(&self, path: &CmPath) {
        let mut record = ibv_sa_path_rec {
            flow_label: path.route.flow_label.to_be(),
            hop_limit: path.route.hop_limit,
            traffic_class: path.route.traffic_class,
            reversible: 1,
            numb_path: 1,
            pkey: path.pkey.to_be(),
            sl: path.sl,
            // "Exactly".
            mtu_selector: 2,
            mtu: path.mtu as u8,
            rate_selector: 2,
            rate: path.packet_rate,
            packet_life_time_selector: 2,
            packet_life_time: path.packet_life_time,
            ..ibv_sa_path_rec::default()
        };
        record.sgid.raw = path.route.local.0;
        record.dgid.raw = path.route.remote.0;
        // SAFETY: our own structures; the record lives as long as the identifier.
        unsafe {
            self.path.as_ptr().write(record);
            (*self.c()).route.path_rec = self.path.as_ptr();
            (*self.c()).route.num_paths = 1;
        }
    }
}

/// The kind of queue pair of a port space.
fn kind_of(ps: u32) -> Result<u32, Errno> {
    match u16::try_from(ps).ok().and_then(PortSpace::from_number) {
        Some(PortSpace::Tcp | PortSpace::Ib) => Ok(QPT_RC),
        Some(PortSpace::Udp | PortSpace::IpoIb) => Ok(QPT_UD),
        None => Err(INVALID.because(|| format!("there is no port space {ps:#x}"))),
    }
}

/// An identifier on a channel, or, without one, a synchronous one with a channel of its own.
///
/// # Safety
/// `channel` is null or live.
pub(crate) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: u32,
    kind: Option<u32>,
) -> Result<Arc<Id>, Errno> {
    let kind = kind_of(ps).map(|usual| kind.unwrap_or(usual))?;
    shared()?;
    // SAFETY: the caller's promise.
    let given = unsafe { Channel::of(channel) };
    let synchronous = given.is_none();
    let channel = given.map_or_else(Channel::new, Ok)?;
    Ok(Id::new(channel, synchronous, context, ps, kind))
}

pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    number(|| {
        if id.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller's promise; the caller's variable.
        unsafe { id.write(create(channel, context, ps, None)?.hand_out()) };
        Ok(0)
    })
}

/// The peer is told what it waits for. Events that other threads have fetched are waited for a while; those that are not
/// acknowledged then stay whole until they are.
pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let own = unsafe { Id::of(id) }?;
        let (connection, binding) = {
            let mut registry = registry();
            let mut state = own.state();
            state.stage = Stage::Over;
            state.channel.forget(&own);
            if let Some(connection) = state.connection {
                registry.connections.remove(&connection);
            }
            if let Some(listener) = state.listener.take() {
                registry.listeners.remove(&listener);
            }
            (state.connection.take(), state.binding.take())
        };
        let hca = shared()?.hca();
        // What is gone already is gone.
        if let Some(connection) = connection {
            let _ = hca.cm_destroy(connection);
        }
        if let Some(binding) = binding {
            let _ = hca.cm_unbind(binding);
        }
        own.unacknowledged().wait_for_others();
        let synchronous = own.state().synchronous;
        // SAFETY: our own structure; the event is one of ours; the program gives back what it was handed.
        unsafe {
            let event = (*id).event;
            if synchronous && !event.is_null() {
                (*id).event = ptr::null_mut();
                rdma_ack_cm_event(event);
            }
            drop(Arc::from_raw(id.cast_const().cast::<Id>()));
        }
        Ok(0)
    })
}

/// Moves an identifier and its waiting events to another channel; to none, and it becomes synchronous.
pub(crate) unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let (own, given) = unsafe { (Id::of(id)?, Channel::of(channel)) };
        let synchronous = given.is_none();
        let channel = given.map_or_else(Channel::new, Ok)?;
        let _registry = registry();
        own.migrate(channel, synchronous)?;
        Ok(0)
    })
}

impl Id {
    /// Moves to another channel, under the registry's lock.
    ///
    /// # Errors
    /// Those of opening the device.
    pub(crate) fn migrate(self: &Arc<Id>, channel: Arc<Channel>, synchronous: bool) -> Result<(), Errno> {
        let mut state = self.state();
        let hca = shared()?.hca();
        if let Some(connection) = state.connection {
            // One that is over on the device has no events to move.
            let _ = hca.cm_migrate(connection, channel.device());
        }
        if let Some(listener) = state.listener {
            hca.cm_migrate_listener(listener, channel.device())?;
        }
        state.channel.move_local(self, &channel);
        // SAFETY: a field of our own structure.
        unsafe { (*self.c()).channel = channel.as_ptr() };
        state.channel = channel;
        state.synchronous = synchronous;
        Ok(())
    }
}

pub(crate) unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: null or live.
    unsafe { Id::of(id) }.ok().and_then(|id| id.state().local).map_or(0, |local| local.port().to_be())
}

pub(crate) unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: null or live.
    unsafe { Id::of(id) }.ok().and_then(|id| id.state().remote).map_or(0, |remote| remote.port().to_be())
}
