//! The arrival of a MAD, expired timers, and outgoing messages.

use core::net::IpAddr;

use super::connection::RemoteEnd;
use super::pace::Pace;
use super::{Cm, CmEvent, CmState, IgnoredMad, MadOut, MadRoute, UnansweredMessage};
use crate::mad::{
    ApStatus, Apr, CmMessage, CommId, IpHeader, Lap, MAD_BYTES, Mad, MadError, PrivateData, ServiceId, refuse,
};
use crate::types::Gid;

impl Cm {
    pub(super) fn send(&mut self, route: MadRoute, message: &CmMessage, transaction: u64) {
        self.send_mad(route, message.emit(transaction));
    }

    pub(super) fn send_mad(&mut self, route: MadRoute, mad: [u8; MAD_BYTES]) {
        if self.transmits.len() < Cm::MAX_QUEUED_TRANSMITS {
            self.transmits.push_back(MadOut { route, mad });
        }
    }

    /// Sends the message of a connection and starts its timer, as soon as the pacing allows.
    pub(super) fn send_in_turn(&mut self, id: CommId, now_ns: u64) {
        self.settle(id);
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.repetition.pace = self.pacer.admit(id, &connection.route.remote, now_ns);
        match connection.repetition.pace {
            Pace::Waiting(_) => self.table.disarm(id),
            _ => self.send_now(id, now_ns),
        }
    }

    /// Sends waiting messages if there is room. Every call that can make room ends with this.
    pub(super) fn send_waiting(&mut self, now_ns: u64) {
        for _ in 0..Cm::TIMEOUTS_PER_CALL {
            let Some((id, pace)) = self.pacer.next(now_ns) else { return };
            if let Some(connection) = self.table.get_mut(id) {
                connection.repetition.pace = pace;
                self.send_now(id, now_ns);
            }
        }
    }

    /// Ends the pacing of a connection's message, because it waits for no answer any more.
    pub(super) fn settle(&mut self, id: CommId) {
        if let Some(connection) = self.table.get_mut(id) {
            let pace = core::mem::take(&mut connection.repetition.pace);
            self.pacer.settle(id, &connection.route.remote, pace);
        }
    }

    /// Reports whether the message of a connection is still waiting to be sent.
    pub(super) fn has_to_wait(&self, id: CommId) -> bool {
        self.table.get(id).is_some_and(|connection| matches!(connection.repetition.pace, Pace::Waiting(_)))
    }

    /// Sends waiting messages without waiting for answers to others, because the process is about to end.
    /// Drain the outputs, and call again while it returns true: what one call sends is bounded.
    #[must_use = "it has to be called again if this is true"]
    pub fn send_all_waiting(&mut self, now_ns: u64) -> bool {
        self.pacer.open_window();
        self.send_waiting(now_ns);
        self.pacer.has_waiting()
    }

    fn send_now(&mut self, id: CommId, now_ns: u64) {
        let Some(interval_ns) = self.table.get(id).map(|connection| connection.repetition.interval_ns) else {
            return;
        };
        self.table.arm(id, now_ns.saturating_add(interval_ns));
        self.resend(id);
    }

    /// Handles what queue pair 1 received from `route.remote` at `route.local`: 256 bytes.
    ///
    /// Queries of other management classes are answered with "not supported".
    ///
    /// # Errors
    /// Fails with the reason why the MAD changed nothing. It may have been answered nevertheless; the caller
    /// only has to count it.
    pub fn handle_mad(&mut self, route: &MadRoute, bytes: &[u8], now_ns: u64) -> Result<(), IgnoredMad> {
        let mad = Mad::parse(bytes).map_err(IgnoredMad::Mad)?;
        let message = match CmMessage::parse(&mad) {
            Ok(message) => message,
            Err(error) => {
                self.answer_foreign(route, &mad, error);
                return Err(IgnoredMad::Mad(error));
            }
        };
        let transaction = mad.header().transaction;
        let requested_address = Cm::requested_address(route, &message).unwrap_or(route.local);
        let outcome = match &message {
            CmMessage::Req(req) => self.on_req(route, requested_address, transaction, req, now_ns),
            CmMessage::Rep(rep) => self.on_rep(route, transaction, rep, now_ns),
            CmMessage::Rtu(rtu) => self.on_rtu(route, rtu),
            CmMessage::Rej(rej) => self.on_rej(route, rej, now_ns),
            CmMessage::Mra(mra) => self.on_mra(route, mra, now_ns),
            CmMessage::Dreq(dreq) => self.on_dreq(route, transaction, dreq, now_ns),
            CmMessage::Drep(drep) => self.on_drep(route, drep, now_ns),
            CmMessage::SidrReq(req) => self.on_sidr_req(route, requested_address, transaction, req),
            CmMessage::SidrRep(rep) => self.on_sidr_rep(route, rep),
        };
        // An answer makes room for the next question.
        self.send_waiting(now_ns);
        outcome
    }

    /// Reports whether a message belongs to a connection of this process. If several processes share one
    /// address, a process that receives a message of another one forwards it.
    pub fn recognises(&self, route: &MadRoute, message: &CmMessage) -> bool {
        let end = |ca_guid, id: CommId| RemoteEnd { address: route.remote.0, ca_guid, number: id.0 };
        match message {
            CmMessage::Req(req) => self.table.by_remote_id(&end(req.local_ca_guid, req.local_id)).is_some(),
            CmMessage::SidrReq(req) => self.table.by_sidr_request(&end(0, req.request_id)).is_some(),
            CmMessage::Rej(rej) if rej.remote_id == CommId::NONE => rej
                .timeout_ca_guid()
                .is_some_and(|guid| self.table.by_remote_id(&end(guid, rej.local_id)).is_some()),
            other => other.recipient().is_some_and(|id| self.table.contains(id)),
        }
    }

