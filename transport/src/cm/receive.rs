//! The arrival of a MAD: its message, and the connection that it is for.

use core::net::IpAddr;

use super::connection::RemoteEnd;
use super::{Cm, IgnoredMad, MadRoute};
use crate::mad::{
    ApStatus, Apr, CmMessage, CommId, IpHeader, Lap, Mad, MadError, PrivateData, ServiceId, refuse,
};
use crate::types::Gid;

impl Cm {
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
}
