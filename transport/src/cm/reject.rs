//! REJ and MRA: refusals, and requests for more time.

use alloc::boxed::Box;

use super::connection::{CmConnection, RemoteEnd, SentMad};
use super::{Cm, CmError, CmEvent, CmState, IgnoredMad, MadRoute, RejectParams, time_code_ns};
use crate::mad::{CmMessage, CommId, Mra, MraOf, PrivateData, Rej, RejectReason, Rejected};

impl Cm {
    /// Sends a REJ: refuses a request or a reply, gives up an own request, or takes back a reply. The
    /// connection is over.
    ///
    /// # Errors
    /// Fails if the connection is established or over, or if there is too much private data.
    pub fn reject(&mut self, id: CommId, params: &RejectParams<'_>, now_ns: u64) -> Result<(), CmError> {
        PrivateData::<{ Rej::INFO_BYTES }>::new(params.info)?;
        PrivateData::<{ Rej::PRIVATE_DATA_BYTES }>::new(params.private_data)?;
        self.consumers(id, "a connection that is being made", |state| {
            matches!(
                state,
                CmState::ReqSent
                    | CmState::MraReqReceived
                    | CmState::ReqReceived
                    | CmState::MraReqSent
                    | CmState::RepSent
                    | CmState::MraRepReceived
                    | CmState::RepReceived
                    | CmState::MraRepSent
            )
        })?;
        self.send_rej(id, params, now_ns);
        self.send_waiting(now_ns);
        Ok(())
    }

    /// Sends the REJ that fits the connection's state, and ends the connection.
    pub(super) fn send_rej(&mut self, id: CommId, params: &RejectParams<'_>, now_ns: u64) {
        self.take_request(id);
        let Some(connection) = self.table.get(id) else { return };
        let state = connection.state;
        let rej = rejection(id, connection, params);
        let (route, transaction) = (connection.route, connection.transaction);
        if matches!(state, CmState::RepSent | CmState::MraRepReceived) {
            self.enter_timewait(id, now_ns);
        } else {
            self.enter_idle(id);
        }
        self.send(route, &CmMessage::Rej(rej), transaction);
    }

    /// Sends the REJ for a request that was never answered, with the own node GUID.
    pub(super) fn send_timeout_rej(&mut self, id: CommId, now_ns: u64) {
        let guid = self.config.ca_guid.to_be_bytes();
        let params = RejectParams { reason: RejectReason::TIMEOUT, info: &guid, private_data: &[] };
        self.send_rej(id, &params, now_ns);
    }

    /// Sends an MRA: asks the peer to wait for the answer to its request or reply.
    ///
    /// # Errors
    /// Fails if no request or reply waits for an answer, or if there are more than 222 bytes of private data.
    pub fn mra(&mut self, id: CommId, service_timeout: u8, private_data: &[u8]) -> Result<(), CmError> {
        super::active::within("service timeout", service_timeout, 31)?;
        let private_data = PrivateData::new(private_data)?;
        let open = |state| {
            matches!(
                state,
                CmState::ReqReceived | CmState::MraReqSent | CmState::RepReceived | CmState::MraRepSent
            )
        };
        self.consumers(id, "a request or reply that is not answered yet", open)?;
        self.send_mra(id, service_timeout, private_data);
        Ok(())
    }

    /// Answers a repeated request or reply with an MRA, if the settings say so, because the consumer has not
    /// answered yet.
    pub(super) fn ask_for_time(&mut self, id: CommId) {
        if let Some(service_timeout) = self.config.mra_service_timeout {
            self.send_mra(id, service_timeout.min(31), PrivateData::NONE);
        }
    }

