//! The passive side of a connection: a REQ arrives, the consumer accepts, an RTU or data follows.

use alloc::boxed::Box;

use super::active::within;
use super::connection::{CmConnection, RemoteEnd, Repetition, SentMad};
use super::pace::Pace;
use super::{
    AcceptParams, BacklogOverflow, Cm, CmError, CmEvent, CmState, IgnoredMad, ListenerId, MadRoute,
    QpParameters, Served, time_code_ns,
};
use crate::mad::{
    CmMessage, CommId, IpHeader, IpHeaderError, PortSpace, PrivateData, Rej, RejectReason, Rejected, Rep,
    Req, Rtu, ServiceId, TransportType,
};
use crate::types::{Gid, Mtu};

impl Cm {
    /// Sends a REP. The queue pair must be in RTS before: data may arrive at once. The peer's answer arrives
    /// as [`CmEvent::Established`], [`CmEvent::Rejected`] or [`CmEvent::Unreachable`].
    ///
    /// # Errors
    /// Fails if the request is not open any more, if a value does not fit its field, or if there is too much
    /// private data.
    pub fn accept(&mut self, id: CommId, params: &AcceptParams<'_>, now_ns: u64) -> Result<(), CmError> {
        within("RNR retry count", params.rnr_retry_count, 7)?;
        let private_data = PrivateData::new(params.private_data)?;
        let config = self.config;
        let connection = self.consumers(id, "a request that is not answered yet", |state| {
            matches!(state, CmState::ReqReceived | CmState::MraReqSent)
        })?;
        // An XRC target initiates nothing; its number is looked for in the field of the EE context.
        let xrc = connection.qp.transport == TransportType::Xrc;
        let rep = Rep {
            local_id: id,
            remote_id: connection.remote_id,
            local_q_key: 0,
            local_qpn: params.local_qpn,
            ece: params.ece,
            //= linux:cm.c#cm_format_rep
            //| The REP of an XRC target puts its number in the place of the EE context.
            local_eecn: if xrc { params.local_qpn.value() } else { 0 },
            starting_psn: params.starting_psn,
            responder_resources: params.responder_resources,
            initiator_depth: if xrc { 0 } else { params.initiator_depth },
            target_ack_delay: config.ca_ack_delay.min(31),
            failover_accepted: 0,
            flow_control: !xrc && params.flow_control,
            rnr_retry_count: params.rnr_retry_count,
            srq: xrc || params.srq,
            local_ca_guid: config.ca_guid,
            private_data,
        };
        let (route, mad) = (connection.route, CmMessage::Rep(rep).emit(connection.transaction));
        connection.state = CmState::RepSent;
        connection.repetition.last_sent = Some(SentMad::new(&mad));
        connection.local_qpn = params.local_qpn;
        connection.qp.rq_psn = Some(params.starting_psn);
        connection.qp.max_dest_rd_atomic = params.responder_resources;
        connection.qp.max_rd_atomic = params.initiator_depth;
        connection.repetition.interval_ns = connection.repetition.response_timeout_ns;
        connection.repetition.retries_left = connection.repetition.max_retries;
        let deadline_ns = now_ns.saturating_add(connection.repetition.interval_ns);
        self.table.arm(id, deadline_ns);
        self.take_request(id);
        self.send_mad(route, mad);
        Ok(())
    }

    /// Establishes a connection because data has arrived for its queue pair (the asynchronous event
    /// COMM_EST): the peer is ready whether or not its RTU arrives. Produces [`CmEvent::Established`] unless
    /// that was done before.
    ///
    /// # Errors
    /// Fails if there is no such connection, or if it was not accepted.
    pub fn establish(&mut self, id: CommId) -> Result<(), CmError> {
        let connection = self.consumers(id, "a connection that was accepted", |state| {
            matches!(state, CmState::RepSent | CmState::MraRepReceived | CmState::Established)
        })?;
        //= linux:cm.c#cm_establish
        //| Data that comes before the RTU establishes the connection.
        if connection.state != CmState::Established {
            self.become_established(id, PrivateData::NONE);
        }
        Ok(())
    }

