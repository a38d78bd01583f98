//! The active side of a connection: sends REQ, receives REP, sends RTU.

use alloc::boxed::Box;

use super::connection::{CmConnection, RemoteEnd, Repetition, SentMad};
use super::pace::Pace;
use super::{
    Cm, CmError, CmEvent, CmPath, CmState, ConnectParams, IgnoredMad, MadRoute, QpParameters, ack_timeout,
    time_code_ns,
};
use crate::mad::{
    CmMessage, CommId, PathFields, PrivateData, Rej, RejectReason, Rejected, Rep, Req, Rtu, TransportType,
};
use crate::wire::{Psn, Qpn};

impl Cm {
    /// Sends a REQ. The peer's answer arrives as [`CmEvent::ConnectResponse`], [`CmEvent::Rejected`] or
    /// [`CmEvent::Unreachable`].
    ///
    /// # Errors
    /// Fails if a value does not fit its field, if there is too much private data, or if there are too many
    /// connections.
    pub fn connect(&mut self, params: &ConnectParams<'_>, now_ns: u64) -> Result<CommId, CmError> {
        let id = self.new_id()?;
        let request = self.request(id, params)?;
        let transaction = new_transaction(id);
        let last_sent = CmMessage::Req(request).emit(transaction);
        let path = &params.path;
        // The packet life time counts in both directions; the peer's response time comes on top.
        let interval_ns =
            //= linux:cm.c#ib_send_cm_req
            //| A REQ is repeated after two packet life times and the time that the peer may take.
            2 * time_code_ns(path.packet_life_time) + time_code_ns(params.remote_response_timeout);
        let connection = CmConnection {
            state: CmState::ReqSent,
            consumer: true,
            waiting_at: None,
            route: path.route,
            transaction,
            service_id: params.service_id,
            remote_id: CommId::NONE,
            remote_ca_guid: 0,
            local_qpn: params.local_qpn,
            repetition: Repetition {
                response_timeout_ns: interval_ns,
                max_retries: params.max_cm_retries,
                interval_ns,
                retries_left: params.max_cm_retries,
                last_sent: Some(SentMad::new(&last_sent)),
                pace: Pace::Free,
            },
            qp: QpParameters {
                transport: params.transport,
                local: path.route.local,
                remote: path.route.remote,
                flow_label: path.route.flow_label,
                traffic_class: path.route.traffic_class,
                hop_limit: path.route.hop_limit,
                sl: path.sl,
                pkey: path.pkey,
                path_mtu: path.mtu,
                dest_qpn: Qpn::default(),
                rq_psn: Some(params.starting_psn),
                sq_psn: Psn::default(),
                max_dest_rd_atomic: params.responder_resources,
                max_rd_atomic: params.initiator_depth,
                timeout: path.packet_life_time.saturating_add(1).min(31),
                retry_count: params.retry_count,
                rnr_retry_count: params.rnr_retry_count,
            },
            liveness_asked_ns: None,
            deadline_ns: None,
        };
        self.table.insert(id, connection);
        self.send_in_turn(id, now_ns);
        Ok(id)
    }

    /// Sends an RTU, which establishes the connection. The queue pair must be in RTS.
    ///
    /// # Errors
    /// Fails if no reply has arrived, or if there are more than 224 bytes of private data.
    pub fn send_rtu(&mut self, id: CommId, private_data: &[u8]) -> Result<(), CmError> {
        let private_data = PrivateData::new(private_data)?;
        let connection = self.consumers(id, "a reply that was received", |state| {
            matches!(state, CmState::RepReceived | CmState::MraRepSent)
        })?;
        let rtu = Rtu { local_id: id, remote_id: connection.remote_id, private_data };
        let (route, mad) = (connection.route, CmMessage::Rtu(rtu).emit(connection.transaction));
        connection.repetition.last_sent = Some(SentMad::new(&mad));
        connection.state = CmState::Established;
        self.send_mad(route, mad);
        Ok(())
    }

