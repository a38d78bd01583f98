//! The functions that programs call, one file per family. Each file has the exported functions, and the safe
//! ones that implement them, which rsockets use as well.
//!
//! Connecting, accepting, rejecting, disconnecting.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::hca::Hca;
use pumice_transport::cm::{
    AcceptParams, CmState as DeviceState, ConnectParams, RejectParams, ResolveParams, SidrReply,
};
use pumice_transport::mad::{
    CommId, IpHeader, Rej, RejectReason, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus, TransportType,
};
use pumice_transport::wire::Qpn;

use crate::abi::plain::{bytes, zeroed};
use crate::abi::rdma_conn_param;
use crate::entry::number_of;
use crate::log::log_warning;
use crate::platform::{Errno, INVALID};
use crate::rdma_cm::constants::{AS_MUCH_AS_THERE_IS, DATAGRAM_Q_KEY, QPT_UC, QPT_XRC_SEND};
use crate::rdma_cm::events::translation::complete;
use crate::rdma_cm::id::objects::queue_pair_number;
use crate::rdma_cm::id::queue_pair::{connect as connect_queue_pair, rd_atomic_limit, to_error};
use crate::rdma_cm::id::registry::{IdRegistry, registry};
use crate::rdma_cm::id::shared::SharedDevice;
use crate::rdma_cm::id::{Id, IdPointer, IdStage, IdState};
use crate::{check, waits};

/// The event `IBV_EVENT_COMM_EST`.
const EVENT_COMMUNICATION_ESTABLISHED: u32 = 4;
/// Retries of programs that give no number: the largest number, which for RNR means for ever.
const RETRIES: u8 = 7;

/// Private data, and the length that the program gives for it.
#[derive(Clone, Copy)]
pub(crate) struct ConnectPrivateData<'a> {
    bytes: &'a [u8],
    length: u8,
}

impl<'a> ConnectPrivateData<'a> {
    /// Returns the private data that a program gives to a call.
    fn given(data: *const c_void, length: u8) -> ConnectPrivateData<'a> {
        // SAFETY: null, or the program's data, which has this many bytes until the call returns.
        let bytes = unsafe { bytes(data, length.into()) }.unwrap_or_default();
        ConnectPrivateData { bytes, length }
    }

    /// Returns the bytes, if they fit a message.
    ///
    /// # Errors
    /// Fails with EINVAL if they do not.
    fn within(self, limit: usize) -> Result<&'a [u8], Errno> {
        let ConnectPrivateData { bytes, length } = self;
        if usize::from(length) > limit {
            return Err(
                INVALID.because(|| format!("{length} bytes of private data: at most {limit} fit here"))
            );
        }
        Ok(bytes)
    }
}

/// Parameters of a call about a connection.
#[derive(Clone, Copy)]
pub(crate) struct ConnectParameters<'a> {
    param: rdma_conn_param,
    private_data: ConnectPrivateData<'a>,
    /// True if the call gave parameters.
    given: bool,
}

