//! SIDR: the question which queue pair serves datagrams, and its answer.

use alloc::boxed::Box;

use super::active::{new_transaction, within};
use super::connection::{CmConnection, RemoteEnd, Repetition, SentMad};
use super::pace::Pace;
use super::passive::is_addressed;
use super::{
    BacklogOverflow, Cm, CmError, CmEvent, CmState, IgnoredMad, MadRoute, QpParameters, ResolveParams,
    Served, SidrReply, time_code_ns,
};
use crate::mad::{CmMessage, CommId, PrivateData, ServiceId, SidrRep, SidrReq, SidrStatus, TransportType};
use crate::types::Gid;
use crate::types::Mtu;

impl Cm {
    /// Sends a SIDR_REQ. Every answer of the peer is [`CmEvent::SidrResolved`]; without an answer the event
    /// is
    /// [`CmEvent::Unreachable`].
    ///
    /// # Errors
    /// Fails if a value does not fit its field, if there is too much private data, or if there are too many
    /// connections.
    pub fn resolve(&mut self, params: &ResolveParams<'_>, now_ns: u64) -> Result<CommId, CmError> {
        within("CM retries", params.max_cm_retries, 15)?;
        within("response timeout", params.response_timeout, 31)?;
        let private_data = PrivateData::new(params.private_data)?;
        let id = self.new_id()?;
        let (service_id, pkey) = (params.service_id, params.pkey);
        let request = SidrReq { request_id: id, pkey, service_id, private_data };
        let transaction = new_transaction(id);
        let mad = CmMessage::SidrReq(request).emit(transaction);
        let interval_ns = time_code_ns(params.response_timeout);
        let mut connection =
            sidr_connection(CmState::SidrReqSent, &params.route, transaction, service_id, CommId::NONE, pkey);
        connection.repetition.interval_ns = interval_ns;
        connection.repetition.retries_left = params.max_cm_retries;
        connection.repetition.last_sent = Some(SentMad::new(&mad));
        self.table.insert(id, connection);
        self.send_in_turn(id, now_ns);
        Ok(id)
    }

    /// Answers a question for a queue pair. A question that is repeated afterwards, because the answer was
    /// lost, arrives as a new one.
    ///
    /// # Errors
    /// Fails if the question was answered already, or if there is too much private data.
    pub fn sidr_reply(&mut self, id: CommId, reply: &SidrReply<'_>) -> Result<(), CmError> {
        PrivateData::<{ SidrRep::INFO_BYTES }>::new(reply.info)?;
        PrivateData::<{ SidrRep::PRIVATE_DATA_BYTES }>::new(reply.private_data)?;
        self.consumers(id, "a question that is not answered yet", |state| state == CmState::SidrReqReceived)?;
        self.send_sidr_reply(id, reply);
        Ok(())
    }

    pub(super) fn send_sidr_reply(&mut self, id: CommId, reply: &SidrReply<'_>) {
        self.take_request(id);
        let Some(connection) = self.table.get(id) else { return };
        let rep = sidr_rep(connection.remote_id, connection.service_id, reply);
        let (route, transaction) = (connection.route, connection.transaction);
        self.enter_idle(id);
        self.send(route, &CmMessage::SidrRep(rep), transaction);
    }

