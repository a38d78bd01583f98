//! Identifiers, their event channels, and the verbs objects that they make.
//!
//! Identifiers: a program's end of a connection, a listener or a service resolution.

use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use libc::sockaddr_storage;
use pumice_device::gsi::BindingId;
use pumice_device::outside::fork_generation::{Generation, PerProcess};
use pumice_transport::cm::{CmPath, ListenerId, Served};
use pumice_transport::mad::{CommId, Ece, PortSpace, TransportType};
use pumice_transport::types::Gid;
use pumice_transport::wire::Psn;

use self::acknowledgement::{IdFields, UnacknowledgedEvents};
use self::shared::{SharedDevice, random, shared_at, shared_of};
use crate::abi::plain::{ForwardedStruct, zeroed};
use crate::abi::{ibv_gid, ibv_qp_init_attr, ibv_sa_path_rec, rdma_cm_id, rdma_ib_addr};
use crate::gate::{CallSubject, given_back, handed_out};
use crate::log::refusal;
use crate::platform::{Errno, INVALID};
use crate::rdma_cm::address;
use crate::rdma_cm::address::lookup::AddressInfo;
use crate::rdma_cm::constants::{QPT_RC, QPT_UC, QPT_UD, QPT_XRC_RECV};

/// A channel of identifiers.
pub(crate) type EventChannel = channel::EventChannel<Id>;
pub(crate) type EventChannelPointer = channel::EventChannelPointer<Id>;
pub(crate) type LocalEvent = channel::LocalEvent<Id>;

/// An identifier.
#[repr(C)]
pub(crate) struct Id {
    /// Structure that the program's pointer points at.
    pub(crate) c: IdFields,
    generation: Generation,
    state: Mutex<IdState>,
    unacknowledged: UnacknowledgedEvents,
}

/// A program's pointer to an identifier, as a call gets it: null, or an identifier that is not destroyed.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct IdPointer(*mut rdma_cm_id);

impl IdPointer {
    /// Tells the gate that a call is about this identifier.
    pub(crate) fn about(self) -> CallSubject {
        self.with_device(CallSubject::of(self.0))
    }

    /// Tells the gate that a call is about the device of this identifier.
    pub(crate) fn on(self) -> CallSubject {
        self.with_device(CallSubject::NOTHING)
    }

    fn with_device(self, about: CallSubject) -> CallSubject {
        about.owned_by(self.0.cast_const().cast(), |pointer| {
            let id = IdPointer(pointer.cast_mut().cast()).known();
            id.map_or(0, |id| id.c.verbs().addr())
        })
    }

    /// Returns the identifier, for a call that is a command to the kernel in librdmacm.
    ///
    /// # Errors
    /// Fails as [`IdPointer::known`], and with EACCES as [`EventChannel::check_opener`].
    pub(crate) fn id(self) -> Result<Arc<Id>, Errno> {
        let id = self.known()?;
        id.state().channel.check_opener()?;
        Ok(id)
    }

    /// Returns the identifier.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null, or if the identifier is of the process that this one was
    /// forked from.
    pub(crate) fn known(self) -> Result<Arc<Id>, Errno> {
        if self.0.is_null() {
            return Err(INVALID.because(|| "a null pointer was given where an identifier belongs".to_owned()));
        }
        if !self.is_own() {
            return Err(refusal::refuse("connection identifier"));
        }
        let id = self.0.cast_const().cast::<Id>();
        // SAFETY: the program's pointer came from `Id::hand_out`, whose reference has not been given back
        // yet.
        Ok(unsafe {
            Arc::increment_strong_count(id);
            Arc::from_raw(id)
        })
    }

    /// Reports whether this process made the identifier. The pointer is not null.
    fn is_own(self) -> bool {
        let id = self.0.cast_const().cast::<Id>();
        // SAFETY: the program's pointer came from `Id::hand_out`, whose reference has not been given back
        // yet; a child has a copy.
        unsafe { (*id).generation }.is_own()
    }

    /// Takes the program's reference to the identifier back, if the pointer is not null and the identifier is
    /// this process's.
    pub(crate) fn take_back(self) -> Option<Arc<Id>> {
        if !self.0.is_null() && !self.is_own() {
            return None;
        }
        given_back(self.0.addr());
        let id = self.0.cast_const().cast::<Id>();
        // SAFETY: the pointer came from `Id::hand_out`, and the program gives it back once.
        (!id.is_null()).then(|| unsafe { Arc::from_raw(id) })
    }
}

