//! Connect, accept, reject, disconnect.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::hca::Hca;
use pumice_transport::cm::{
    AcceptParams, ConnectParams, RejectParams, ResolveParams, SidrReply, State as DeviceState,
};
use pumice_transport::mad::{
    CommId, IP_HEADER_BYTES, IpHeader, Rej, RejectReason, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus,
    TransportType,
};
use pumice_transport::wire::Qpn;

use crate::ground::abi::rdma_conn_param;
use crate::ground::check;
use crate::ground::errno::{Errno, INVALID};
use crate::ground::log::log_warning;
use crate::ground::outcome::number_of;
use crate::ground::plain::bytes;
use crate::ground::waits;
use crate::ground::zeroed::zeroed;
use crate::rdma_cm::constants::{AS_MUCH_AS_THERE_IS, DATAGRAM_Q_KEY, QPT_UC, QPT_XRC_SEND};
use crate::rdma_cm::events::fetch::complete;
use crate::rdma_cm::id::identifier::{Id, IdPointer, Stage, State};
use crate::rdma_cm::id::objects::queue_pair_number;
use crate::rdma_cm::id::queue_pair::{self, rd_atomic_limit};
use crate::rdma_cm::id::registry::{Registry, registry};
use crate::rdma_cm::id::shared::SharedDevice;

/// `IBV_EVENT_COMM_EST`.
const EVENT_COMMUNICATION_ESTABLISHED: u32 = 4;
/// Retries of programs that name no number: the most, and for ever.
const RETRIES: u8 = 7;

/// Private data, and how long its program says that it is.
#[derive(Clone, Copy)]
pub(crate) struct PrivateData<'a> {
    bytes: &'a [u8],
    length: u8,
}

impl<'a> PrivateData<'a> {
    /// What a program gives to a call.
    fn given(data: *const c_void, length: u8) -> PrivateData<'a> {
        // SAFETY: null, or the program's data, which has so many bytes as long as the call lasts.
        let bytes = unsafe { bytes(data, length.into()) }.unwrap_or_default();
        PrivateData { bytes, length }
    }

    /// The bytes, which have to fit a message.
    ///
    /// # Errors
    /// EINVAL: they do not.
    fn within(self, limit: usize) -> Result<&'a [u8], Errno> {
        let PrivateData { bytes, length } = self;
        if usize::from(length) > limit {
            return Err(
                INVALID.because(|| format!("{length} bytes of private data: at most {limit} fit here"))
            );
        }
        Ok(bytes)
    }
}

/// What a call says of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Parameters<'a> {
    param: rdma_conn_param,
    private_data: PrivateData<'a>,
    /// The call named parameters.
    given: bool,
}

impl<'a> Parameters<'a> {
    /// Those of a program, or the usual ones.
    fn given(param: Option<&'a rdma_conn_param>) -> Parameters<'a> {
        match param {
            Some(param) => Parameters {
                param: *param,
                private_data: PrivateData::given(param.private_data, param.private_data_len),
                given: true,
            },
            None => Parameters {
                param: rdma_conn_param {
                    responder_resources: AS_MUCH_AS_THERE_IS,
                    initiator_depth: AS_MUCH_AS_THERE_IS,
                    retry_count: RETRIES,
                    rnr_retry_count: RETRIES,
                    ..zeroed()
                },
                private_data: PrivateData { bytes: &[], length: 0 },
                given: false,
            },
        }
    }

    /// The usual retries and flow control, no READs and atomics, and this private data.
    ///
    /// # Errors
    /// EINVAL: no message has room for so much.
    pub(crate) fn with_private_data(bytes: &'a [u8]) -> Result<Parameters<'a>, Errno> {
        let param =
            rdma_conn_param { flow_control: 1, retry_count: RETRIES, rnr_retry_count: RETRIES, ..zeroed() };
        let length = u8::try_from(bytes.len()).map_err(|_| INVALID)?;
        Ok(Parameters { param, private_data: PrivateData { bytes, length }, given: true })
    }

    /// The queue pair of the connection, and whether it has a shared receive queue: the identifier's, or the
    /// one that the parameters name.
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

/// Says that an identifier is connected that has no queue pair, though its parameters name none.
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

/// READs and atomics: what is `wanted`, if the device has it; `otherwise`, if it is as much as there is.
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
        waits::connects();
        connect(&id.id()?, Parameters::given(conn_param))
    })
}

/// Sends a request to the peer; waits for the answer if the identifier is synchronous.
///
/// # Errors
/// Those of `rdma_connect`.
pub(crate) fn connect(own: &Arc<Id>, parameters: Parameters<'_>) -> Result<c_int, Errno> {
    {
        let mut registry = registry();
        let mut state = own.state();
        let shared = own.shared()?;
        let connection = send_request(own, shared, &mut state, &parameters)?;
        note_connection(&mut registry, own, &mut state, shared.index(), connection);
    }
    complete(own)
}

