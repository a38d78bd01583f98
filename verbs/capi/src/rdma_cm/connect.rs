//! Connect, accept, reject, disconnect.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use pumice_device::hca::Hca;
use pumice_transport::cm::{
    AcceptParams, ConnectParams, RejectParams, ResolveParams, SidrReply, State as DeviceState,
};
use pumice_transport::mad::{
    CommId, IP_HEADER_BYTES, IpHeader, Rej, RejectReason, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus,
    TransportType,
};
use pumice_transport::wire::Qpn;

use super::endpoint::complete;
use super::event::no_conn;
use super::id::{Id, QPT_UC, QPT_XRC_SEND, Stage, State};
use super::queue_pair::{self, AS_MUCH_AS_THERE_IS, DATAGRAM_Q_KEY, rd_atomic_limit};
use super::registry::{Registry, registry};
use super::shared::shared;
use crate::ground::abi::{rdma_cm_id, rdma_conn_param};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::outcome::number;

/// `IBV_EVENT_COMM_EST`.
const EVENT_COMMUNICATION_ESTABLISHED: u32 = 4;
/// Retries of those who say nothing: the most, and for ever.
const RETRIES: u8 = 7;

/// A program's private data.
///
/// # Safety
/// `data` is null or `length` bytes long.
///
/// # Errors
/// EINVAL: more than fits the message.
unsafe fn private_data<'a>(data: *const c_void, length: u8, limit: usize) -> Result<&'a [u8], Errno> {
    if usize::from(length) > limit {
        return Err(INVALID.because(|| format!("{length} bytes of private data: at most {limit} fit here")));
    }
    if length == 0 || data.is_null() {
        return Ok(&[]);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), length.into()) })
}

/// What a program says of a connection, with its queue pair's number.
struct Terms<'a> {
    param: rdma_conn_param,
    qpn: Qpn,
    srq: bool,
    private_data: &'a [u8],
}

/// # Safety
/// `param` is null or the caller's, with its private data.
unsafe fn terms<'a>(
    id: &Id,
    state: &State,
    param: *const rdma_conn_param,
    room: usize,
) -> Result<(Terms<'a>, bool), Errno> {
    // SAFETY: the caller's promise.
    let given = unsafe { param.as_ref() };
    let usual = rdma_conn_param {
        responder_resources: AS_MUCH_AS_THERE_IS,
        initiator_depth: AS_MUCH_AS_THERE_IS,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        ..no_conn()
    };
    let param = given.copied().unwrap_or(usual);
    // SAFETY: the caller's promise; our own structure and its live queue pair.
    let (private_data, own) = unsafe {
        let own = (*id.c()).qp.as_ref().map(|qp| (qp.qp_num, !qp.srq.is_null()));
        (private_data(param.private_data, param.private_data_len, room)?, own)
    };
    if own.is_none() && given.is_none() {
        return Err(INVALID
            .because(|| "without a queue pair of the identifier's the parameters must name one".to_owned()));
    }
    let (number, srq) = own.unwrap_or((param.qp_num, param.srq != 0));
    let _ = state;
    Ok((Terms { param, qpn: Qpn::new(number & 0xff_ffff), srq, private_data }, given.is_some()))
}

/// READs and atomics: what is asked for, if the device has it; `otherwise`, if as much as there is is.
fn depth(hca: &Hca, wanted: u8, otherwise: u8) -> Result<u8, Errno> {
    let limit = rd_atomic_limit(hca);
    match wanted {
        AS_MUCH_AS_THERE_IS => Ok(otherwise.min(limit)),
        too_many if too_many > limit => Err(INVALID
            .because(|| format!("{too_many} READs and atomics at once: the device has at most {limit}"))),
        some => Ok(some),
    }
}

pub(crate) unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let own = unsafe { Id::of(id) }?;
        {
            let mut registry = registry();
            let mut state = own.state();
            // SAFETY: null or the caller's structure.
            let connection = unsafe { ask(&own, &mut state, conn_param) }?;
            began(&mut registry, &own, &mut state, connection);
        }
        complete(&own)
    })
}