/// Progress of an identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdStage {
    /// The identifier is new.
    Idle,
    /// The identifier has an address.
    Bound,
    /// The identifier searches for the host of a peer.
    Resolving,
    /// The identifier has a peer's address.
    AddressResolved,
    /// The identifier has a path.
    RouteResolved,
    /// The identifier listens for requests.
    Listening,
    /// The identifier has sent a request that is not answered yet.
    Connecting,
    /// The identifier is a request of a peer, not answered yet.
    Requested,
    /// The request was accepted.
    Accepted,
    /// The connection is established, or the service is resolved.
    Connected,
    /// The connection has ended, or was refused.
    Ended,
}

/// Options of `rdma_set_option`.
#[derive(Default)]
pub(crate) struct IdOptions {
    pub(crate) type_of_service: u8,
    pub(crate) reuse_address: bool,
    /// True if all addresses are those of one family; `None` if the program has not chosen.
    pub(crate) one_family: Option<bool>,
    /// Time code of the transport timeout.
    pub(crate) ack_timeout: Option<u8>,
}

/// The addresses of an identifier.
pub(crate) struct IdAddresses {
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) path: Option<CmPath>,
    /// True if the program writes its addresses as GIDs (AF_IB).
    pub(crate) by_gid: bool,
    /// Answer of `rdma_resolve_addrinfo` that the program has not fetched yet.
    pub(crate) address_info: Option<AddressInfo>,
}

/// The values that an identifier agrees on with its peer.
pub(crate) struct IdOffer {
    /// First PSN of the peer's packets.
    pub(crate) psn: Psn,
    /// Numbers of READs and atomics to serve, and to have outstanding.
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    /// Attributes of the queue pairs of an endpoint's requests, and the private data with which it connects.
    pub(crate) queue_pair: Option<ForwardedStruct<ibv_qp_init_attr>>,
    pub(crate) connect_data: Vec<u8>,
    pub(crate) local_ece: Ece,
    pub(crate) remote_ece: Ece,
}

/// The part of an identifier that changes.
pub(crate) struct IdState {
    pub(crate) channel: Arc<EventChannel>,
    /// True if calls wait for their event.
    pub(crate) synchronous: bool,
    pub(crate) stage: IdStage,
    pub(crate) connection: Option<CommId>,
    /// Bindings of its service, and listeners there, each with the index of the device.
    pub(crate) bindings: Vec<(usize, BindingId)>,
    pub(crate) listeners: Vec<(usize, ListenerId)>,
    pub(crate) addresses: IdAddresses,
    pub(crate) offer: IdOffer,
    pub(crate) options: IdOptions,
    /// True if the program was notified of the disconnection.
    pub(crate) disconnect_reported: bool,
    pub(crate) memberships: Vec<GroupMembership>,
}

/// A multicast group that an identifier has joined.
pub(crate) struct GroupMembership {
    /// Address of the group as the program wrote it: it leaves with the same one.
    pub(crate) address: Vec<u8>,
    pub(crate) group: Gid,
    /// True if a queue pair was attached.
    pub(crate) attached: bool,
    /// Events of the group that the program has fetched and not acknowledged.
    pub(crate) unacknowledged: Arc<UnacknowledgedEvents>,
}

impl Id {
    /// Creates an identifier from its parts.
    pub(crate) fn new(
        channel: Arc<EventChannel>,
        synchronous: bool,
        context: *mut c_void,
        ps: u32,
        kind: u32,
    ) -> Arc<Id> {
        let c = rdma_cm_id { channel: channel.as_ptr(), context, ps, qp_type: kind, ..zeroed() };
        let state = IdState {
            channel,
            synchronous,
            stage: IdStage::Idle,
            connection: None,
            bindings: Vec::new(),
            listeners: Vec::new(),
            addresses: IdAddresses {
                local: None,
                remote: None,
                path: None,
                by_gid: false,
                address_info: None,
            },
            offer: IdOffer {
                psn: Psn::new(random()),
                responder_resources: 0,
                initiator_depth: 0,
                queue_pair: None,
                connect_data: Vec::new(),
                local_ece: Ece { vendor_id: 0, options: 0 },
                remote_ece: Ece { vendor_id: 0, options: 0 },
            },
            options: IdOptions::default(),
            disconnect_reported: false,
            memberships: Vec::new(),
        };
        let unacknowledged = UnacknowledgedEvents::default();
        let id = Arc::new(Id {
            c: IdFields::new(c),
            generation: Generation::own(),
            state: Mutex::new(state),
            unacknowledged,
        });
        register_id(&id);
        id
    }