fn note_connection(
    registry: &mut Registry,
    id: &Arc<Id>,
    state: &mut State,
    device: usize,
    connection: CommId,
) {
    state.connection = Some(connection);
    state.stage = Stage::Connecting;
    registry.connections.insert((device, connection), Arc::clone(id));
}

fn send_request(
    id: &Id,
    shared: &SharedDevice,
    state: &mut State,
    parameters: &Parameters<'_>,
) -> Result<CommId, Errno> {
    let (Some(path), Some(local), Some(remote)) =
        (state.path.filter(|_| state.stage == Stage::RouteResolved), state.local, state.remote)
    else {
        return Err(INVALID.because(|| "connecting comes after the route is resolved, and once".to_owned()));
    };
    let (hca, channel) = (shared.hca(), Arc::clone(state.channel.device(shared.index())));
    let service_id = ServiceId::rdma_cm(id.port_space(), remote.port());
    let header = IpHeader { source_port: local.port(), source: local.ip(), destination: remote.ip() };
    let mut private_data = header.emit().to_vec();
    let &Parameters { ref param, private_data: given, .. } = parameters;
    if id.is_datagram() {
        //= man:rdma_connect
        //| A service lookup has room for 180 bytes of private data.
        private_data.extend(given.within(SidrReq::PRIVATE_DATA_BYTES - IP_HEADER_BYTES)?);
        let resolution = ResolveParams::new(service_id, path.route, &private_data);
        return Ok(hca.cm_resolve(&resolution, &channel)?);
    }
    //= man:rdma_connect
    //| A request has room for 56 bytes of private data.
    let given = given.within(Req::PRIVATE_DATA_BYTES - IP_HEADER_BYTES)?;
    let (qpn, srq) = parameters.queue_pair(id)?;
    let most = rd_atomic_limit(hca);
    state.responder_resources = depth(hca, param.responder_resources, most)?;
    state.initiator_depth = depth(hca, param.initiator_depth, most)?;
    private_data.extend(if parameters.given { given } else { &state.connect_data });
    let transport = match id.c.qp_type() {
        QPT_UC => TransportType::Uc,
        QPT_XRC_SEND => TransportType::Xrc,
        _ => TransportType::Rc,
    };
    let params = ConnectParams {
        transport,
        responder_resources: state.responder_resources,
        initiator_depth: state.initiator_depth,
        flow_control: param.flow_control != 0,
        //= man:rdma_connect
        //| Retry counts have three bits.
        retry_count: param.retry_count.min(RETRIES),
        rnr_retry_count: param.rnr_retry_count.min(RETRIES),
        srq,
        ece: state.local_ece,
        private_data: &private_data,
        ..ConnectParams::new(service_id, path, qpn, state.psn)
    };
    Ok(hca.cm_connect(&params, &channel)?)
}

pub(crate) extern "C" fn rdma_accept(id: IdPointer, conn_param: Option<&rdma_conn_param>) -> c_int {
    number_of(Call::rdma_accept, id.about(), || accept(&id.id()?, Parameters::given(conn_param)))
}

/// Answers a request; waits until the connection is there if the identifier is synchronous.
///
/// # Errors
/// Those of `rdma_accept`.
pub(crate) fn accept(own: &Arc<Id>, parameters: Parameters<'_>) -> Result<c_int, Errno> {
    {
        let mut state = own.state();
        let connection = state.connection.ok_or_else(|| not_a_request(&state))?;
        let shared = own.shared()?;
        let hca = shared.hca();
        if state.stage == Stage::Connecting && hca.cm_state(connection) == Some(DeviceState::RepReceived) {
            // What programs call where `rdma_establish` is not known.
            hca.cm_send_rtu(connection, &[])?;
            state.stage = Stage::Connected;
            return Ok(0);
        }
        //= man:rdma_accept
        //| A request is accepted on the identifier that came with it.
        if state.stage != Stage::Requested {
            return Err(INVALID.because(|| "there is no request that is not answered yet".to_owned()));
        }
        // From then on its events are the program's.
        if own.is_datagram() {
            accept_service_request(own, hca, connection, &parameters)?;
            // It fails if the peer has gone again.
            let _ = hca.cm_migrate(connection, state.channel.device(shared.index()));
        } else {
            accept_request(own, &mut state, shared, connection, &parameters)?;
        }
        state.stage = Stage::Accepted;
    }
    if own.is_datagram() { Ok(0) } else { complete(own) }
}