    /// Returns the address at which a request looks for its service; `None` if the message is no request. It
    /// is where the packet arrived, with one exception: what this host sends to itself for 127.0.0.1 or ::1
    /// travels between addresses of the device, and only RDMA-CM's header says that loopback was asked for.
    pub fn requested_address(route: &MadRoute, message: &CmMessage) -> Option<Gid> {
        let private_data: &[u8] = match message {
            CmMessage::Req(req) => &req.private_data.0,
            CmMessage::SidrReq(req) => &req.private_data.0,
            _ => return None,
        };
        let service_id = message.service()?;
        let is_own = route.local == route.remote && service_id.to_rdma_cm().is_some();
        let asked =
            is_own.then(|| IpHeader::parse(private_data).ok()).flatten().map(|header| header.destination);
        Some(asked.filter(IpAddr::is_loopback).map_or(route.local, Gid::from))
    }

    /// Reports whether this process listens for a service at an address.
    pub fn serves(&self, service_id: ServiceId, local: Gid) -> bool {
        self.listeners.find(service_id, local).is_some()
    }

    /// Answers a peer that offers an alternate path for a connection: no path is loaded this way. A
    /// connection that this process does not have may belong to another process, so nothing is answered.
    fn answer_lap(&mut self, route: &MadRoute, lap: &Lap, transaction: u64) {
        if self.table.between(lap.remote_id, lap.local_id, route).is_none() {
            return;
        }
        let apr = Apr {
            local_id: lap.remote_id,
            remote_id: lap.local_id,
            status: ApStatus::UNSUPPORTED,
            info_length: 0,
            info: PrivateData::NONE,
            private_data: PrivateData::NONE,
        };
        self.send_mad(*route, apr.emit(transaction));
    }

    fn answer_foreign(&mut self, route: &MadRoute, mad: &Mad<'_>, error: MadError) {
        if let (MadError::AlternatePath, Some(lap)) = (error, Lap::of(mad)) {
            return self.answer_lap(route, &lap, mad.header().transaction);
        }
        if matches!(error, MadError::Class(_) | MadError::ClassVersion(_) | MadError::Method(_))
            && let Some(answer) = refuse(mad)
        {
            self.send_mad(*route, answer);
        }
    }

    /// Largest number of timers that one call of [`Cm::handle_timeout`] handles: the rest stays due, so that
    /// one call sends a bounded number of messages.
    pub const TIMEOUTS_PER_CALL: usize = 256;

    /// Handles timers that are due. Drain the outputs, and call again while
    /// [`Cm::poll_timeout`] is not in the future.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        for _ in 0..Cm::TIMEOUTS_PER_CALL {
            let Some(id) = self.table.pop_due(now_ns) else { break };
            self.on_timeout(id, now_ns);
        }
        self.send_waiting(now_ns);
    }

    fn on_timeout(&mut self, id: CommId, now_ns: u64) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.state == CmState::Timewait {
            self.enter_idle(id);
            //= man:rdma_get_cm_event
            //| The event TIMEWAIT_EXIT says that the queue pair may be used again.
            self.push_event(id, CmEvent::TimewaitExit { id });
            self.remove_if_forgotten(id);
        } else if let Some(left) = connection.repetition.retries_left.checked_sub(1) {
            connection.repetition.retries_left = left;
            let deadline_ns = now_ns.saturating_add(connection.repetition.interval_ns);
            self.table.arm(id, deadline_ns);
            self.resend(id);
        } else {
            let state = connection.state;
            self.give_up(id, state, now_ns);
        }
    }

    /// Gives up a request at once, because the consumer's host knows that no answer will arrive. The effect
    /// is that of the last timeout. An id that has no request under way is left alone.
    pub fn abandon(&mut self, id: CommId, now_ns: u64) {
        let Some(state) = self.table.get(id).map(|connection| connection.state) else { return };
        if matches!(state, CmState::ReqSent | CmState::MraReqReceived | CmState::SidrReqSent) {
            self.give_up(id, state, now_ns);
        }
    }

    /// Gives up a connection whose peer never answered.
    fn give_up(&mut self, id: CommId, state: CmState, now_ns: u64) {
        let unanswered = match state {
            CmState::ReqSent | CmState::MraReqReceived => {
                self.enter_idle(id);
                UnansweredMessage::Req
            }
            CmState::SidrReqSent => {
                self.enter_idle(id);
                UnansweredMessage::SidrReq
            }
            CmState::RepSent | CmState::MraRepReceived => {
                // The peer may be established, and its RTUs lost: it should learn that this end is gone.
                self.send_timeout_rej(id, now_ns);
                self.enter_idle(id);
                UnansweredMessage::Rep
            }
            //= linux:cm.c#cm_process_send_error
            //| A DREQ that gets no answer leads to timewait.
            CmState::DreqSent => {
                self.enter_timewait(id, now_ns);
                self.push_event(id, CmEvent::Disconnected { id, private_data: None, answered: false });
                return;
            }
            // These states have no timer.
            _ => return,
        };
        self.push_event(id, CmEvent::Unreachable { id, unanswered });
        self.remove_if_forgotten(id);
    }
}