    /// Creates an identifier on a channel, or, without one, a synchronous one with a channel of its own.
    /// `kind` is the type of queue pair, if it is not the usual one of the port space.
    ///
    /// # Errors
    /// Fails with EINVAL if there is no such port space, with the errors of opening the device, and if there
    /// are no descriptors.
    pub(crate) fn create(
        channel: Option<Arc<EventChannel>>,
        context: *mut c_void,
        ps: u32,
        kind: Option<u32>,
    ) -> Result<Arc<Id>, Errno> {
        let kind = kind_of(ps).map(|usual| kind.unwrap_or(usual))?;
        shared::up_to_date()?;
        let synchronous = channel.is_none();
        let channel = channel.map_or_else(EventChannel::new, Ok)?;
        Ok(Id::new(channel, synchronous, context, ps, kind))
    }

    /// Gives the identifier to the program, until `rdma_destroy_id`.
    pub(crate) fn hand_out(self: &Arc<Id>) -> *mut rdma_cm_id {
        handed_out(Arc::as_ptr(self).addr(), "identifier");
        Arc::into_raw(Arc::clone(self)).cast_mut().cast()
    }

    /// Returns the program's pointer.
    pub(crate) const fn as_ptr(&self) -> *mut rdma_cm_id {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns its events that the program has fetched and not acknowledged.
    pub(crate) const fn unacknowledged(&self) -> &UnacknowledgedEvents {
        &self.unacknowledged
    }

    /// Locks its state and returns it.
    pub(crate) fn state(&self) -> MutexGuard<'_, IdState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether it exchanges datagrams.
    pub(crate) fn is_datagram(&self) -> bool {
        self.c.qp_type() == QPT_UD
    }

    /// Returns the kinds of requests that it serves when it listens: those of its type of queue pair, or any
    /// if it has none, as in Linux.
    pub(crate) fn served(&self) -> Served {
        match self.c.qp_type() {
            0 => Served::Anything,
            QPT_UD => Served::Datagrams,
            QPT_RC => Served::Connections(TransportType::Rc),
            QPT_UC => Served::Connections(TransportType::Uc),
            QPT_XRC_RECV => Served::Connections(TransportType::Xrc),
            // No request can ask for this one.
            _ => Served::Connections(TransportType::Rd),
        }
    }

    /// Returns its port space.
    pub(crate) fn port_space(&self) -> PortSpace {
        // `Id::create` has checked the number.
        u16::try_from(self.c.ps()).ok().and_then(PortSpace::from_number).unwrap_or(PortSpace::Tcp)
    }

    /// Returns the shared objects of its device: of the first one if it is on none yet.
    ///
    /// # Errors
    /// Fails with the errors of opening the devices.
    pub(crate) fn shared(&self) -> Result<&'static SharedDevice, Errno> {
        shared_of(self.c.verbs())
    }

    /// Puts the identifier on this port of the device.
    pub(crate) fn attach(&self, shared: &SharedDevice, port_num: u8) {
        self.c.set_verbs(shared.context());
        self.c.set_port_num(port_num);
        if self.c.pd().is_null() {
            self.c.set_pd(shared.pd());
        }
    }

    /// Writes its addresses into the program's structure.
    pub(crate) fn show_addresses(&self, state: &IdState) {
        let mut route = self.c.route();
        if let Some(local) = state.addresses.local {
            route.addr.src_storage = self.to_c(local, state.addresses.by_gid);
        }
        if let Some(remote) = state.addresses.remote {
            route.addr.dst_storage = self.to_c(remote, state.addresses.by_gid);
        }
        route.addr.addr.pkey = 0xffff;
        if let Some(path) = &state.addresses.path {
            let gid = |gid: Gid| ibv_gid { raw: gid.0 };
            route.addr.addr =
                rdma_ib_addr { sgid: gid(path.route.local), dgid: gid(path.route.remote), pkey: 0xffff };
        }
        self.c.set_route(route);
    }