    pub(super) fn on_rep(
        &mut self,
        route: &MadRoute,
        transaction: u64,
        rep: &Rep,
        now_ns: u64,
    ) -> Result<(), IgnoredMad> {
        let id = rep.remote_id;
        let Some(connection) = self.table.get_mut(id).filter(|own| own.route.remote == route.remote) else {
            self.reject_reply(route, transaction, rep, RejectReason::INVALID_COMM_ID);
            return Err(IgnoredMad::UnknownId);
        };
        match connection.state {
            CmState::ReqSent | CmState::MraReqReceived => {}
            state => return self.on_late_rep(route, transaction, rep, state),
        }
        let xrc = connection.qp.transport == TransportType::Xrc;
        let remote_qpn = if xrc { Qpn::new(rep.local_eecn) } else { rep.local_qpn };
        let end = |number| RemoteEnd { address: route.remote.0, ca_guid: rep.local_ca_guid, number };
        //= linux:cm.c#cm_rep_handler
        //| A REP whose connection is known already is a duplicate.
        if self.table.by_remote_id(&end(rep.local_id.0)).is_some() {
            return Err(IgnoredMad::Duplicate);
        }
        if let Some(old) = self.table.by_remote_queue_pair(&end(remote_qpn.value()))
            && self.is_stale(old)
        {
            self.probe_liveness(old, now_ns);
            //= linux:cm.c#cm_rep_handler
            //| A REP that names a connected queue pair is rejected as stale.
            self.reject_reply(route, transaction, rep, RejectReason::STALE_CONNECTION);
            return Err(IgnoredMad::Stale);
        }
        if let Some(connection) = self.table.get_mut(id) {
            connection.state = CmState::RepReceived;
            connection.repetition.last_sent = None;
            connection.remote_id = rep.local_id;
            connection.remote_ca_guid = rep.local_ca_guid;
            let qp = &mut connection.qp;
            qp.dest_qpn = remote_qpn;
            qp.sq_psn = rep.starting_psn;
            //= man:rdma_get_cm_event
            //| The depths of READs change their roles between the two sides.
            qp.max_rd_atomic = rep.responder_resources;
            qp.max_dest_rd_atomic = rep.initiator_depth;
            //= linux:cm.c#cm_rep_handler
            //| The active side takes the RNR retry count from the REP.
            qp.rnr_retry_count = rep.rnr_retry_count;
            qp.timeout = ack_timeout(rep.target_ack_delay, qp.timeout.saturating_sub(1));
        }
        self.settle(id);
        self.table.disarm(id);
        self.table.index_remote(id);
        self.push_event(id, CmEvent::ConnectResponse { id, reply: Box::new(*rep) });
        Ok(())
    }

    /// Handles a REP for a connection that does not wait for one: its sender did not get the RTU.
    fn on_late_rep(
        &mut self,
        route: &MadRoute,
        transaction: u64,
        rep: &Rep,
        state: CmState,
    ) -> Result<(), IgnoredMad> {
        let same = self.table.between(rep.remote_id, rep.local_id, route).is_some();
        match state {
            //= linux:cm.c#cm_dup_rep_handler
            //| A repeated REP of an established connection is answered with the RTU again.
            CmState::Established | CmState::MraRepSent if same => {
                self.resend(rep.remote_id);
                Err(IgnoredMad::Duplicate)
            }
            CmState::RepReceived if same => {
                self.ask_for_time(rep.remote_id);
                Err(IgnoredMad::Duplicate)
            }
            CmState::Idle => {
                self.reject_reply(route, transaction, rep, RejectReason::INVALID_COMM_ID);
                Err(IgnoredMad::WrongState(state))
            }
            _ => Err(IgnoredMad::WrongState(state)),
        }
    }

    fn reject_reply(&mut self, route: &MadRoute, transaction: u64, rep: &Rep, reason: RejectReason) {
        let rej = Rej {
            local_id: rep.remote_id,
            remote_id: rep.local_id,
            rejected: Rejected::Rep,
            info_length: 0,
            reason,
            info: PrivateData::NONE,
            private_data: PrivateData::NONE,
        };
        self.send(*route, &CmMessage::Rej(rej), transaction);
    }

