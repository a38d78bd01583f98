//! Translation of the device's events to those of librdmacm, when a program fetches them.
//!
//! Fetching of events: by the calls for it, and by the calls of synchronous identifiers, which wait for their
//! event.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;

use pumice_device::hca::Hca;
use pumice_transport::cm::{CmEvent as DeviceEvent, CmPath, ListenerId, MadRoute, RejectParams};
use pumice_transport::mad::{
    CommId, IpHeader, Rej, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus, TransportType,
};
use pumice_transport::types::Mtu;

use super::{RdmaCmEvent, acknowledge, of_connection, of_datagrams};
use crate::abi::plain::zeroed;
use crate::abi::{rdma_conn_param, rdma_ud_param};
use crate::platform::Errno;
use crate::platform::threads::RESTART;
use crate::rdma_cm::address::lookup;
use crate::rdma_cm::constants::{
    CONNECT_ERROR, CONNECT_RESPONSE, DISCONNECTED, ESTABLISHED, QPT_RC, QPT_UC, QPT_UD, QPT_XRC_RECV,
    REJECTED, TIMEWAIT_EXIT, UNREACHABLE,
};
use crate::rdma_cm::id::channel::EventParameters;
use crate::rdma_cm::id::registry::{IdRegistry, registry};
use crate::rdma_cm::id::shared::{SharedDevice, all};
use crate::rdma_cm::id::{EventChannel, Id, IdStage, channels, queue_pair};
use crate::waits::{self, ThreadWait};

/// Translates an event of the device to the program's; `None` if the program does not get it.
pub(crate) fn translate(
    registry: &mut IdRegistry,
    shared: &SharedDevice,
    event: DeviceEvent,
) -> Option<RdmaCmEvent> {
    let hca = shared.hca();
    match event {
        DeviceEvent::ConnectRequest { listener, id, route, request } => {
            let request_event = RequestEvent { listener, connection: id, route, service: request.service_id };
            connect_request(registry, shared, &request_event, &request)
        }
        DeviceEvent::SidrRequest { listener, id, route, request } => {
            let request_event = RequestEvent { listener, connection: id, route, service: request.service_id };
            service_request(registry, shared, &request_event, &request)
        }
        other => {
            let id = registry.connections.get(&(shared.index(), other.id()))?;
            connection_event(hca, id, other)
        }
    }
}

fn connection_event(hca: &Hca, id: &Arc<Id>, event: DeviceEvent) -> Option<RdmaCmEvent> {
    let plain = |event, status| Some(RdmaCmEvent::new(id, event, status, EventParameters::None, &[]));
    match event {
        DeviceEvent::ConnectResponse { id: connection, reply } => Some(response(hca, id, connection, &reply)),
        DeviceEvent::Established { .. } => {
            id.state().stage = IdStage::Connected;
            plain(ESTABLISHED, 0)
        }
        DeviceEvent::Rejected { rejection, .. } => Some(rejected(id, &rejection)),
        DeviceEvent::Unreachable { .. } => {
            id.state().stage = IdStage::Ended;
            //= linux:cma.c#cma_ib_handler
            //| A request without an answer is reported with -ETIMEDOUT.
            plain(UNREACHABLE, -libc::ETIMEDOUT)
        }
        DeviceEvent::DisconnectRequest { .. } | DeviceEvent::Disconnected { .. } => {
            let unanswered = matches!(event, DeviceEvent::Disconnected { answered: false, .. });
            let mut state = id.state();
            if std::mem::replace(&mut state.disconnect_reported, true) {
                return None;
            }
            state.stage = IdStage::Ended;
            plain(DISCONNECTED, if unanswered { -libc::ETIMEDOUT } else { 0 })
        }
        //= linux:cma.c#cma_ib_handler
        //| The end of timewait is an event of its own.
        DeviceEvent::TimewaitExit { .. } => plain(TIMEWAIT_EXIT, 0),
        DeviceEvent::SidrResolved { reply, .. } => Some(resolved(hca, id, &reply)),
        DeviceEvent::MraReceived { .. }
        | DeviceEvent::ConnectRequest { .. }
        | DeviceEvent::SidrRequest { .. } => None,
    }
}

/// A request of a peer: for a connection, or to resolve a service to a datagram queue pair.
struct RequestEvent {
    listener: ListenerId,
    connection: CommId,
    route: MadRoute,
    service: ServiceId,
}

/// Splits private data into the addresses of a request, and the data of its program. At a listener that is
/// bound by GID all data is the program's, and the path has the addresses.
fn split(by_gid: bool, private_data: &[u8]) -> (Option<IpHeader>, &[u8]) {
    //= linux:cma.c#cma_user_data_offset
    //| A listener by GID (AF_IB) looks for no header.
    if by_gid { (None, private_data) } else { IpHeader::split(private_data) }
}