    pub(super) fn on_req(
        &mut self,
        route: &MadRoute,
        requested_address: Gid,
        transaction: u64,
        req: &Req,
        now_ns: u64,
    ) -> Result<(), IgnoredMad> {
        let end = |number| RemoteEnd { address: route.remote.0, ca_guid: req.local_ca_guid, number };
        //= linux:cm.c#cm_match_req
        //| A REQ with a known communication ID and GUID makes no second connection.
        if let Some(id) = self.table.by_remote_id(&end(req.local_id.0)) {
            return self.on_repeated_req(id);
        }
        let refuse = |cm: &mut Cm, reason, ignored| {
            cm.reject_request(route, transaction, req, reason, &[]);
            Err(ignored)
        };
        if let Some(old) = self.table.by_remote_queue_pair(&end(req.local_qpn.value()))
            && self.is_stale(old)
        {
            self.probe_liveness(old, now_ns);
            //= linux:cm.c#cm_match_req
            //| A REQ of a connected queue pair with another ID is rejected as stale.
            return refuse(self, RejectReason::STALE_CONNECTION, IgnoredMad::Stale);
        }
        let Some(listener) = self.listeners.find(req.service_id, requested_address) else {
            //= linux:cm.c#cm_match_req
            //| A REQ for a service without a listener is rejected with the reason 8.
            return refuse(self, RejectReason::INVALID_SERVICE_ID, IgnoredMad::NoListener);
        };
        if !matches!(req.transport, TransportType::Rc | TransportType::Uc | TransportType::Xrc) {
            return refuse(self, RejectReason::INVALID_TRANSPORT_TYPE, IgnoredMad::Refused);
        }
        if !self.listeners.serves(listener, Served::Connections(req.transport))
            || !is_addressed(req.service_id, &req.private_data)
        {
            return refuse(self, RejectReason::CONSUMER, IgnoredMad::Refused);
        }
        if req.primary.remote_gid != route.local {
            self.reject_request(route, transaction, req, RejectReason::INVALID_GID, &route.local.0);
            return Err(IgnoredMad::Refused);
        }
        let Some(mtu) = req.mtu() else {
            return refuse(self, RejectReason::INVALID_MTU, IgnoredMad::Refused);
        };
        let Ok(id) = self.new_id() else {
            return refuse(self, RejectReason::NO_RESOURCES, IgnoredMad::Full);
        };
        match self.listeners.enqueue(listener) {
            Ok(()) => {}
            Err(BacklogOverflow::Reject) => {
                return refuse(self, RejectReason::NO_RESOURCES, IgnoredMad::Full);
            }
            Err(BacklogOverflow::Ignore) => return Err(IgnoredMad::Full),
        }
        self.table.insert(id, requested(listener, route, transaction, req, mtu));
        self.table.index_remote(id);
        let request = Box::new(*req);
        self.push_event(id, CmEvent::ConnectRequest { listener, id, route: *route, request });
        Ok(())
    }

    pub(super) fn on_rtu(&mut self, route: &MadRoute, rtu: &Rtu) -> Result<(), IgnoredMad> {
        let id = rtu.remote_id;
        let connection = self.table.between(id, rtu.local_id, route).ok_or(IgnoredMad::UnknownId)?;
        match connection.state {
            //= linux:cm.c#cm_rtu_handler
            //| The RTU establishes the connection on the passive side.
            CmState::RepSent | CmState::MraRepReceived => {
                self.become_established(id, rtu.private_data);
                Ok(())
            }
            CmState::Established => Err(IgnoredMad::Duplicate),
            state => Err(IgnoredMad::WrongState(state)),
        }
    }

    fn become_established(&mut self, id: CommId, private_data: PrivateData<{ Rtu::PRIVATE_DATA_BYTES }>) {
        self.table.disarm(id);
        if let Some(connection) = self.table.get_mut(id) {
            connection.state = CmState::Established;
            connection.repetition.last_sent = None;
        }
        self.push_event(id, CmEvent::Established { id, private_data: Box::new(private_data) });
    }

    /// Handles a repeated REQ: the peer has not got the answer.
    fn on_repeated_req(&mut self, id: CommId) -> Result<(), IgnoredMad> {
        match self.table.get(id).map(|connection| connection.state) {
            Some(CmState::ReqReceived) => self.ask_for_time(id),
            //= linux:cm.c#cm_dup_req_handler
            //| A repeated REQ that has got an MRA gets it again.
            Some(CmState::MraReqSent | CmState::RepSent) => self.resend(id),
            //= linux:cm.c#cm_dup_req_handler
            //| A repeated REQ of a connection in timewait is rejected as stale.
            Some(CmState::Timewait) => self.reject_stale(id),
            _ => {}
        }
        Err(IgnoredMad::Duplicate)
    }

