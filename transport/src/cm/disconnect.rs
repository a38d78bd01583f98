//! The end of a connection: DREQ, DREP, timewait, and connections that their consumer destroys.
//!
//! **A claim that a connection is stale is checked.** A REQ (or REP) that names a queue pair which is
//! connected already claims that the peer has lost the old connection: it was restarted and got the same
//! number again. Linux believes the claim and disconnects. But a REQ needs no secret: every local user of the
//! peer's host, and every host that can forge its address, can send one for each queue pair number. So the
//! new message is refused, as in Linux, and the *old* connection's peer is asked whether it still has the
//! connection. The question is a DREQ with both communication ids and queue pair 0, which no connection has.
//! A peer that has the connection ignores it, because the number is not its queue pair's. A peer that does
//! not have it confirms the end with a DREP, as for every DREQ about an unknown connection. Linux and pumice
//! both do so. The DREP repeats both communication ids, which only the two ends know, and ends the
//! connection. If the question is lost, nothing changes, and the next attempt asks again.

use alloc::boxed::Box;

use super::active::new_transaction;
use super::connection::SentMad;
use super::{Cm, CmError, CmEvent, CmState, IgnoredMad, MadRoute, RejectParams, SidrReply, time_code_ns};
use crate::mad::{CmMessage, CommId, Drep, Dreq, PrivateData, SidrStatus};
use crate::wire::Qpn;

/// Time between two questions to the same peer whether it still has a connection, in nanoseconds, so that
/// forged claims cannot cause a flood of questions.
const LIVENESS_PROBE_INTERVAL_NS: u64 = 100_000_000;

impl Cm {
    /// Disconnects: sends a DREQ, or after [`CmEvent::DisconnectRequest`] the DREP. The queue pair should be
    /// in ERR.
    ///
    /// # Errors
    /// Fails if the connection is not established, or if there are more than 220 (224) bytes of private data.
    pub fn disconnect(&mut self, id: CommId, private_data: &[u8], now_ns: u64) -> Result<(), CmError> {
        let state = self
            .consumers(id, "a connection that is established", |state| {
                matches!(state, CmState::Established | CmState::DreqReceived)
            })?
            .state;
        if state == CmState::DreqReceived {
            self.send_drep(id, PrivateData::new(private_data)?, now_ns);
        } else {
            self.send_dreq(id, PrivateData::new(private_data)?, now_ns);
        }
        Ok(())
    }

