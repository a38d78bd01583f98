//! The end: DREQ, DREP, timewait, and connections that their consumer gives up.
//!
//! **A claim that a connection is stale is checked.** A REQ (or REP) that names a queue pair which is
//! connected already says that the peer has forgotten the old connection: it started again, and got the same
//! number. Linux believes it and disconnects. But a REQ needs no secret: every local user of the peer's host,
//! and every host that can forge its address, can send one for each queue pair number. So the new message is
//! refused, as in Linux, and the *old* connection's peer is asked whether it still has it. The question is a
//! DREQ with both communication ids and queue pair 0, which no connection has. A peer that has the connection
//! ignores it, because the number is not its queue pair's; one that has not confirms the end with a DREP, as
//! for every DREQ about an unknown connection. Linux and pumice both do so. The DREP repeats both
//! communication ids, which only the two ends know, and ends the connection; a lost question changes nothing,
//! and the next attempt asks again.

use alloc::boxed::Box;

use super::active::new_transaction;
use super::connection::SaidMad;
use super::{Cm, CmError, Event, Ignored, MadRoute, RejectParams, SidrReply, State, time_code_ns};
use crate::mad::{CmMessage, CommId, Drep, Dreq, PrivateData, SidrStatus};
use crate::wire::Qpn;

/// Between two questions to the same peer whether it still has a connection: forged claims are not to make a
/// flood of them.
const QUESTION_INTERVAL_NS: u64 = 100_000_000;

impl Cm {
    /// Disconnects: sends a DREQ, or after [`Event::DisconnectRequest`] the DREP. The queue pair should
    /// be in ERR.
    ///
    /// # Errors
    /// The connection is not established, or more than 220 (224) bytes of private data.
    pub fn disconnect(&mut self, id: CommId, private_data: &[u8], now_ns: u64) -> Result<(), CmError> {
        let state = self
            .consumers(id, "a connection that is established", |state| {
                matches!(state, State::Established | State::DreqReceived)
            })?
            .state;
        if state == State::DreqReceived {
            self.send_drep(id, PrivateData::new(private_data)?, now_ns);
        } else {
            self.send_dreq(id, PrivateData::new(private_data)?, now_ns);
        }
        Ok(())
    }

    /// The consumer gives a connection up, in any state: what the peer waits for is said, and no event
    /// of it comes any more. What the protocol still has to do goes on without the consumer.
    ///
    /// # Errors
    /// [`CmError::UnknownId`].
    pub fn destroy(&mut self, id: CommId, now_ns: u64) -> Result<(), CmError> {
        let state = self.consumers(id, "", |_| true)?.state;
        match state {
            State::ReqSent if self.has_to_wait(id) => self.enter_idle(id),
            State::ReqSent | State::MraReqReceived => self.send_timeout_rej(id, now_ns),
            State::ReqReceived
            | State::MraReqSent
            | State::RepSent
            | State::MraRepReceived
            | State::RepReceived
            | State::MraRepSent => self.send_rej(id, &RejectParams::consumer(&[]), now_ns),
            State::SidrReqReceived => self.answer_question(id, &SidrReply::refused(SidrStatus::REJECT, &[])),
            State::SidrReqSent => self.enter_idle(id),
            State::Established => self.send_dreq(id, PrivateData::NONE, now_ns),
            State::DreqReceived => self.send_drep(id, PrivateData::NONE, now_ns),
            State::DreqSent | State::Timewait | State::Idle => {}
        }
        if let Some(connection) = self.table.get_mut(id) {
            connection.consumer = false;
        }
        self.events.retain(|event| event.id() != id);
        self.remove_if_forgotten(id);
        self.send_waiting(now_ns);
        Ok(())
    }