    fn request(&self, id: CommId, params: &ConnectParams<'_>) -> Result<Req, CmError> {
        if !matches!(params.transport, TransportType::Rc | TransportType::Uc | TransportType::Xrc) {
            return Err(CmError::Transport);
        }
        within("retry count", params.retry_count, 7)?;
        within("RNR retry count", params.rnr_retry_count, 7)?;
        within("CM retries", params.max_cm_retries, 15)?;
        within("remote CM response timeout", params.remote_response_timeout, 31)?;
        within("local CM response timeout", params.local_response_timeout, 31)?;
        within("packet life time", params.path.packet_life_time, 31)?;
        within("packet rate", params.path.packet_rate, 63)?;
        within("service level", params.path.sl, 15)?;
        // The initiator of XRC neither serves READs nor receives; Linux leaves the fields for these out.
        let two_way = params.transport != TransportType::Xrc;
        //= linux:cm.c#cm_format_req
        //| The REQ of an XRC initiator leaves out what is about responses and receives.
        let unless_xrc = |value| if two_way { value } else { 0 };
        Ok(Req {
            local_id: id,
            service_id: params.service_id,
            local_ca_guid: self.config.ca_guid,
            ece: params.ece,
            local_q_key: 0,
            local_qpn: params.local_qpn,
            responder_resources: unless_xrc(params.responder_resources),
            local_eecn: 0,
            initiator_depth: params.initiator_depth,
            remote_eecn: 0,
            remote_response_timeout: params.remote_response_timeout,
            transport: params.transport,
            flow_control: params.flow_control,
            starting_psn: params.starting_psn,
            local_response_timeout: params.local_response_timeout,
            retry_count: unless_xrc(params.retry_count),
            pkey: params.path.pkey,
            path_mtu: params.path.mtu as u8,
            rdc_exists: false,
            rnr_retry_count: unless_xrc(params.rnr_retry_count),
            max_cm_retries: params.max_cm_retries,
            srq: two_way && params.srq,
            primary: primary_path(&params.path, self.config.ca_ack_delay),
            //= linux:cm.c#cm_req_has_alt_path
            //| An alternate path is present if its local LID is not 0.
            alternate: PathFields::default(),
            private_data: PrivateData::new(params.private_data)?,
        })
    }

    /// Chooses an unused communication id.
    pub(super) fn new_id(&mut self) -> Result<CommId, CmError> {
        let full = CmError::TooManyConnections { limit: self.config.max_connections };
        if self.table.len() >= self.config.max_connections {
            return Err(full);
        }
        self.ids.next(|id| self.table.contains(id)).ok_or(full)
    }

    /// Returns the connection `id` of the consumer if `fits` accepts its state; `wanted` describes that state
    /// in the error.
    pub(super) fn consumers(
        &mut self,
        id: CommId,
        wanted: &'static str,
        fits: impl Fn(CmState) -> bool,
    ) -> Result<&mut CmConnection, CmError> {
        let connection = self.table.get_mut(id).filter(|connection| connection.consumer);
        let connection = connection.ok_or(CmError::UnknownId(id))?;
        let state = connection.state;
        if !fits(state) {
            return Err(CmError::WrongState { id, state, wanted });
        }
        Ok(connection)
    }

    /// Sends the last message of a connection again.
    pub(super) fn resend(&mut self, id: CommId) {
        let Some(connection) = self.table.get(id) else { return };
        if let Some(last_sent) = &connection.repetition.last_sent {
            let (route, mad) = (connection.route, last_sent.mad());
            self.send_mad(route, mad);
        }
    }
}

/// Returns the transaction id of a conversation that begins with `id`. Linux, too, derives it from the
/// communication id.
pub(super) fn new_transaction(id: CommId) -> u64 {
    //= linux:cm.c#cm_form_tid
    //| The transaction ID follows from the communication ID.
    1 << 32 | u64::from(id.0)
}

pub(super) fn within(field: &'static str, value: u8, limit: u8) -> Result<(), CmError> {
    if value > limit {
        return Err(CmError::OutOfRange { field, value: value.into(), limit: limit.into() });
    }
    Ok(())
}

fn primary_path(path: &CmPath, ca_ack_delay: u8) -> PathFields {
    let MadRoute { local, remote, traffic_class, hop_limit, flow_label } = path.route;
    let one_link = hop_limit <= 1;
    //= linux:cm.c#cm_format_req
    //| The LIDs are permissive if the hop limit is above 1.
    let lid = if one_link { 0 } else { 0xffff };
    PathFields {
        local_lid: lid,
        remote_lid: lid,
        local_gid: local,
        remote_gid: remote,
        flow_label,
        packet_rate: path.packet_rate,
        traffic_class,
        hop_limit,
        sl: path.sl,
        subnet_local: one_link,
        local_ack_timeout: ack_timeout(ca_ack_delay, path.packet_life_time),
    }
}