    fn send_mra(
        &mut self,
        id: CommId,
        service_timeout: u8,
        private_data: PrivateData<{ Mra::PRIVATE_DATA_BYTES }>,
    ) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let (of, state) = match connection.state {
            CmState::ReqReceived | CmState::MraReqSent => (MraOf::Req, CmState::MraReqSent),
            CmState::RepReceived | CmState::MraRepSent => (MraOf::Rep, CmState::MraRepSent),
            _ => return,
        };
        let mra = Mra { local_id: id, remote_id: connection.remote_id, of, service_timeout, private_data };
        let (route, mad) = (connection.route, CmMessage::Mra(mra).emit(connection.transaction));
        connection.state = state;
        connection.repetition.last_sent = Some(SentMad::new(&mad));
        self.send_mad(route, mad);
    }

    pub(super) fn on_mra(&mut self, route: &MadRoute, mra: &Mra, now_ns: u64) -> Result<(), IgnoredMad> {
        let id = mra.remote_id;
        // A request's sender does not know the peer's id yet.
        let remote_id = if mra.of == MraOf::Req { CommId::NONE } else { mra.local_id };
        let connection = self.table.between(id, remote_id, route).ok_or(IgnoredMad::UnknownId)?;
        connection.state = match (connection.state, mra.of) {
            //= linux:cm.c#cm_mra_handler
            //| An MRA gives the peer more time for its answer.
            (CmState::ReqSent, MraOf::Req) => CmState::MraReqReceived,
            (CmState::RepSent, MraOf::Rep) => CmState::MraRepReceived,
            (CmState::MraReqReceived | CmState::MraRepReceived, _) => return Err(IgnoredMad::Duplicate),
            (state, _) => return Err(IgnoredMad::WrongState(state)),
        };
        //= linux:cm.c#cm_mra_handler
        //| The new time is that of the MRA and one ACK timeout.
        connection.repetition.interval_ns =
            time_code_ns(mra.service_timeout) + time_code_ns(connection.qp.timeout);
        let deadline_ns = now_ns.saturating_add(connection.repetition.interval_ns);
        self.settle(id);
        self.table.arm(id, deadline_ns);
        self.push_event(id, CmEvent::MraReceived { id, service_timeout: mra.service_timeout });
        Ok(())
    }

    pub(super) fn on_rej(&mut self, route: &MadRoute, rej: &Rej, now_ns: u64) -> Result<(), IgnoredMad> {
        let id = self.rejected_id(route, rej).ok_or(IgnoredMad::UnknownId)?;
        let connection = self.table.get(id).filter(|connection| connection.route.remote == route.remote);
        let state = connection.ok_or(IgnoredMad::UnknownId)?.state;
        match state {
            CmState::ReqSent | CmState::MraReqReceived | CmState::RepSent | CmState::MraRepReceived
                //= linux:cm.c#cm_rej_handler
                //| A REJ because of a stale connection leads to timewait.
                if rej.reason == RejectReason::STALE_CONNECTION =>
            {
                self.enter_timewait(id, now_ns);
            }
            CmState::ReqSent
            | CmState::MraReqReceived
            | CmState::RepSent
            | CmState::MraRepReceived
            | CmState::ReqReceived
            | CmState::MraReqSent => {
                self.take_request(id);
                self.enter_idle(id);
            }
            CmState::RepReceived | CmState::MraRepSent | CmState::Established | CmState::DreqSent => {
                self.enter_timewait(id, now_ns);
            }
            _ => return Err(IgnoredMad::WrongState(state)),
        }
        let event = if state == CmState::DreqSent {
            CmEvent::Disconnected { id, private_data: None, answered: true }
        } else {
            CmEvent::Rejected { id, rejection: Box::new(*rej) }
        };
        self.push_event(id, event);
        self.remove_if_forgotten(id);
        Ok(())
    }

    /// Returns the connection that a REJ is about. A peer that gives up its request knows no id but its own,
    /// and says which adapter it is; a peer that refuses a request was told an id, but its own means nothing
    /// yet.
    fn rejected_id(&mut self, route: &MadRoute, rej: &Rej) -> Option<CommId> {
        if let Some(ca_guid) = rej.timeout_ca_guid() {
            let end = RemoteEnd { address: route.remote.0, ca_guid, number: rej.local_id.0 };
            let id = self.table.by_remote_id(&end)?;
            // A REJ without the own id gives up a REQ whose REP the peer never saw. It cannot end an
            // established connection: that takes a message with both ids, and a forger of a REJ knows at most
            // one.
            let open = |own: &CmConnection| {
                matches!(
                    own.state,
                    CmState::ReqReceived | CmState::MraReqSent | CmState::RepSent | CmState::MraRepReceived
                )
            };
            let knows_us = rej.remote_id == id;
            return (knows_us || rej.remote_id == CommId::NONE && self.table.get(id).is_some_and(open))
                .then_some(id);
        }
        let remote_id = if rej.rejected == Rejected::Req { CommId::NONE } else { rej.local_id };
        self.table.between(rej.remote_id, remote_id, route).map(|_| rej.remote_id)
    }
}

fn rejection(id: CommId, connection: &CmConnection, params: &RejectParams<'_>) -> Rej {
    let (local_id, rejected) = match connection.state {
        //= linux:cm.c#cm_format_rej
        //| A REJ has the local ID 0 if the peer was never told the ID.
        CmState::ReqReceived => (CommId::NONE, Rejected::Req),
        CmState::MraReqSent => (id, Rejected::Req),
        CmState::RepReceived | CmState::MraRepSent => (id, Rejected::Rep),
        _ => (id, Rejected::Other),
    };
    Rej {
        local_id,
        remote_id: connection.remote_id,
        rejected,
        info_length: params.info.len().min(Rej::INFO_BYTES) as u8,
        reason: params.reason,
        // The lengths were checked by the caller.
        info: PrivateData::new(params.info).unwrap_or_default(),
        private_data: PrivateData::new(params.private_data).unwrap_or_default(),
    }
}
