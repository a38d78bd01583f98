//! The identities of connection-management messages in a fault plan.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pumice_platform::ordinal::{ObjectOrdinals, Ordinal};
use pumice_transport::event::PacketSide;
use pumice_transport::mad::{CmMessage, CommId};
use pumice_transport::wire::Qpn;

use pumice_model::fates::identity::{PacketClass, PacketKey, PacketService};

/// Most connections that are remembered; beyond that the oldest IDs are forgotten.
const MAX_CONNECTIONS: usize = 65_536;

/// The connections of a process, in the order in which they were requested.
#[derive(Debug, Default)]
pub struct Connections {
    known: BTreeMap<CommId, Connection>,
    made: BTreeMap<(PacketSide, IpAddr), ObjectOrdinals>,
}

#[derive(Debug)]
struct Connection {
    side: PacketSide,
    ordinal: u32,
    /// For each message, how often the plan has lost it; `None` once it was not lost.
    lost: BTreeMap<PacketClass, Option<u32>>,
}

impl Connections {
    /// Returns the identity of a message to this peer. `None` means that the plan is not asked, since it let
    /// an earlier copy of the message through. `ordinal_of` returns the ordinal of a queue pair of this
    /// process, if it is known; a connection is counted with those of the thread that created its queue pair.
    pub fn key(
        &mut self,
        peer: IpAddr,
        message: &CmMessage,
        ordinal_of: impl FnOnce(Qpn) -> Option<u32>,
    ) -> Option<PacketKey> {
        let class = PacketClass::of_message(message);
        let connection = self.connection(peer, message, ordinal_of);
        let lost = (*connection.lost.entry(class).or_insert(Some(0)))?;
        Some(PacketKey {
            service: PacketService::Cm,
            qp: 0,
            connection: connection.ordinal,
            side: connection.side,
            class,
            message: 0,
            packet: 0,
            peer: Some(peer),
            destination: 0,
            transmission: lost.saturating_add(1),
        })
    }

    /// Records whether the message arrives, as the plan decided.
    pub fn decided(&mut self, message: &CmMessage, arrives: bool) {
        let class = PacketClass::of_message(message);
        if let Some(connection) = self.known.get_mut(&own_id(message))
            && let Some(lost) = connection.lost.get_mut(&class)
        {
            *lost = if arrives { None } else { lost.map(|times| times.saturating_add(1)) };
        }
    }

    fn connection(
        &mut self,
        peer: IpAddr,
        message: &CmMessage,
        ordinal_of: impl FnOnce(Qpn) -> Option<u32>,
    ) -> &mut Connection {
        let id = own_id(message);
        while self.known.len() >= MAX_CONNECTIONS && !self.known.contains_key(&id) {
            self.known.pop_first();
        }
        let made = &mut self.made;
        self.known.entry(id).or_insert_with(|| {
            // The active side sends a REQ or SIDR_REQ first, the passive side any other message.
            let side =
                if message.service().is_some() { PacketSide::Requester } else { PacketSide::Responder };
            let thread = own_qpn(message).and_then(ordinal_of).and_then(|qp| Ordinal(qp).parts().0);
            let Ordinal(ordinal) = made.entry((side, peer)).or_default().add_of(thread);
            Connection { side, ordinal, lost: BTreeMap::new() }
        })
    }
}

/// Returns the sender's queue pair, for messages that name it.
fn own_qpn(message: &CmMessage) -> Option<Qpn> {
    match message {
        CmMessage::Req(req) => Some(req.local_qpn),
        CmMessage::Rep(rep) => Some(rep.local_qpn),
        _ => None,
    }
}

/// Returns the ID by which the sender of a message knows the connection, or else the receiver's ID.
fn own_id(message: &CmMessage) -> CommId {
    let own = match message {
        CmMessage::Req(req) => req.local_id,
        CmMessage::Mra(mra) => mra.local_id,
        CmMessage::Rej(rej) => rej.local_id,
        CmMessage::Rep(rep) => rep.local_id,
        CmMessage::Rtu(rtu) => rtu.local_id,
        CmMessage::Dreq(dreq) => dreq.local_id,
        CmMessage::Drep(drep) => drep.local_id,
        CmMessage::SidrReq(req) => req.request_id,
        CmMessage::SidrRep(rep) => rep.request_id,
    };
    if own == CommId::NONE { message.recipient().unwrap_or(own) } else { own }
}