fn began(registry: &mut Registry, id: &Arc<Id>, state: &mut State, connection: CommId) {
    state.connection = Some(connection);
    state.stage = Stage::Connecting;
    registry.connections.insert(connection, Arc::clone(id));
}

/// # Safety
/// `param` is null or the caller's, with its private data.
unsafe fn ask(id: &Id, state: &mut State, param: *const rdma_conn_param) -> Result<CommId, Errno> {
    let (Some(path), Some(local), Some(remote)) =
        (state.path.filter(|_| state.stage == Stage::RouteResolved), state.local, state.remote)
    else {
        return Err(INVALID.because(|| "connecting comes after the route is resolved, and once".to_owned()));
    };
    let shared = shared()?;
    let hca = shared.hca();
    let service_id = ServiceId::rdma_cm(id.port_space(), remote.port());
    let header = IpHeader { source_port: local.port(), source: local.ip(), destination: remote.ip() };
    let mut said = header.emit().to_vec();
    if id.is_datagram() {
        // SAFETY: null or the caller's.
        if let Some(param) = unsafe { param.as_ref() } {
            let room = SidrReq::PRIVATE_DATA_BYTES - IP_HEADER_BYTES;
            // SAFETY: the caller's promise.
            said.extend(unsafe { private_data(param.private_data, param.private_data_len, room) }?);
        }
        return Ok(
            hca.cm_resolve(&ResolveParams::new(service_id, path.route, &said), state.channel.device())?
        );
    }
    // SAFETY: the caller's promise.
    let (terms, given) = unsafe { terms(id, state, param, Req::PRIVATE_DATA_BYTES - IP_HEADER_BYTES) }?;
    let most = rd_atomic_limit(hca);
    state.responder_resources = depth(hca, terms.param.responder_resources, most)?;
    state.initiator_depth = depth(hca, terms.param.initiator_depth, most)?;
    said.extend(if given { terms.private_data } else { &state.greeting });
    // SAFETY: a field of our own structure.
    let transport = match unsafe { (*id.c()).qp_type } {
        QPT_UC => TransportType::Uc,
        QPT_XRC_SEND => TransportType::Xrc,
        _ => TransportType::Rc,
    };
    let params = ConnectParams {
        transport,
        responder_resources: state.responder_resources,
        initiator_depth: state.initiator_depth,
        flow_control: terms.param.flow_control != 0,
        retry_count: terms.param.retry_count.min(RETRIES),
        rnr_retry_count: terms.param.rnr_retry_count.min(RETRIES),
        srq: terms.srq,
        ece: state.local_ece,
        private_data: &said,
        ..ConnectParams::new(service_id, path, terms.qpn, state.psn)
    };
    Ok(hca.cm_connect(&params, state.channel.device())?)
}

pub(crate) unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let own = unsafe { Id::of(id) }?;
        {
            let mut state = own.state();
            let connection = state.connection.ok_or(INVALID)?;
            let hca = shared()?.hca();
            if state.stage == Stage::Connecting && hca.cm_state(connection) == Some(DeviceState::RepReceived)
            {
                // The way in which programs said it before `rdma_establish`.
                hca.cm_send_rtu(connection, &[])?;
                state.stage = Stage::Connected;
                return Ok(0);
            }
            if state.stage != Stage::Requested {
                return Err(INVALID.because(|| "there is no request that is not answered yet".to_owned()));
            }
            // SAFETY: null or the caller's structure.
            unsafe {
                if own.is_datagram() {
                    accept_question(&own, &state, hca, connection, conn_param)?;
                } else {
                    accept_request(&own, &mut state, hca, connection, conn_param)?;
                }
            }
            state.stage = Stage::Accepted;
        }
        if own.is_datagram() { Ok(0) } else { complete(&own) }
    })
}

/// # Safety
/// `param` is null or the caller's, with its private data.
unsafe fn accept_question(
    id: &Id,
    state: &State,
    hca: &Hca,
    connection: CommId,
    param: *const rdma_conn_param,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (terms, _) = unsafe { terms(id, state, param, SidrRep::PRIVATE_DATA_BYTES) }?;
    let reply = SidrReply::queue_pair(terms.qpn, DATAGRAM_Q_KEY, terms.private_data);
    Ok(hca.cm_sidr_reply(connection, &reply)?)
}