    fn send_dreq(
        &mut self,
        id: CommId,
        private_data: PrivateData<{ Dreq::PRIVATE_DATA_BYTES }>,
        now_ns: u64,
    ) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let dreq = Dreq {
            local_id: id,
            remote_id: connection.remote_id,
            //= linux:cm.c#cm_format_dreq
            //| A DREQ names the queue pair of the peer.
            remote_qpn: connection.qp.dest_qpn,
            private_data,
        };
        let mad = CmMessage::Dreq(dreq).emit(new_transaction(id));
        connection.state = State::DreqSent;
        connection.said = Some(SaidMad::new(&mad));
        connection.interval_ns = connection.response_timeout_ns;
        connection.retries_left = connection.max_retries;
        self.send_in_turn(id, now_ns);
    }

    fn send_drep(
        &mut self,
        id: CommId,
        private_data: PrivateData<{ Drep::PRIVATE_DATA_BYTES }>,
        now_ns: u64,
    ) {
        let Some(connection) = self.table.get(id) else { return };
        let drep = Drep { local_id: id, remote_id: connection.remote_id, private_data };
        let (route, mad) = (connection.route, CmMessage::Drep(drep).emit(connection.transaction));
        self.enter_timewait(id, now_ns);
        if let Some(connection) = self.table.get_mut(id) {
            connection.said = Some(SaidMad::new(&mad));
        }
        self.send_mad(route, mad);
    }

    pub(super) fn on_dreq(
        &mut self,
        route: &MadRoute,
        transaction: u64,
        dreq: &Dreq,
        now_ns: u64,
    ) -> Result<(), Ignored> {
        let id = dreq.remote_id;
        let known = self.table.between(id, dreq.local_id, route);
        let Some(connection) = known.filter(|connection| connection.state != State::Idle) else {
            //= linux:cm.c#cm_issue_drep
            //| A DREQ of an unknown connection is confirmed with a DREP.
            let drep = Drep { local_id: id, remote_id: dreq.local_id, private_data: PrivateData::NONE };
            self.send(*route, &CmMessage::Drep(drep), transaction);
            return Err(Ignored::UnknownId);
        };
        //= linux:cm.c#cm_dreq_handler
        //| A DREQ with the number of another queue pair is ignored.
        if connection.local_qpn != dreq.remote_qpn {
            return Err(Ignored::UnknownId);
        }
        let state = connection.state;
        match state {
            State::Established | State::RepSent | State::MraRepReceived | State::DreqSent => {}
            //= linux:cm.c#cm_dreq_handler
            //| A repeated DREQ in timewait gets a DREP again.
            State::Timewait => {
                self.repeat_drep(id, route, transaction, dreq.local_id);
                return Err(Ignored::Duplicate);
            }
            State::DreqReceived => return Err(Ignored::Duplicate),
            _ => return Err(Ignored::WrongState(state)),
        }
        connection.transaction = transaction;
        connection.state = State::DreqReceived;
        let consumer = connection.consumer;
        self.table.disarm(id);
        self.table.forget_remote_queue_pair(id);
        if state == State::DreqSent {
            // Both want it: each answers the other, and neither consumer has to be asked.
            self.send_drep(id, PrivateData::NONE, now_ns);
            self.tell(id, Event::Disconnected { id, private_data: None, answered: true });
        } else if consumer {
            let private_data = Box::new(dreq.private_data);
            self.tell(id, Event::DisconnectRequest { id, private_data });
        } else {
            self.send_drep(id, PrivateData::NONE, now_ns);
        }
        Ok(())
    }

    /// Another message claims the queue pair of this connection's peer: asks the peer whether it still has
    /// the connection (see the module). A connection that is being made has a timer and needs no question.
    pub(super) fn ask_whether_it_lives(&mut self, id: CommId, now_ns: u64) {
        let established = self.table.get_mut(id).filter(|own| own.state == State::Established);
        let Some(connection) = established else { return };
        let again_ns =
            connection.asked_ns.map_or(0, |asked_ns| asked_ns.saturating_add(QUESTION_INTERVAL_NS));
        if now_ns < again_ns {
            return;
        }
        connection.asked_ns = Some(now_ns);
        let dreq = Dreq {
            local_id: id,
            remote_id: connection.remote_id,
            remote_qpn: Qpn::new(0),
            private_data: PrivateData::NONE,
        };
        let route = connection.route;
        self.send(route, &CmMessage::Dreq(dreq), new_transaction(id));
    }

    /// The peer of an established connection is known to be gone without a word: as if it had disconnected.
    pub fn peer_died(&mut self, id: CommId) {
        let Some(connection) = self.table.get_mut(id).filter(|own| own.state == State::Established) else {
            return;
        };
        connection.state = State::DreqReceived;
        connection.transaction = new_transaction(id);
        self.table.forget_remote_queue_pair(id);
        self.tell(id, Event::DisconnectRequest { id, private_data: Box::new(PrivateData::NONE) });
    }

    /// The DREP was lost. Who never sent one (the peer's DREQ crossed a REJ, or ours timed out) does now.
    fn repeat_drep(&mut self, id: CommId, route: &MadRoute, transaction: u64, remote_id: CommId) {
        let said = self.table.get(id).is_some_and(|connection| connection.said.is_some());
        if said {
            self.say_again(id);
        } else {
            let drep = Drep { local_id: id, remote_id, private_data: PrivateData::NONE };
            self.send(*route, &CmMessage::Drep(drep), transaction);
        }
    }

    pub(super) fn on_drep(&mut self, route: &MadRoute, drep: &Drep, now_ns: u64) -> Result<(), Ignored> {
        let id = drep.remote_id;
        let connection = self.table.between(id, drep.local_id, route).ok_or(Ignored::UnknownId)?;
        match connection.state {
            State::DreqSent => {}
            State::Established if connection.asked_ns.is_some() => {
                self.peer_died(id);
                return Ok(());
            }
            State::Timewait => return Err(Ignored::Duplicate),
            state => return Err(Ignored::WrongState(state)),
        }
        self.enter_timewait(id, now_ns);
        let private_data = Some(Box::new(drep.private_data));
        self.tell(id, Event::Disconnected { id, private_data, answered: true });
        Ok(())
    }

    /// Over, but late messages may come. The peer's queue pair may be used for another connection.
    pub(super) fn enter_timewait(&mut self, id: CommId, now_ns: u64) {
        self.settle(id);
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.state = State::Timewait;
        connection.said = None;
        //= linux:cm.c#cm_enter_timewait
        //| Timewait lasts as long as a late packet may be on its way.
        let deadline_ns = now_ns.saturating_add(time_code_ns(connection.qp.timeout));
        self.table.arm(id, deadline_ns);
        self.table.forget_remote_queue_pair(id);
    }

    /// Over: nothing leads to it any more but its id.
    pub(super) fn enter_idle(&mut self, id: CommId) {
        self.settle(id);
        self.table.disarm(id);
        self.table.forget_remote_id(id);
        self.table.forget_remote_queue_pair(id);
        self.table.forget_question(id);
        if let Some(connection) = self.table.get_mut(id) {
            connection.state = State::Idle;
            connection.said = None;
        }
    }

    /// Removes a connection that is over and has no consumer.
    pub(super) fn remove_if_forgotten(&mut self, id: CommId) {
        if self.table.get(id).is_some_and(|own| !own.consumer && own.state == State::Idle) {
            self.table.remove(id);
        }
    }
}