    /// Converts an address to the form in which the program writes addresses.
    fn to_c(&self, address: SocketAddr, by_gid: bool) -> sockaddr_storage {
        if by_gid {
            address::storage(&address::ib_bytes(&address::ib_to_c(address, self.port_space())))
        } else {
            address::to_c(address).0
        }
    }

    /// Writes its path into the program's structure.
    pub(crate) fn show_path(&self, path: &CmPath) {
        let mut record = ibv_sa_path_rec {
            flow_label: path.route.flow_label.to_be(),
            hop_limit: path.route.hop_limit,
            traffic_class: path.route.traffic_class,
            reversible: 1,
            numb_path: 1,
            pkey: path.pkey.to_be(),
            sl: path.sl,
            // The selector 2 stands for "exactly".
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
        self.c.set_path(record);
    }

    /// Moves to another channel, under the registry's lock.
    ///
    /// # Errors
    /// Fails with the errors of opening the device.
    pub(crate) fn migrate(
        self: &Arc<Id>,
        channel: Arc<EventChannel>,
        synchronous: bool,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        // Events of a request that is not accepted are on no channel.
        if let Some(connection) = state.connection.filter(|_| state.stage != IdStage::Requested) {
            let own = self.shared()?;
            // A connection that is over on the device has no events to move.
            let _ = own.hca().cm_migrate(connection, channel.device(own.index()));
        }
        for (index, listener) in &state.listeners {
            shared_at(*index)?.hca().cm_migrate_listener(*listener, channel.device(*index))?;
        }
        state.channel.move_local(self, &channel);
        self.c.set_channel(channel.as_ptr());
        state.channel = channel;
        state.synchronous = synchronous;
        Ok(())
    }
}

/// All identifiers, and the number at which those that are gone are removed.
static ALL: PerProcess<Mutex<(Vec<Weak<Id>>, usize)>> =
    PerProcess::new(|_| Mutex::new((Vec::new(), MIN_LISTED)));

const MIN_LISTED: usize = 64;

/// Records a new identifier.
fn register_id(id: &Arc<Id>) {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if all.0.len() >= all.1 {
        all.0.retain(|known| known.strong_count() > 0);
        all.1 = MIN_LISTED.max(all.0.len() * 2);
    }
    all.0.push(Arc::downgrade(id));
}

/// Returns the identifiers that were made, including those that are gone.
pub(crate) fn known() -> Vec<Weak<Id>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
}

/// Returns the channels that identifiers use, each once.
pub(crate) fn channels() -> Vec<Arc<EventChannel>> {
    let mut found: Vec<Arc<EventChannel>> = Vec::new();
    for id in known().iter().filter_map(Weak::upgrade) {
        let channel = Arc::clone(&id.state().channel);
        if found.iter().all(|one| !Arc::ptr_eq(one, &channel)) {
            found.push(channel);
        }
    }
    found
}

impl EventChannelPointer {
    /// Returns the addresses of the identifiers that use this channel, including destroyed ones that still
    /// have references.
    pub(crate) fn identifiers(self) -> Vec<usize> {
        let all = known().into_iter().filter_map(|known| known.upgrade());
        let own = all.filter(|id| id.state().channel.as_ptr().addr() == self.addr());
        own.map(|id| id.as_ptr().addr()).collect()
    }
}

/// Returns the type of queue pair of a port space.
fn kind_of(ps: u32) -> Result<u32, Errno> {
    match u16::try_from(ps).ok().and_then(PortSpace::from_number) {
        //= man:rdma_create_id
        //| The port space TCP stands for reliable connections.
        Some(PortSpace::Tcp | PortSpace::Ib) => Ok(QPT_RC),
        //= man:rdma_create_id
        //| The port space UDP stands for datagrams.
        Some(PortSpace::Udp | PortSpace::IpoIb) => Ok(QPT_UD),
        None => Err(INVALID.because(|| format!("there is no port space {ps:#x}"))),
    }
}

pub(crate) mod acknowledgement;
pub(crate) mod binding;
pub(crate) mod channel;
pub(crate) mod neighbours;
pub(crate) mod objects;
pub(crate) mod queue_pair;
pub(crate) mod registry;
pub(crate) mod shared;