/// Creates the identifier for a request.
fn identifier_of_request(
    registry: &mut IdRegistry,
    shared: &SharedDevice,
    event: &RequestEvent,
    kind: u32,
    private_data: &[u8],
) -> Option<(Arc<Id>, Arc<Id>)> {
    let hca = shared.hca();
    let made = registry.listeners.get(&(shared.index(), event.listener)).and_then(|listener| {
        let (channel, synchronous, by_gid) = {
            let state = listener.state();
            (Arc::clone(&state.channel), state.synchronous, state.addresses.by_gid)
        };
        let (addresses, _) = split(by_gid, private_data);
        let id = Id::new(channel, false, listener.c.context(), listener.c.ps(), kind);
        let (_, port) = event.service.to_rdma_cm()?;
        {
            let mut state = id.state();
            state.stage = IdStage::Requested;
            state.addresses.by_gid = by_gid;
            state.connection = Some(event.connection);
            let requested_address =
                addresses.map_or_else(|| event.route.local.into(), |header| header.destination);
            state.addresses.local = Some(SocketAddr::new(requested_address, port));
            // A request by GID names no port of the peer.
            state.addresses.remote = Some(match addresses {
                Some(header) => SocketAddr::new(header.source, header.source_port),
                None => SocketAddr::new(event.route.remote.into(), 0),
            });
            let mtu = hca.cm_qp_parameters(event.connection).map_or(Mtu::Mtu1024, |qp| qp.path_mtu);
            let path = CmPath::new(event.route, mtu);
            state.addresses.path = Some(path);
            // Events go there until the request is accepted.
            let _ = hca.cm_migrate(event.connection, shared.unaccepted());
            id.attach(shared, lookup::port_of(hca, event.route.local));
            id.show_addresses(&state);
            id.show_path(&path);
        }
        if synchronous {
            let own = EventChannel::new().ok()?;
            id.migrate(own, true).ok()?;
        }
        Some((id, Arc::clone(listener)))
    });
    let Some((id, listener)) = made else {
        // The program has destroyed the listener.
        let _ = hca.cm_destroy(event.connection);
        return None;
    };
    registry.connections.insert((shared.index(), event.connection), Arc::clone(&id));
    Some((id, listener))
}

fn connect_request(
    registry: &mut IdRegistry,
    shared: &SharedDevice,
    event: &RequestEvent,
    request: &Req,
) -> Option<RdmaCmEvent> {
    let kind = match request.transport {
        TransportType::Uc => QPT_UC,
        TransportType::Xrc => QPT_XRC_RECV,
        _ => QPT_RC,
    };
    let (id, listener) = identifier_of_request(registry, shared, event, kind, &request.private_data.0)?;
    //= man:rdma_get_cm_event
    //| The depths in the event of a request are those that the peer has named, exchanged.
    let param = rdma_conn_param {
        responder_resources: request.initiator_depth,
        initiator_depth: request.responder_resources,
        flow_control: request.flow_control.into(),
        retry_count: request.retry_count,
        rnr_retry_count: request.rnr_retry_count,
        srq: request.srq.into(),
        qp_num: request.local_qpn.value(),
        ..zeroed()
    };
    {
        let mut state = id.state();
        state.offer.responder_resources = param.responder_resources;
        state.offer.initiator_depth = param.initiator_depth;
        state.offer.remote_ece = request.ece;
    }
    let by_gid = id.state().addresses.by_gid;
    let (_, program_data) = split(by_gid, &request.private_data.0);
    Some(RdmaCmEvent::request(&id, listener, of_connection(param), program_data))
}

fn service_request(
    registry: &mut IdRegistry,
    shared: &SharedDevice,
    event: &RequestEvent,
    request: &SidrReq,
) -> Option<RdmaCmEvent> {
    let (id, listener) = identifier_of_request(registry, shared, event, QPT_UD, &request.private_data.0)?;
    let by_gid = id.state().addresses.by_gid;
    let (_, program_data) = split(by_gid, &request.private_data.0);
    Some(RdmaCmEvent::request(&id, listener, of_datagrams(zeroed()), program_data))
}

/// Handles the peer's acceptance. A queue pair that belongs to the identifier is brought to RTS, and the peer
/// is notified.
fn response(hca: &Hca, id: &Arc<Id>, connection: CommId, reply: &Rep) -> RdmaCmEvent {
    let param = rdma_conn_param {
        responder_resources: reply.initiator_depth,
        initiator_depth: reply.responder_resources,
        flow_control: reply.flow_control.into(),
        rnr_retry_count: reply.rnr_retry_count,
        srq: reply.srq.into(),
        qp_num: reply.local_qpn.value(),
        ..zeroed()
    };
    let mut state = id.state();
    state.offer.remote_ece = reply.ece;
    //= man:rdma_establish
    //| An identifier without a queue pair gets CONNECT_RESPONSE, and the program confirms it.
    if id.c.qp().is_null() {
        return RdmaCmEvent::new(id, CONNECT_RESPONSE, 0, of_connection(param), &reply.private_data.0);
    }
    let up = queue_pair::connect(id, &state, None).and_then(|()| Ok(hca.cm_send_rtu(connection, &[])?));
    match up {
        Ok(()) => {
            state.stage = IdStage::Connected;
            RdmaCmEvent::new(id, ESTABLISHED, 0, of_connection(param), &reply.private_data.0)
        }
        Err(errno) => {
            state.stage = IdStage::Ended;
            // This fails if the peer has ended the connection in the meantime.
            let _ = hca.cm_reject(connection, &RejectParams::consumer(&[]));
            queue_pair::to_error(id);
            RdmaCmEvent::new(id, CONNECT_ERROR, -errno.0, EventParameters::None, &[])
        }
    }
}