    /// Rejects a repeated REQ whose connection is over.
    fn reject_stale(&mut self, id: CommId) {
        let Some(connection) = self.table.get(id) else { return };
        let rej = Rej {
            local_id: id,
            remote_id: connection.remote_id,
            rejected: Rejected::Other,
            info_length: 0,
            reason: RejectReason::STALE_CONNECTION,
            info: PrivateData::NONE,
            private_data: PrivateData::NONE,
        };
        let (route, transaction) = (connection.route, connection.transaction);
        self.send(route, &CmMessage::Rej(rej), transaction);
    }

    /// Reports whether a connection contradicts a new one with the same queue pair at the peer. A connection
    /// that is ending does not: the peer's end is gone, or the peer would not use the queue pair again.
    pub(super) fn is_stale(&self, id: CommId) -> bool {
        !matches!(
            self.table.get(id).map(|connection| connection.state),
            None | Some(CmState::Idle | CmState::Timewait | CmState::DreqSent | CmState::DreqReceived)
        )
    }

    /// Refuses a request that has no connection.
    fn reject_request(
        &mut self,
        route: &MadRoute,
        transaction: u64,
        req: &Req,
        reason: RejectReason,
        info: &[u8],
    ) {
        let rej = Rej {
            //= linux:cm.c#cm_issue_rej
            //| The REJ of a request without a connection has the local ID 0.
            local_id: CommId::NONE,
            remote_id: req.local_id,
            rejected: Rejected::Req,
            info_length: info.len() as u8 & 0x7f,
            reason,
            info: PrivateData::new(info).unwrap_or_default(),
            private_data: PrivateData::NONE,
        };
        self.send(*route, &CmMessage::Rej(rej), transaction);
    }
}

/// Reports whether a request for a service of RDMA-CM names its sender: with a unicast source, and both
/// addresses of one family. Other services have no such header. Nor has a request of a peer that names both
/// ends by GID, which the path has: its private data begins with the header's version, and with no version of
/// IP.
pub(super) fn is_addressed(service_id: ServiceId, private_data: &[u8]) -> bool {
    match service_id.to_rdma_cm() {
        None | Some((PortSpace::Ib, _)) => true,
        Some(_) => match IpHeader::parse(private_data) {
            Ok(IpHeader { source, .. }) => !source.is_unspecified() && !Gid::from(source).is_multicast(),
            // Such a header has no IP version at all, so that noise is seldom taken for a request.
            //= linux:cma.c#cma_ib_id_from_event
            //| A request with another version of IP than 4 and 6 is one of AF_IB.
            Err(IpHeaderError::IpVersion(0)) => true,
            Err(_) => false,
        },
    }
}

/// Creates the connection that a request asks for.
fn requested(listener: ListenerId, route: &MadRoute, transaction: u64, req: &Req, mtu: Mtu) -> CmConnection {
    let path = &req.primary;
    CmConnection {
        state: CmState::ReqReceived,
        consumer: true,
        waiting_at: Some(listener),
        route: *route,
        transaction,
        service_id: req.service_id,
        remote_id: req.local_id,
        remote_ca_guid: req.local_ca_guid,
        local_qpn: Default::default(),
        repetition: Repetition {
            response_timeout_ns: time_code_ns(req.local_response_timeout),
            max_retries: req.max_cm_retries,
            interval_ns: 0,
            retries_left: 0,
            last_sent: None,
            pace: Pace::Free,
        },
        qp: QpParameters {
            transport: req.transport,
            local: path.remote_gid,
            remote: path.local_gid,
            flow_label: path.flow_label,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            sl: path.sl,
            pkey: req.pkey,
            path_mtu: mtu,
            dest_qpn: req.local_qpn,
            rq_psn: None,
            sq_psn: req.starting_psn,
            //= linux:cm.c#cm_format_req_event
            //| The passive side sees the depths of READs with their roles exchanged.
            max_dest_rd_atomic: req.initiator_depth,
            max_rd_atomic: req.responder_resources,
            timeout: path.local_ack_timeout,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
        },
        liveness_asked_ns: None,
        deadline_ns: None,
    }
}
