//! REJ and MRA: no, and not yet.

use alloc::boxed::Box;

use super::connection::{Connection, RemoteEnd, SaidMad};
use super::{Cm, CmError, Event, Ignored, MadRoute, RejectParams, State, time_code_ns};
use crate::mad::{CmMessage, CommId, Mra, MraOf, PrivateData, Rej, RejectReason, Rejected};

impl Cm {
    /// Sends a REJ: refuses a request or a reply, gives up a request of one's own, or takes back a
    /// reply. The connection is over.
    ///
    /// # Errors
    /// The connection is established or over, or too much private data.
    pub fn reject(&mut self, id: CommId, params: &RejectParams<'_>, now_ns: u64) -> Result<(), CmError> {
        PrivateData::<{ Rej::INFO_BYTES }>::new(params.info)?;
        PrivateData::<{ Rej::PRIVATE_DATA_BYTES }>::new(params.private_data)?;
        self.consumers(id, "a connection that is being made", |state| {
            matches!(
                state,
                State::ReqSent
                    | State::MraReqReceived
                    | State::ReqReceived
                    | State::MraReqSent
                    | State::RepSent
                    | State::MraRepReceived
                    | State::RepReceived
                    | State::MraRepSent
            )
        })?;
        self.send_rej(id, params, now_ns);
        self.send_waiting(now_ns);
        Ok(())
    }

    /// Sends a REJ that fits the state, and leaves it.
    pub(super) fn send_rej(&mut self, id: CommId, params: &RejectParams<'_>, now_ns: u64) {
        self.take_request(id);
        let Some(connection) = self.table.get(id) else { return };
        let state = connection.state;
        let rej = rejection(id, connection, params);
        let (route, transaction) = (connection.route, connection.transaction);
        if matches!(state, State::RepSent | State::MraRepReceived) {
            self.enter_timewait(id, now_ns);
        } else {
            self.enter_idle(id);
        }
        self.send(route, &CmMessage::Rej(rej), transaction);
    }

    /// A request was never answered: its sender says so, with its node GUID.
    pub(super) fn send_timeout_rej(&mut self, id: CommId, now_ns: u64) {
        let guid = self.config.ca_guid.to_be_bytes();
        let params = RejectParams { reason: RejectReason::TIMEOUT, info: &guid, private_data: &[] };
        self.send_rej(id, &params, now_ns);
    }

    /// Sends an MRA: asks the peer to wait for the answer to its request or reply.
    ///
    /// # Errors
    /// There is nothing to be answered, or more than 222 bytes of private data.
    pub fn mra(&mut self, id: CommId, service_timeout: u8, private_data: &[u8]) -> Result<(), CmError> {
        super::active::within("service timeout", service_timeout, 31)?;
        let private_data = PrivateData::new(private_data)?;
        let open = |state| {
            matches!(state, State::ReqReceived | State::MraReqSent | State::RepReceived | State::MraRepSent)
        };
        self.consumers(id, "a request or reply that is not answered yet", open)?;
        self.send_mra(id, service_timeout, private_data);
        Ok(())
    }

