//! The device's events, as librdmacm tells them.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;

use pumice_device::hca::Hca;
use pumice_transport::cm::{CmPath, Event as DeviceEvent, ListenerId, MadRoute, RejectParams};
use pumice_transport::mad::{
    CommId, IP_HEADER_BYTES, IpHeader, Rej, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus, TransportType,
};
use pumice_transport::types::Mtu;

use super::channel::Channel;
use super::event::{
    CONNECT_ERROR, CONNECT_REQUEST, CONNECT_RESPONSE, DISCONNECTED, ESTABLISHED, Event, REJECTED, Said,
    TIMEWAIT_EXIT, UNREACHABLE, no_conn, no_ud,
};
use super::id::{Id, QPT_RC, QPT_UC, QPT_UD, QPT_XRC_RECV, Stage};
use super::queue_pair;
use super::registry::Registry;
use super::shared::Shared;
use crate::ground::abi::{rdma_conn_param, rdma_ud_param};

/// The program's event; none, if it is not the program's business.
pub(crate) fn translate(registry: &mut Registry, shared: Shared, event: DeviceEvent) -> Option<Event> {
    let hca = shared.hca();
    match event {
        DeviceEvent::ConnectRequest { listener, id, route, request } => {
            let came = Came { listener, connection: id, route, service: request.service_id };
            connect_request(registry, shared, &came, &request)
        }
        DeviceEvent::SidrRequest { listener, id, route, request } => {
            let came = Came { listener, connection: id, route, service: request.service_id };
            question(registry, shared, &came, &request)
        }
        other => {
            let id = registry.connections.get(&other.id())?;
            of_connection(hca, id, other)
        }
    }
}

fn of_connection(hca: &Hca, id: &Arc<Id>, event: DeviceEvent) -> Option<Event> {
    let plain = |event, status| Some(Event::new(id, event, status, Said::Nothing, &[]));
    match event {
        DeviceEvent::ConnectResponse { id: connection, reply } => Some(response(hca, id, connection, &reply)),
        DeviceEvent::Established { .. } => {
            id.state().stage = Stage::Connected;
            plain(ESTABLISHED, 0)
        }
        DeviceEvent::Rejected { rejection, .. } => Some(rejected(id, &rejection)),
        DeviceEvent::Unreachable { .. } => {
            id.state().stage = Stage::Over;
            plain(UNREACHABLE, -libc::ETIMEDOUT)
        }
        DeviceEvent::DisconnectRequest { .. } | DeviceEvent::Disconnected { .. } => {
            let mut state = id.state();
            if std::mem::replace(&mut state.parted, true) {
                return None;
            }
            state.stage = Stage::Over;
            plain(DISCONNECTED, 0)
        }
        DeviceEvent::TimewaitExit { .. } => plain(TIMEWAIT_EXIT, 0),
        DeviceEvent::SidrResolved { reply, .. } => Some(answer(hca, id, &reply)),
        DeviceEvent::MraReceived { .. }
        | DeviceEvent::ConnectRequest { .. }
        | DeviceEvent::SidrRequest { .. } => None,
    }
}

/// A request, of either kind.
struct Came {
    listener: ListenerId,
    connection: CommId,
    route: MadRoute,
    service: ServiceId,
}

/// A new identifier for a request.
fn newcomer(
    registry: &mut Registry,
    shared: Shared,
    came: &Came,
    kind: u32,
    private_data: &[u8],
) -> Option<(Arc<Id>, Arc<Id>)> {
    let hca = shared.hca();
    let made = registry.listeners.get(&came.listener).and_then(|listener| {
        let header = IpHeader::parse(private_data).ok()?;
        let (channel, synchronous, by_gid) = {
            let state = listener.state();
            (Arc::clone(&state.channel), state.synchronous, state.by_gid)
        };
        // SAFETY: fields of our own structure.
        let (context, ps) = unsafe { ((*listener.c()).context, (*listener.c()).ps) };
        let id = Id::new(channel, false, context, ps, kind);
        let (_, port) = came.service.to_rdma_cm()?;
        {
            let mut state = id.state();
            state.stage = Stage::Requested;
            state.by_gid = by_gid;
            state.connection = Some(came.connection);
            state.local = Some(SocketAddr::new(header.destination, port));
            state.remote = Some(SocketAddr::new(header.source, header.source_port));
            let mtu = hca.cm_qp_parameters(came.connection).map_or(Mtu::Mtu1024, |qp| qp.path_mtu);
            let path = CmPath::new(came.route, mtu);
            state.path = Some(path);
            id.attach(shared);
            id.show_addresses(&state);
            id.show_path(&path);
        }
        if synchronous {
            let own = Channel::new().ok()?;
            id.migrate(own, true).ok()?;
        }
        Some((id, Arc::clone(listener)))
    });
    let Some((id, listener)) = made else {
        // Whoever listened is gone, or what came cannot be said.
        let _ = hca.cm_destroy(came.connection);
        return None;
    };
    registry.connections.insert(came.connection, Arc::clone(&id));
    // The program's from here on.
    let _ = id.hand_out();
    Some((id, listener))
}