fn rejected(id: &Arc<Id>, rejection: &Rej) -> RdmaCmEvent {
    id.state().stage = IdStage::Ended;
    queue_pair::to_error(id);
    //= linux:cma.c#cma_ib_handler
    //| The status of a rejection is the reason of the REJ.
    let status = c_int::from(rejection.reason.0);
    RdmaCmEvent::new(id, REJECTED, status, of_connection(zeroed()), &rejection.private_data.0)
}

/// Handles the peer's answer to the resolution of a service to a datagram queue pair.
fn resolved(hca: &Hca, id: &Arc<Id>, reply: &SidrRep) -> RdmaCmEvent {
    let mut state = id.state();
    if reply.status != SidrStatus::SUCCESS {
        state.stage = IdStage::Ended;
        let status = c_int::from(reply.status.0);
        //= linux:cma.c#cma_sidr_rep_handler
        //| A refused service lookup is reported with the status of the SIDR_REP.
        return RdmaCmEvent::new(id, UNREACHABLE, status, of_datagrams(zeroed()), &reply.private_data.0);
    }
    state.stage = IdStage::Connected;
    let ah_attr =
        state.addresses.path.map(|path| queue_pair::address_vector(hca, &path.route)).unwrap_or_default();
    let param = rdma_ud_param { ah_attr, qp_num: reply.qpn.value(), qkey: reply.q_key, ..zeroed() };
    RdmaCmEvent::new(id, ESTABLISHED, 0, of_datagrams(param), &reply.private_data.0)
}

/// Returns the next event of a channel, if there is one.
///
/// # Errors
/// Fails with the errors of opening the device.
pub(crate) fn take(channel: &EventChannel) -> Result<Option<RdmaCmEvent>, Errno> {
    let mut registry = registry();
    if let Some(event) = channel.pop_local() {
        return Ok(Some(RdmaCmEvent::local(event)));
    }
    for shared in all()? {
        while let Some(event) = shared.hca().cm_event(channel.device(shared.index())) {
            if let Some(event) = translate(&mut registry, shared, event) {
                return Ok(Some(event));
            }
        }
    }
    Ok(None)
}

/// Fetches the next event of a channel for the calling thread: waits for it unless the program has made the
/// channel's descriptor O_NONBLOCK.
///
/// # Errors
/// Fails with EAGAIN, EINTR, and with [`crate::platform::threads::RESTART`] if no event has arrived
/// within the slice of the attempt.
pub(crate) fn next_event(channel: &EventChannel) -> Result<RdmaCmEvent, Errno> {
    loop {
        let taken = take(channel)?;
        let is_empty = taken.is_none() && !channel.is_nonblocking();
        channel.reader.is_at(is_empty);
        match taken {
            Some(taken) => return Ok(taken.fetched()),
            None if is_empty => channel.sleep().inspect_err(|errno| {
                if *errno == RESTART {
                    waits::note_sleep(|| sleeps_for_connections(channel));
                }
            })?,
            None => return Err(Errno(libc::EAGAIN)),
        }
    }
}

/// Returns what a thread waits for that sleeps on this channel.
fn sleeps_for_connections(channel: &EventChannel) -> ThreadWait {
    let others = channels();
    let has_none = others.iter().all(|other| other.as_ptr() != channel.as_ptr());
    let waiting = others.iter().fold(0_u32, |sum, other| sum.saturating_add(other.waiting()));
    ThreadWait::SleepsForConnections { has_none, elsewhere: if has_none { waiting } else { 0 } }
}

/// Acknowledges the event in `id->event`, and waits for the next of a synchronous identifier.
///
/// # Errors
/// Fails as [`next_event`].
pub(crate) fn next_of(id: &Id) -> Result<RdmaCmEvent, Errno> {
    acknowledge_last(id);
    let channel = Arc::clone(&id.state().channel);
    next_event(&channel)
}

/// Acknowledges the event in `id->event`, if there is one.
pub(crate) fn acknowledge_last(id: &Id) {
    let last = id.c.event();
    if !last.is_null() {
        id.c.set_event(ptr::null_mut());
        // The program may have acknowledged it itself.
        let _ = acknowledge(last);
    }
}

/// Waits for the event that a call of a synchronous identifier has asked for, and leaves it in `id->event`.
///
/// # Errors
/// Fails with the event's error, with ECONNREFUSED if the peer refuses, and with EINTR if a signal came
/// first.
pub(crate) fn complete(id: &Id) -> Result<c_int, Errno> {
    if !id.state().synchronous {
        return Ok(0);
    }
    //= man:rdma_create_id
    //| A call of a synchronous identifier waits for its event.
    let event = next_of(id)?;
    let facts = event.facts();
    id.c.set_event(event.hand_out());
    match facts {
        (_, 0) => Ok(0),
        (REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
        (_, status) => Err(Errno(status.saturating_abs())),
    }
}