    /// Ends the consumer's interest in a connection, in any state: sends the answer that the peer waits for
    /// and delivers no more events. The rest of the protocol continues without the consumer.
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownId`] if there is no such connection.
    pub fn destroy(&mut self, id: CommId, now_ns: u64) -> Result<(), CmError> {
        let state = self.consumers(id, "", |_| true)?.state;
        match state {
            CmState::ReqSent if self.has_to_wait(id) => self.enter_idle(id),
            CmState::ReqSent | CmState::MraReqReceived => self.send_timeout_rej(id, now_ns),
            CmState::ReqReceived
            | CmState::MraReqSent
            | CmState::RepSent
            | CmState::MraRepReceived
            | CmState::RepReceived
            | CmState::MraRepSent => self.send_rej(id, &RejectParams::consumer(&[]), now_ns),
            CmState::SidrReqReceived => {
                self.send_sidr_reply(id, &SidrReply::refused(SidrStatus::REJECT, &[]))
            }
            CmState::SidrReqSent => self.enter_idle(id),
            CmState::Established => self.send_dreq(id, PrivateData::NONE, now_ns),
            CmState::DreqReceived => self.send_drep(id, PrivateData::NONE, now_ns),
            CmState::DreqSent | CmState::Timewait | CmState::Idle => {}
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
        connection.state = CmState::DreqSent;
        connection.repetition.last_sent = Some(SentMad::new(&mad));
        connection.repetition.interval_ns = connection.repetition.response_timeout_ns;
        connection.repetition.retries_left = connection.repetition.max_retries;
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
            connection.repetition.last_sent = Some(SentMad::new(&mad));
        }
        self.send_mad(route, mad);
    }

    pub(super) fn on_dreq(
        &mut self,
        route: &MadRoute,
        transaction: u64,
        dreq: &Dreq,
        now_ns: u64,
    ) -> Result<(), IgnoredMad> {
        let id = dreq.remote_id;
        let known = self.table.between(id, dreq.local_id, route);
        let Some(connection) = known.filter(|connection| connection.state != CmState::Idle) else {
            //= linux:cm.c#cm_issue_drep
            //| A DREQ of an unknown connection is confirmed with a DREP.
            let drep = Drep { local_id: id, remote_id: dreq.local_id, private_data: PrivateData::NONE };
            self.send(*route, &CmMessage::Drep(drep), transaction);
            return Err(IgnoredMad::UnknownId);
        };
        //= linux:cm.c#cm_dreq_handler
        //| A DREQ with the number of another queue pair is ignored.
        if connection.local_qpn != dreq.remote_qpn {
            return Err(IgnoredMad::UnknownId);
        }
        let state = connection.state;
        match state {
            CmState::Established | CmState::RepSent | CmState::MraRepReceived | CmState::DreqSent => {}
            //= linux:cm.c#cm_dreq_handler
            //| A repeated DREQ in timewait gets a DREP again.
            CmState::Timewait => {
                self.repeat_drep(id, route, transaction, dreq.local_id);
                return Err(IgnoredMad::Duplicate);
            }
            CmState::DreqReceived => return Err(IgnoredMad::Duplicate),
            _ => return Err(IgnoredMad::WrongState(state)),
        }
        connection.transaction = transaction;
        connection.state = CmState::DreqReceived;
        let consumer = connection.consumer;
        self.table.disarm(id);
        self.table.forget_remote_queue_pair(id);
        if state == CmState::DreqSent {
            // Both sides disconnect at once: each answers the other, and neither consumer has to be asked.
            self.send_drep(id, PrivateData::NONE, now_ns);
            self.push_event(id, CmEvent::Disconnected { id, private_data: None, answered: true });
        } else if consumer {
            let private_data = Box::new(dreq.private_data);
            self.push_event(id, CmEvent::DisconnectRequest { id, private_data });
        } else {
            self.send_drep(id, PrivateData::NONE, now_ns);
        }
        Ok(())
    }

    /// Asks the peer of an established connection whether it still has it, after another message claimed the
    /// same queue pair (see the module). A connection that is being made has a timer and needs no question.
    pub(super) fn probe_liveness(&mut self, id: CommId, now_ns: u64) {
        let established = self.table.get_mut(id).filter(|own| own.state == CmState::Established);
        let Some(connection) = established else { return };
        let again_ns = connection
            .liveness_asked_ns
            .map_or(0, |liveness_asked_ns| liveness_asked_ns.saturating_add(LIVENESS_PROBE_INTERVAL_NS));
        if now_ns < again_ns {
            return;
        }
        connection.liveness_asked_ns = Some(now_ns);
        let dreq = Dreq {
            local_id: id,
            remote_id: connection.remote_id,
            remote_qpn: Qpn::new(0),
            private_data: PrivateData::NONE,
        };
        let route = connection.route;
        self.send(route, &CmMessage::Dreq(dreq), new_transaction(id));
    }

    /// Ends an established connection whose peer is known to be gone without a message, as if the peer had
    /// disconnected.
    pub fn peer_died(&mut self, id: CommId) {
        let Some(connection) = self.table.get_mut(id).filter(|own| own.state == CmState::Established) else {
            return;
        };
        connection.state = CmState::DreqReceived;
        connection.transaction = new_transaction(id);
        self.table.forget_remote_queue_pair(id);
        self.push_event(id, CmEvent::DisconnectRequest { id, private_data: Box::new(PrivateData::NONE) });
    }

    /// Repeats a DREP that was lost. If none was sent yet (the peer's DREQ crossed a REJ, or the own one
    /// timed out), sends it now.
    fn repeat_drep(&mut self, id: CommId, route: &MadRoute, transaction: u64, remote_id: CommId) {
        let last_sent =
            self.table.get(id).is_some_and(|connection| connection.repetition.last_sent.is_some());
        if last_sent {
            self.resend(id);
        } else {
            let drep = Drep { local_id: id, remote_id, private_data: PrivateData::NONE };
            self.send(*route, &CmMessage::Drep(drep), transaction);
        }
    }

    pub(super) fn on_drep(&mut self, route: &MadRoute, drep: &Drep, now_ns: u64) -> Result<(), IgnoredMad> {
        let id = drep.remote_id;
        let connection = self.table.between(id, drep.local_id, route).ok_or(IgnoredMad::UnknownId)?;
        match connection.state {
            CmState::DreqSent => {}
            CmState::Established if connection.liveness_asked_ns.is_some() => {
                self.peer_died(id);
                return Ok(());
            }
            CmState::Timewait => return Err(IgnoredMad::Duplicate),
            state => return Err(IgnoredMad::WrongState(state)),
        }
        self.enter_timewait(id, now_ns);
        let private_data = Some(Box::new(drep.private_data));
        self.push_event(id, CmEvent::Disconnected { id, private_data, answered: true });
        Ok(())
    }

    /// Enters timewait: the connection is over, but late messages may arrive. The peer's queue pair may be
    /// used for another connection.
    pub(super) fn enter_timewait(&mut self, id: CommId, now_ns: u64) {
        self.settle(id);
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.state = CmState::Timewait;
        connection.repetition.last_sent = None;
        //= linux:cm.c#cm_enter_timewait
        //| Timewait lasts as long as a late packet may be on its way.
        let deadline_ns = now_ns.saturating_add(time_code_ns(connection.qp.timeout));
        self.table.arm(id, deadline_ns);
        self.table.forget_remote_queue_pair(id);
    }

    /// Makes a connection idle: afterwards only its id leads to it.
    pub(super) fn enter_idle(&mut self, id: CommId) {
        self.settle(id);
        self.table.disarm(id);
        self.table.forget_remote_id(id);
        self.table.forget_remote_queue_pair(id);
        self.table.forget_sidr_request(id);
        if let Some(connection) = self.table.get_mut(id) {
            connection.state = CmState::Idle;
            connection.repetition.last_sent = None;
        }
    }

    /// Removes a connection that is over and has no consumer.
    pub(super) fn remove_if_forgotten(&mut self, id: CommId) {
        if self.table.get(id).is_some_and(|own| !own.consumer && own.state == CmState::Idle) {
            self.table.remove(id);
        }
    }
}