fn connect_request(registry: &mut Registry, shared: Shared, came: &Came, request: &Req) -> Option<Event> {
    let kind = match request.transport {
        TransportType::Uc => QPT_UC,
        TransportType::Xrc => QPT_XRC_RECV,
        _ => QPT_RC,
    };
    let (id, listener) = newcomer(registry, shared, came, kind, &request.private_data.0)?;
    // What the peer has outstanding is served here, and the other way round.
    let param = rdma_conn_param {
        responder_resources: request.initiator_depth,
        initiator_depth: request.responder_resources,
        flow_control: request.flow_control.into(),
        retry_count: request.retry_count,
        rnr_retry_count: request.rnr_retry_count,
        srq: request.srq.into(),
        qp_num: request.local_qpn.value(),
        ..no_conn()
    };
    {
        let mut state = id.state();
        state.responder_resources = param.responder_resources;
        state.initiator_depth = param.initiator_depth;
        state.remote_ece = request.ece;
    }
    let said = request.private_data.0.get(IP_HEADER_BYTES..).unwrap_or_default();
    Some(Event::new(&id, CONNECT_REQUEST, 0, Said::Connection(param), said).at(&listener))
}

fn question(registry: &mut Registry, shared: Shared, came: &Came, request: &SidrReq) -> Option<Event> {
    let (id, listener) = newcomer(registry, shared, came, QPT_UD, &request.private_data.0)?;
    let said = request.private_data.0.get(IP_HEADER_BYTES..).unwrap_or_default();
    Some(Event::new(&id, CONNECT_REQUEST, 0, Said::Datagram(no_ud()), said).at(&listener))
}

/// The peer accepts. A queue pair that belongs to the identifier is brought to RTS, and the peer told.
fn response(hca: &Hca, id: &Arc<Id>, connection: CommId, reply: &Rep) -> Event {
    let param = rdma_conn_param {
        responder_resources: reply.initiator_depth,
        initiator_depth: reply.responder_resources,
        flow_control: reply.flow_control.into(),
        rnr_retry_count: reply.rnr_retry_count,
        srq: reply.srq.into(),
        qp_num: reply.local_qpn.value(),
        ..no_conn()
    };
    let mut state = id.state();
    state.remote_ece = reply.ece;
    // SAFETY: a field of our own structure.
    let has_queue_pair = unsafe { !(*id.c()).qp.is_null() };
    if !has_queue_pair {
        return Event::new(id, CONNECT_RESPONSE, 0, Said::Connection(param), &reply.private_data.0);
    }
    let up = queue_pair::connect(id, &state, None).and_then(|()| Ok(hca.cm_send_rtu(connection, &[])?));
    match up {
        Ok(()) => {
            state.stage = Stage::Connected;
            Event::new(id, ESTABLISHED, 0, Said::Connection(param), &reply.private_data.0)
        }
        Err(errno) => {
            state.stage = Stage::Over;
            // What the peer has said in the meantime has ended it as well.
            let _ = hca.cm_reject(connection, &RejectParams::consumer(&[]));
            queue_pair::to_error(id);
            Event::new(id, CONNECT_ERROR, -errno.0, Said::Nothing, &[])
        }
    }
}

fn rejected(id: &Arc<Id>, rejection: &Rej) -> Event {
    id.state().stage = Stage::Over;
    queue_pair::to_error(id);
    let status = c_int::from(rejection.reason.0);
    Event::new(id, REJECTED, status, Said::Connection(no_conn()), &rejection.private_data.0)
}

/// The answer to a question for a datagram queue pair.
fn answer(hca: &Hca, id: &Arc<Id>, reply: &SidrRep) -> Event {
    let mut state = id.state();
    if reply.status != SidrStatus::SUCCESS {
        state.stage = Stage::Over;
        let status = c_int::from(reply.status.0);
        return Event::new(id, UNREACHABLE, status, Said::Datagram(no_ud()), &reply.private_data.0);
    }
    state.stage = Stage::Connected;
    let ah_attr = state.path.map(|path| queue_pair::address_vector(hca, &path.route)).unwrap_or_default();
    let param = rdma_ud_param { ah_attr, qp_num: reply.qpn.value(), qkey: reply.q_key, ..no_ud() };
    Event::new(id, ESTABLISHED, 0, Said::Datagram(param), &reply.private_data.0)
}