impl<'a> ConnectParameters<'a> {
    /// Returns the parameters of a program, or the usual ones.
    fn given(param: Option<&'a rdma_conn_param>) -> ConnectParameters<'a> {
        match param {
            Some(param) => ConnectParameters {
                param: *param,
                private_data: ConnectPrivateData::given(param.private_data, param.private_data_len),
                given: true,
            },
            None => ConnectParameters {
                param: rdma_conn_param {
                    responder_resources: AS_MUCH_AS_THERE_IS,
                    initiator_depth: AS_MUCH_AS_THERE_IS,
                    retry_count: RETRIES,
                    rnr_retry_count: RETRIES,
                    ..zeroed()
                },
                private_data: ConnectPrivateData { bytes: &[], length: 0 },
                given: false,
            },
        }
    }

    /// Returns parameters with the usual retries and flow control, no READs and atomics, and this private
    /// data.
    ///
    /// # Errors
    /// Fails with EINVAL if no message has room for so much.
    pub(crate) fn with_private_data(bytes: &'a [u8]) -> Result<ConnectParameters<'a>, Errno> {
        let param =
            rdma_conn_param { flow_control: 1, retry_count: RETRIES, rnr_retry_count: RETRIES, ..zeroed() };
        let length = u8::try_from(bytes.len()).map_err(|_| INVALID)?;
        Ok(ConnectParameters { param, private_data: ConnectPrivateData { bytes, length }, given: true })
    }

    /// Returns the queue pair of the connection, and whether it has a shared receive queue: the identifier's,
    /// or the one that the parameters name.
    fn queue_pair(&self, id: &Id) -> Result<(Qpn, bool), Errno> {
        let (number, srq) = match id.c.qp() {
            qp if !qp.is_null() => queue_pair_number(qp)?,
            _ if self.given => {
                if self.param.qp_num == 0 {
                    without_queue_pair();
                }
                (self.param.qp_num, self.param.srq != 0)
            }
            _ => {
                return Err(INVALID.because(|| {
                    "without a queue pair of the identifier's the parameters must name one".to_owned()
                }));
            }
        };
        Ok((Qpn::new(number & 0xff_ffff), srq))
    }
}

/// Logs that an identifier is connected that has no queue pair, though its parameters name none.
#[cold]
fn without_queue_pair() {
    log_warning(|| {
        "the identifier has no queue pair, and qp_num of the parameters is 0: no message reaches this end; \
         call rdma_create_qp before rdma_connect or rdma_accept"
            .to_owned()
    });
    if check::is_on() {
        check::misuse::connects_without_qp();
    }
}

/// Returns a number of READs and atomics: `wanted`, if the device allows it; `otherwise`, if the program
/// wants the maximum.
fn depth(hca: &Hca, wanted: u8, otherwise: u8) -> Result<u8, Errno> {
    let limit = rd_atomic_limit(hca);
    match wanted {
        AS_MUCH_AS_THERE_IS => Ok(otherwise.min(limit)),
        //= man:rdma_connect
        //| The depths of READs are within the limits of the device.
        too_many if too_many > limit => Err(INVALID
            .because(|| format!("{too_many} READs and atomics at once: the device has at most {limit}"))),
        some => Ok(some),
    }
}

pub(crate) extern "C" fn rdma_connect(id: IdPointer, conn_param: Option<&rdma_conn_param>) -> c_int {
    number_of(Call::rdma_connect, id.about(), || {
        waits::note_connect();
        connect(&id.id()?, ConnectParameters::given(conn_param))
    })
}

/// Sends a request to the peer; waits for the answer if the identifier is synchronous.
///
/// # Errors
/// Fails with the errors of `rdma_connect`.
pub(crate) fn connect(own: &Arc<Id>, parameters: ConnectParameters<'_>) -> Result<c_int, Errno> {
    {
        let mut registry = registry();
        let mut state = own.state();
        let shared = own.shared()?;
        let connection = send_request(own, shared, &mut state, &parameters)?;
        record_connection(&mut registry, own, &mut state, shared.index(), connection);
    }
    complete(own)
}

fn record_connection(
    registry: &mut IdRegistry,
    id: &Arc<Id>,
    state: &mut IdState,
    device: usize,
    connection: CommId,
) {
    state.connection = Some(connection);
    state.stage = IdStage::Connecting;
    registry.connections.insert((device, connection), Arc::clone(id));
}

fn send_request(
    id: &Id,
    shared: &SharedDevice,
    state: &mut IdState,
    parameters: &ConnectParameters<'_>,
) -> Result<CommId, Errno> {
    let (Some(path), Some(local), Some(remote)) = (
        state.addresses.path.filter(|_| state.stage == IdStage::RouteResolved),
        state.addresses.local,
        state.addresses.remote,
    ) else {
        return Err(INVALID.because(|| "connecting comes after the route is resolved, and once".to_owned()));
    };
    let (hca, channel) = (shared.hca(), Arc::clone(state.channel.device(shared.index())));
    let service_id = ServiceId::rdma_cm(id.port_space(), remote.port());
    let header = IpHeader { source_port: local.port(), source: local.ip(), destination: remote.ip() };
    //= linux:cma.c#cma_user_data_offset
    //| A request by GID (AF_IB) has no header: its program has all of the room.
    let mut private_data = if state.addresses.by_gid { Vec::new() } else { header.emit().to_vec() };
    let header_bytes = private_data.len();
    let &ConnectParameters { ref param, private_data: given, .. } = parameters;
    if id.is_datagram() {
        //= man:rdma_connect
        //| A service lookup has room for 180 bytes of private data.
        private_data.extend(given.within(SidrReq::PRIVATE_DATA_BYTES - header_bytes)?);
        mark_version(&mut private_data);
        let resolution = ResolveParams::new(service_id, path.route, &private_data);
        return Ok(hca.cm_resolve(&resolution, &channel)?);
    }
    //= man:rdma_connect
    //| A request has room for 56 bytes of private data.
    let given = given.within(Req::PRIVATE_DATA_BYTES - header_bytes)?;
    let (qpn, srq) = parameters.queue_pair(id)?;
    let most = rd_atomic_limit(hca);
    state.offer.responder_resources = depth(hca, param.responder_resources, most)?;
    state.offer.initiator_depth = depth(hca, param.initiator_depth, most)?;
    private_data.extend(if parameters.given { given } else { &state.offer.connect_data });
    mark_version(&mut private_data);
    let transport = match id.c.qp_type() {
        QPT_UC => TransportType::Uc,
        QPT_XRC_SEND => TransportType::Xrc,
        _ => TransportType::Rc,
    };
    let params = ConnectParams {
        transport,
        responder_resources: state.offer.responder_resources,
        initiator_depth: state.offer.initiator_depth,
        flow_control: param.flow_control != 0,
        //= man:rdma_connect
        //| Retry counts have three bits.
        retry_count: param.retry_count.min(RETRIES),
        rnr_retry_count: param.rnr_retry_count.min(RETRIES),
        srq,
        ece: state.offer.local_ece,
        private_data: &private_data,
        ..ConnectParams::new(service_id, path, qpn, state.offer.psn)
    };
    Ok(hca.cm_connect(&params, &channel)?)
}

/// Sets the version 0 at the beginning of a request's private data, which is needed even without a header:
/// Linux accepts no other.
fn mark_version(private_data: &mut [u8]) {
    //= linux:cma.c#cma_format_hdr
    //| The first byte of a request is the version, also without a header.
    if let Some(version) = private_data.first_mut() {
        *version = 0;
    }
}

pub(crate) extern "C" fn rdma_accept(id: IdPointer, conn_param: Option<&rdma_conn_param>) -> c_int {
    number_of(Call::rdma_accept, id.about(), || accept(&id.id()?, ConnectParameters::given(conn_param)))
}

/// Answers a request; waits until the connection is established if the identifier is synchronous.
///
/// # Errors
/// Fails with the errors of `rdma_accept`.
pub(crate) fn accept(own: &Arc<Id>, parameters: ConnectParameters<'_>) -> Result<c_int, Errno> {
    {
        let mut state = own.state();
        let connection = state.connection.ok_or_else(|| not_a_request(&state))?;
        let shared = own.shared()?;
        let hca = shared.hca();
        if state.stage == IdStage::Connecting && hca.cm_state(connection) == Some(DeviceState::RepReceived) {
            // Programs that do not know `rdma_establish` call this instead.
            hca.cm_send_rtu(connection, &[])?;
            state.stage = IdStage::Connected;
            return Ok(0);
        }
        //= man:rdma_accept
        //| A request is accepted on the identifier that came with it.
        if state.stage != IdStage::Requested {
            return Err(INVALID.because(|| "there is no request that is not answered yet".to_owned()));
        }
        // From here on its events are delivered to the program.
        if own.is_datagram() {
            accept_service_request(own, hca, connection, &parameters)?;
            // This fails if the peer has already gone.
            let _ = hca.cm_migrate(connection, state.channel.device(shared.index()));
        } else {
            accept_request(own, &mut state, shared, connection, &parameters)?;
        }
        state.stage = IdStage::Accepted;
    }
    if own.is_datagram() { Ok(0) } else { complete(own) }
}

/// Returns the error for accepting or rejecting an identifier that no request came with.
fn not_a_request(state: &IdState) -> Errno {
    INVALID.because(|| {
        let what =
            if state.stage == IdStage::Listening { "this identifier listens" } else { "no request came" };
        format!(
            "{what}: a request is accepted or rejected on the identifier that came with its event \
             RDMA_CM_EVENT_CONNECT_REQUEST"
        )
    })
}

fn accept_service_request(
    id: &Id,
    hca: &Hca,
    connection: CommId,
    parameters: &ConnectParameters<'_>,
) -> Result<(), Errno> {
    let (qpn, _) = parameters.queue_pair(id)?;
    let answered = parameters.private_data.within(SidrRep::PRIVATE_DATA_BYTES).and_then(|reply_data| {
        Ok(hca.cm_sidr_reply(connection, &SidrReply::queue_pair(qpn, DATAGRAM_Q_KEY, reply_data))?)
    });
    answered.inspect_err(|_| {
        // The peer is notified, as by Linux, unless it has gone.
        let _ = hca.cm_sidr_reply(connection, &SidrReply::refused(SidrStatus::REJECT, &[]));
    })
}

fn accept_request(
    id: &Id,
    state: &mut IdState,
    shared: &SharedDevice,
    connection: CommId,
    parameters: &ConnectParameters<'_>,
) -> Result<(), Errno> {
    let hca = shared.hca();
    let ((qpn, srq), param) = (parameters.queue_pair(id)?, &parameters.param);
    state.offer.responder_resources = depth(hca, param.responder_resources, state.offer.responder_resources)?;
    state.offer.initiator_depth = depth(hca, param.initiator_depth, state.offer.initiator_depth)?;
    // Data may arrive as soon as the peer has the answer.
    //= linux:cma.c#cma_accept_ib
    //| The queue pair is in RTS before the answer leaves.
    connect_queue_pair(id, state, Some((state.offer.responder_resources, state.offer.initiator_depth)))?;
    //= man:rdma_accept
    //| An answer has room for 196 bytes of private data.
    let accepted = parameters.private_data.within(Rep::PRIVATE_DATA_BYTES).and_then(|private_data| {
        let params = AcceptParams {
            responder_resources: state.offer.responder_resources,
            initiator_depth: state.offer.initiator_depth,
            flow_control: param.flow_control != 0,
            rnr_retry_count: param.rnr_retry_count.min(RETRIES),
            srq,
            ece: state.offer.local_ece,
            private_data,
            ..AcceptParams::new(qpn, state.offer.psn)
        };
        Ok(hca.cm_accept_on(connection, &params, state.channel.device(shared.index()))?)
    });
    accepted.inspect_err(|_| {
        to_error(id);
        // As in Linux, the requesting peer is notified of the failure, unless it has gone.
        let _ = hca.cm_reject(connection, &RejectParams::consumer(&[]));
    })
}

pub(crate) extern "C" fn rdma_reject(
    id: IdPointer,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    let private_data = ConnectPrivateData::given(private_data, private_data_len);
    number_of(Call::rdma_reject, id.on(), || reject(&*id.id()?, private_data, RejectReason::CONSUMER))
}

/// Rejects because of the vendors' options.
pub(crate) extern "C" fn rdma_reject_ece(
    id: IdPointer,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    /// Reason "vendor option is not supported".
    const OPTION_NOT_SUPPORTED: RejectReason = RejectReason(35);
    let private_data = ConnectPrivateData::given(private_data, private_data_len);
    number_of(Call::rdma_reject_ece, id.on(), || reject(&*id.id()?, private_data, OPTION_NOT_SUPPORTED))
}

/// Rejects a request without private data.
///
/// # Errors
/// Fails with EINVAL if the identifier is no request. The peer may have gone.
pub(crate) fn reject_silently(own: &Id) -> Result<c_int, Errno> {
    reject(own, ConnectPrivateData { bytes: &[], length: 0 }, RejectReason::CONSUMER)
}

fn reject(own: &Id, private_data: ConnectPrivateData<'_>, reason: RejectReason) -> Result<c_int, Errno> {
    let room = if own.is_datagram() { SidrRep::PRIVATE_DATA_BYTES } else { Rej::PRIVATE_DATA_BYTES };
    let data = private_data.within(room)?;
    let mut state = own.state();
    let connection = state.connection.ok_or_else(|| not_a_request(&state))?;
    let hca = own.shared()?.hca();
    if own.is_datagram() {
        hca.cm_sidr_reply(connection, &SidrReply::refused(SidrStatus::REJECT, data))?;
    } else {
        hca.cm_reject(connection, &RejectParams { reason, ..RejectParams::consumer(data) })?;
    }
    state.stage = IdStage::Ended;
    Ok(0)
}

/// Establishes the connection, because the program has brought its own queue pair to RTS.
pub(crate) extern "C" fn rdma_establish(id: IdPointer) -> c_int {
    number_of(Call::rdma_establish, id.on(), || {
        let own = id.id()?;
        //= man:rdma_establish
        //| The call is for identifiers without a queue pair.
        if !own.c.qp().is_null() {
            return Err(INVALID.because(|| "only for queue pairs that are not the identifier's".to_owned()));
        }
        let mut state = own.state();
        own.shared()?.hca().cm_send_rtu(state.connection.ok_or(INVALID)?, &[])?;
        state.stage = IdStage::Connected;
        Ok(0)
    })
}

/// Handles an asynchronous event of the queue pair that the program received.
pub(crate) extern "C" fn rdma_notify(id: IdPointer, event: u32) -> c_int {
    number_of(Call::rdma_notify, id.on(), || {
        let own = id.id()?;
        let connection = own.state().connection.filter(|_| event == EVENT_COMMUNICATION_ESTABLISHED);
        let connection = connection.ok_or_else(|| {
            INVALID.because(|| "only that a connection is established is told so".to_owned())
        })?;
        let hca = own.shared()?.hca();
        if hca.cm_state(connection) == Some(DeviceState::Established) {
            //= man:rdma_notify
            //| The error EISCONN says that the connection is established already.
            return Err(Errno(libc::EISCONN).because(|| "the connection is established already".to_owned()));
        }
        hca.cm_establish(connection)?;
        Ok(0)
    })
}

pub(crate) extern "C" fn rdma_disconnect(id: IdPointer) -> c_int {
    number_of(Call::rdma_disconnect, id.on(), || disconnect(&*id.id()?))
}

/// Moves the queue pair to ERR and disconnects from the peer; waits until that is done if the identifier is
/// synchronous.
///
/// # Errors
/// Fails with EINVAL if the identifier is not connected, and never was, and with the errors of waiting.
pub(crate) fn disconnect(own: &Id) -> Result<c_int, Errno> {
    let (connection, disconnect_reported) = {
        let state = own.state();
        // As in Linux, a listener uses the connection manager too, so the call succeeds without an effect.
        if state.stage == IdStage::Listening {
            return Ok(0);
        }
        (state.connection, state.disconnect_reported)
    };
    let connection = connection
        .ok_or_else(|| INVALID.because(|| "this identifier is not connected, and never was".to_owned()))?;
    //= man:rdma_disconnect
    //| Disconnecting moves the queue pair to ERR.
    to_error(own);
    // As in Linux, an identifier whose connection has ended, or that resolved a service, is disconnected. It
    // has no event to wait for.
    let begun = own.shared()?.hca().cm_disconnect(connection, &[]);
    let note_connect = !own.is_datagram()
        && (begun.is_ok() || matches!(own.state().stage, IdStage::Accepted | IdStage::Connected));
    if disconnect_reported || !note_connect { Ok(0) } else { complete(own) }
}

pub(crate) mod endpoint;
pub(crate) mod identifier;
pub(crate) mod queue_pair;
pub(crate) mod resolve;