/// # Safety
/// `param` is null or the caller's, with its private data.
unsafe fn accept_request(
    id: &Id,
    state: &mut State,
    hca: &Hca,
    connection: CommId,
    param: *const rdma_conn_param,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (terms, _) = unsafe { terms(id, state, param, Rep::PRIVATE_DATA_BYTES) }?;
    state.responder_resources = depth(hca, terms.param.responder_resources, state.responder_resources)?;
    state.initiator_depth = depth(hca, terms.param.initiator_depth, state.initiator_depth)?;
    // Data may come as soon as the peer knows.
    queue_pair::connect(id, state, Some((state.responder_resources, state.initiator_depth)))?;
    let params = AcceptParams {
        responder_resources: state.responder_resources,
        initiator_depth: state.initiator_depth,
        flow_control: terms.param.flow_control != 0,
        rnr_retry_count: terms.param.rnr_retry_count.min(RETRIES),
        srq: terms.srq,
        ece: state.local_ece,
        private_data: terms.private_data,
        ..AcceptParams::new(terms.qpn, state.psn)
    };
    hca.cm_accept(connection, &params).map_err(|error| {
        queue_pair::to_error(id);
        error.into()
    })
}

pub(crate) unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: the caller's promise.
    number(|| unsafe { reject(id, private_data, private_data_len, RejectReason::CONSUMER) })
}

/// Rejects because of the vendors' options.
pub(crate) unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    /// "Vendor option is not supported."
    const OPTION_NOT_SUPPORTED: RejectReason = RejectReason(35);
    // SAFETY: the caller's promise.
    number(|| unsafe { reject(id, private_data, private_data_len, OPTION_NOT_SUPPORTED) })
}

/// # Safety
/// Null or live; null or so many bytes.
unsafe fn reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    length: u8,
    reason: RejectReason,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    let (own, data) = unsafe {
        let own = Id::of(id)?;
        let room = if own.is_datagram() { SidrRep::PRIVATE_DATA_BYTES } else { Rej::PRIVATE_DATA_BYTES };
        (own, private_data(data, length, room)?)
    };
    let mut state = own.state();
    let connection = state.connection.ok_or(INVALID)?;
    let hca = shared()?.hca();
    if own.is_datagram() {
        hca.cm_sidr_reply(connection, &SidrReply::refused(SidrStatus::REJECT, data))?;
    } else {
        hca.cm_reject(connection, &RejectParams { reason, ..RejectParams::consumer(data) })?;
    }
    state.stage = Stage::Over;
    Ok(0)
}

/// The program has brought its own queue pair to RTS.
pub(crate) unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let own = unsafe { Id::of(id) }?;
        // SAFETY: a field of our own structure.
        if unsafe { !(*own.c()).qp.is_null() } {
            return Err(INVALID.because(|| "only for queue pairs that are not the identifier's".to_owned()));
        }
        let mut state = own.state();
        shared()?.hca().cm_send_rtu(state.connection.ok_or(INVALID)?, &[])?;
        state.stage = Stage::Connected;
        Ok(0)
    })
}

/// An asynchronous event of the queue pair, from the program that received it.
pub(crate) unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: u32) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let own = unsafe { Id::of(id) }?;
        let connection = own.state().connection;
        if let (EVENT_COMMUNICATION_ESTABLISHED, Some(connection)) = (event, connection) {
            shared()?.hca().cm_establish(connection)?;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let own = unsafe { Id::of(id) }?;
        let (connection, parted) = {
            let state = own.state();
            (state.connection, state.parted)
        };
        let connection = connection.ok_or_else(|| {
            INVALID.because(|| "this identifier is not connected, and never was".to_owned())
        })?;
        queue_pair::to_error(&own);
        // As in Linux: what is over already, or was never a connection, is disconnected. There no event is to be waited for.
        let begun = shared()?.hca().cm_disconnect(connection, &[]);
        let connects = !own.is_datagram()
            && (begun.is_ok() || matches!(own.state().stage, Stage::Accepted | Stage::Connected));
        if parted || !connects { Ok(0) } else { complete(&own) }
    })
}