    pub(super) fn on_sidr_req(
        &mut self,
        route: &MadRoute,
        requested_address: Gid,
        transaction: u64,
        req: &SidrReq,
    ) -> Result<(), IgnoredMad> {
        let end = RemoteEnd { address: route.remote.0, ca_guid: 0, number: req.request_id.0 };
        if self.table.by_sidr_request(&end).is_some() {
            return Err(IgnoredMad::Duplicate);
        }
        let refuse = |cm: &mut Cm, status, ignored| {
            let rep = sidr_rep(req.request_id, req.service_id, &SidrReply::refused(status, &[]));
            cm.send(*route, &CmMessage::SidrRep(rep), transaction);
            Err(ignored)
        };
        let Some(listener) = self.listeners.find(req.service_id, requested_address) else {
            //= linux:cm.c#cm_sidr_req_handler
            //| A SIDR_REQ for a service without a listener gets the status 1.
            return refuse(self, SidrStatus::UNSUPPORTED, IgnoredMad::NoListener);
        };
        if !self.listeners.serves(listener, Served::Datagrams)
            || !is_addressed(req.service_id, &req.private_data)
        {
            return refuse(self, SidrStatus::REJECT, IgnoredMad::Refused);
        }
        let Ok(id) = self.new_id() else {
            return refuse(self, SidrStatus::NO_QP, IgnoredMad::Full);
        };
        match self.listeners.enqueue(listener) {
            Ok(()) => {}
            Err(BacklogOverflow::Reject) => return refuse(self, SidrStatus::NO_QP, IgnoredMad::Full),
            Err(BacklogOverflow::Ignore) => return Err(IgnoredMad::Full),
        }
        let mut connection = sidr_connection(
            CmState::SidrReqReceived,
            route,
            transaction,
            req.service_id,
            req.request_id,
            req.pkey,
        );
        connection.waiting_at = Some(listener);
        self.table.insert(id, connection);
        self.table.index_sidr_request(id);
        let request = Box::new(*req);
        self.push_event(id, CmEvent::SidrRequest { listener, id, route: *route, request });
        Ok(())
    }

    pub(super) fn on_sidr_rep(&mut self, route: &MadRoute, rep: &SidrRep) -> Result<(), IgnoredMad> {
        let id = rep.request_id;
        //= linux:cm.c#cm_sidr_rep_handler
        //| A SIDR_REP belongs to the question with its request ID.
        let connection = self.table.between(id, CommId::NONE, route).ok_or(IgnoredMad::UnknownId)?;
        match connection.state {
            CmState::SidrReqSent => {}
            state => return Err(IgnoredMad::WrongState(state)),
        }
        self.enter_idle(id);
        self.push_event(id, CmEvent::SidrResolved { id, reply: Box::new(*rep) });
        Ok(())
    }
}

fn sidr_rep(request_id: CommId, service_id: ServiceId, reply: &SidrReply<'_>) -> SidrRep {
    SidrRep {
        request_id,
        status: reply.status,
        info_length: reply.info.len().min(SidrRep::INFO_BYTES) as u8,
        qpn: reply.qpn,
        service_id,
        q_key: reply.q_key,
        // The lengths were checked by the caller.
        info: PrivateData::new(reply.info).unwrap_or_default(),
        private_data: PrivateData::new(reply.private_data).unwrap_or_default(),
    }
}

/// Creates the table entry of a question: it has one like a connection, most of it unused.
fn sidr_connection(
    state: CmState,
    route: &MadRoute,
    transaction: u64,
    service_id: ServiceId,
    remote_id: CommId,
    pkey: u16,
) -> CmConnection {
    CmConnection {
        state,
        consumer: true,
        waiting_at: None,
        route: *route,
        transaction,
        service_id,
        remote_id,
        remote_ca_guid: 0,
        local_qpn: Default::default(),
        repetition: Repetition {
            response_timeout_ns: 0,
            max_retries: 0,
            interval_ns: 0,
            retries_left: 0,
            last_sent: None,
            pace: Pace::Free,
        },
        qp: QpParameters {
            transport: TransportType::Rd,
            local: route.local,
            remote: route.remote,
            flow_label: route.flow_label,
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
            sl: 0,
            pkey,
            path_mtu: Mtu::Mtu256,
            dest_qpn: Default::default(),
            rq_psn: None,
            sq_psn: Default::default(),
            max_dest_rd_atomic: 0,
            max_rd_atomic: 0,
            timeout: 0,
            retry_count: 0,
            rnr_retry_count: 0,
        },
        liveness_asked_ns: None,
        deadline_ns: None,
    }
}