/// An identifier is to be accepted or rejected that no request came with.
fn not_a_request(state: &State) -> Errno {
    INVALID.because(|| {
        let what =
            if state.stage == Stage::Listening { "this identifier listens" } else { "no request came" };
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
    parameters: &Parameters<'_>,
) -> Result<(), Errno> {
    let (qpn, _) = parameters.queue_pair(id)?;
    let answered = parameters.private_data.within(SidrRep::PRIVATE_DATA_BYTES).and_then(|said| {
        Ok(hca.cm_sidr_reply(connection, &SidrReply::queue_pair(qpn, DATAGRAM_Q_KEY, said))?)
    });
    answered.inspect_err(|_| {
        // The peer is told, as by Linux, unless it has gone.
        let _ = hca.cm_sidr_reply(connection, &SidrReply::refused(SidrStatus::REJECT, &[]));
    })
}

fn accept_request(
    id: &Id,
    state: &mut State,
    shared: &SharedDevice,
    connection: CommId,
    parameters: &Parameters<'_>,
) -> Result<(), Errno> {
    let hca = shared.hca();
    let ((qpn, srq), param) = (parameters.queue_pair(id)?, &parameters.param);
    state.responder_resources = depth(hca, param.responder_resources, state.responder_resources)?;
    state.initiator_depth = depth(hca, param.initiator_depth, state.initiator_depth)?;
    // Data may come as soon as the peer has the answer.
    //= linux:cma.c#cma_accept_ib
    //| The queue pair is in RTS before the answer leaves.
    queue_pair::connect(id, state, Some((state.responder_resources, state.initiator_depth)))?;
    //= man:rdma_accept
    //| An answer has room for 196 bytes of private data.
    let accepted = parameters.private_data.within(Rep::PRIVATE_DATA_BYTES).and_then(|private_data| {
        let params = AcceptParams {
            responder_resources: state.responder_resources,
            initiator_depth: state.initiator_depth,
            flow_control: param.flow_control != 0,
            rnr_retry_count: param.rnr_retry_count.min(RETRIES),
            srq,
            ece: state.local_ece,
            private_data,
            ..AcceptParams::new(qpn, state.psn)
        };
        Ok(hca.cm_accept_on(connection, &params, state.channel.device(shared.index()))?)
    });
    accepted.inspect_err(|_| {
        queue_pair::to_error(id);
        // As in Linux: who asked is told that it failed, unless it has gone.
        let _ = hca.cm_reject(connection, &RejectParams::consumer(&[]));
    })
}

pub(crate) extern "C" fn rdma_reject(
    id: IdPointer,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    let private_data = PrivateData::given(private_data, private_data_len);
    number_of(Call::rdma_reject, id.on(), || reject(&*id.id()?, private_data, RejectReason::CONSUMER))
}

/// Rejects because of the vendors' options.
pub(crate) extern "C" fn rdma_reject_ece(
    id: IdPointer,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    /// "Vendor option is not supported."
    const OPTION_NOT_SUPPORTED: RejectReason = RejectReason(35);
    let private_data = PrivateData::given(private_data, private_data_len);
    number_of(Call::rdma_reject_ece, id.on(), || reject(&*id.id()?, private_data, OPTION_NOT_SUPPORTED))
}

/// Rejects a request without private data.
///
/// # Errors
/// EINVAL: the identifier is no request. The peer may have gone.
pub(crate) fn reject_silently(own: &Id) -> Result<c_int, Errno> {
    reject(own, PrivateData { bytes: &[], length: 0 }, RejectReason::CONSUMER)
}

fn reject(own: &Id, private_data: PrivateData<'_>, reason: RejectReason) -> Result<c_int, Errno> {
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
    state.stage = Stage::Ended;
    Ok(0)
}

/// The program has brought its own queue pair to RTS.
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
        state.stage = Stage::Connected;
        Ok(0)
    })
}

/// An asynchronous event of the queue pair, from the program that received it.
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

/// Takes the queue pair to ERR and tells the peer; waits until that is done if the identifier is synchronous.
///
/// # Errors
/// EINVAL: the identifier is not connected, and never was. Those of waiting.
pub(crate) fn disconnect(own: &Id) -> Result<c_int, Errno> {
    let (connection, disconnect_reported) = {
        let state = own.state();
        // As in Linux: one that listens has something to do with the connection manager, and ends nothing.
        if state.stage == Stage::Listening {
            return Ok(0);
        }
        (state.connection, state.disconnect_reported)
    };
    let connection = connection
        .ok_or_else(|| INVALID.because(|| "this identifier is not connected, and never was".to_owned()))?;
    //= man:rdma_disconnect
    //| Disconnecting moves the queue pair to ERR.
    queue_pair::to_error(own);
    // As in Linux: an identifier whose connection has ended, or that resolved a service, is disconnected. No
    // event of it is to be waited for.
    let begun = own.shared()?.hca().cm_disconnect(connection, &[]);
    let connects = !own.is_datagram()
        && (begun.is_ok() || matches!(own.state().stage, Stage::Accepted | Stage::Connected));
    if disconnect_reported || !connects { Ok(0) } else { complete(own) }
}