    /// The consumer has not answered, and the peer asks again.
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
            State::ReqReceived | State::MraReqSent => (MraOf::Req, State::MraReqSent),
            State::RepReceived | State::MraRepSent => (MraOf::Rep, State::MraRepSent),
            _ => return,
        };
        let mra = Mra { local_id: id, remote_id: connection.remote_id, of, service_timeout, private_data };
        let (route, mad) = (connection.route, CmMessage::Mra(mra).emit(connection.transaction));
        connection.state = state;
        connection.said = Some(SaidMad::new(&mad));
        self.send_mad(route, mad);
    }

    pub(super) fn on_mra(&mut self, route: &MadRoute, mra: &Mra, now_ns: u64) -> Result<(), Ignored> {
        let id = mra.remote_id;
        // A request's sender does not know the peer's id yet.
        let remote_id = if mra.of == MraOf::Req { CommId::NONE } else { mra.local_id };
        let connection = self.table.between(id, remote_id, route).ok_or(Ignored::UnknownId)?;
        connection.state = match (connection.state, mra.of) {
            //= linux:cm.c#cm_mra_handler
            //| An MRA gives the peer more time for its answer.
            (State::ReqSent, MraOf::Req) => State::MraReqReceived,
            (State::RepSent, MraOf::Rep) => State::MraRepReceived,
            (State::MraReqReceived | State::MraRepReceived, _) => return Err(Ignored::Duplicate),
            (state, _) => return Err(Ignored::WrongState(state)),
        };
        //= linux:cm.c#cm_mra_handler
        //| The new time is that of the MRA and one ACK timeout.
        connection.interval_ns = time_code_ns(mra.service_timeout) + time_code_ns(connection.qp.timeout);
        let deadline_ns = now_ns.saturating_add(connection.interval_ns);
        self.settle(id);
        self.table.arm(id, deadline_ns);
        self.tell(id, Event::MraReceived { id, service_timeout: mra.service_timeout });
        Ok(())
    }

    pub(super) fn on_rej(&mut self, route: &MadRoute, rej: &Rej, now_ns: u64) -> Result<(), Ignored> {
        let id = self.rejected_id(route, rej).ok_or(Ignored::UnknownId)?;
        let connection = self.table.get(id).filter(|connection| connection.route.remote == route.remote);
        let state = connection.ok_or(Ignored::UnknownId)?.state;
        match state {
            State::ReqSent | State::MraReqReceived | State::RepSent | State::MraRepReceived
                //= linux:cm.c#cm_rej_handler
                //| A REJ because of a stale connection leads to timewait.
                if rej.reason == RejectReason::STALE_CONNECTION =>
            {
                self.enter_timewait(id, now_ns);
            }
            State::ReqSent
            | State::MraReqReceived
            | State::RepSent
            | State::MraRepReceived
            | State::ReqReceived
            | State::MraReqSent => {
                self.take_request(id);
                self.enter_idle(id);
            }
            State::RepReceived | State::MraRepSent | State::Established | State::DreqSent => {
                self.enter_timewait(id, now_ns);
            }
            _ => return Err(Ignored::WrongState(state)),
        }
        let event = if state == State::DreqSent {
            Event::Disconnected { id, private_data: None, answered: true }
        } else {
            Event::Rejected { id, rejection: Box::new(*rej) }
        };
        self.tell(id, event);
        self.remove_if_forgotten(id);
        Ok(())
    }

    /// Which connection a REJ is about. Who gives up a request knows no id but its own, and says
    /// which adapter it is; who refuses a request was told an id, but its own means nothing yet.
    fn rejected_id(&mut self, route: &MadRoute, rej: &Rej) -> Option<CommId> {
        if let Some(ca_guid) = rej.timeout_ca_guid() {
            let end = RemoteEnd { address: route.remote.0, ca_guid, number: rej.local_id.0 };
            let id = self.table.by_remote_id(&end)?;
            // Without our id it gives up a REQ whose REP it never saw. It cannot end what is established:
            // that takes a message with both ids, of which one that forges a REJ knows at most one.
            let open = |own: &Connection| {
                matches!(
                    own.state,
                    State::ReqReceived | State::MraReqSent | State::RepSent | State::MraRepReceived
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

fn rejection(id: CommId, connection: &Connection, params: &RejectParams<'_>) -> Rej {
    let (local_id, rejected) = match connection.state {
        //= linux:cm.c#cm_format_rej
        //| A REJ has the local ID 0 if the peer was never told the ID.
        State::ReqReceived => (CommId::NONE, Rejected::Req),
        State::MraReqSent => (id, Rejected::Req),
        State::RepReceived | State::MraRepSent => (id, Rejected::Rep),
        _ => (id, Rejected::Other),
    };
    Rej {
        local_id,
        remote_id: connection.remote_id,
        rejected,
        info_length: params.info.len().min(Rej::INFO_BYTES) as u8,
        reason: params.reason,
        // Their lengths were checked.
        info: PrivateData::new(params.info).unwrap_or_default(),
        private_data: PrivateData::new(params.private_data).unwrap_or_default(),
    }
}
