//! What a plan remembers of one queue pair, and the identities of connection-management messages.
//!
//! What a plan remembers of one queue pair: the progress of each kind of traffic, and what rules have
//! counted.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pumice_model::fates::{PacketClass, PacketKey, PacketService};
use pumice_platform::ordinal::{ObjectOrdinals, Ordinal};
use pumice_transport::event::{OutgoingPacket, PacketIdentity, PacketSide};
use pumice_transport::mad::{CmMessage, CommId};
use pumice_transport::wire::Qpn;

use super::frontier::{Answers, Once, PacketAttempt, Requests, unwrap24};

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

/// Most destinations of one datagram queue pair that are told apart; further ones share the last ordinal.
const MAX_DESTINATIONS: usize = 65_536;

/// A kind of packets whose order among each other is the same in every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrafficKind {
    /// Requests, and packets of services without answers.
    Requests,
    /// Answers to READs and atomics.
    Answers,
    /// Acknowledgements.
    Acks,
    /// NAKs.
    Refusals,
    /// Notifications of congestion.
    Notifications,
    /// Packets of connection management.
    Management,
}

/// The counts of a rule along one stream.
#[derive(Debug, Clone, Default)]
pub struct StreamCount {
    /// Number of packets that matched the rule.
    pub(super) matched: u64,
    /// Number of times that the rule applied.
    pub(super) applied: u64,
    /// True if the stream is in a bad stretch.
    pub(super) bad: bool,
    /// The value that the rule drew last.
    pub(super) before: Option<u64>,
}

/// The traffic of one connection of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    connection: u32,
    service: Option<PacketService>,
    requests: Requests,
    answers: Answers,
    once: Once,
    /// The last message that was answered, and the newest packet of these answers.
    message: u64,
    answer: u64,
    refusals: BTreeMap<(PacketClass, u64), u32>,
    notifications: u64,
    destinations: BTreeMap<(IpAddr, Qpn), DatagramDestination>,
    /// The counts of the rules, by number of the rule and stream.
    pub(super) counts: BTreeMap<(usize, TrafficKind), StreamCount>,
    /// The directions of which no packet was seen yet, though packets may have left: the first one seen shows
    /// the progress.
    unseen: UnseenDirections,
}

#[derive(Debug, Default)]
pub(crate) struct UnseenDirections {
    requests: bool,
    answers: bool,
}

#[derive(Debug, Default)]
pub(crate) struct DatagramDestination {
    ordinal: u32,
    datagrams: u64,
}

impl Traffic {
    /// Returns the traffic of a connection; that of an earlier connection is forgotten.
    pub(crate) fn of_connection(&mut self, connection: u32) -> &mut Traffic {
        if self.connection != connection {
            *self = Traffic { connection, ..Traffic::default() };
        }
        self
    }

    /// Returns the traffic of a connection of which packets may have left before.
    pub(crate) fn late(connection: u32) -> Traffic {
        let unseen = UnseenDirections { requests: true, answers: true };
        Traffic { connection, unseen, ..Traffic::default() }
    }

    /// Sets the progress of a direction from the first packet that is seen of it.
    fn find_start(&mut self, identity: &PacketIdentity) {
        if identity.side == PacketSide::Requester && std::mem::take(&mut self.unseen.requests) {
            self.requests = Requests::beginning_at(identity.relative_psn);
            self.once = Once::beginning_at(identity.relative_psn);
        }
        if identity.side == PacketSide::Responder && std::mem::take(&mut self.unseen.answers) {
            self.answers = Answers::beginning_at(identity.relative_psn);
            (self.answer, self.message) = (identity.relative_psn.into(), identity.message);
        }
    }

    /// Returns the identity of a packet. `None` means that the plan is not asked about it.
    pub(crate) fn key(
        &mut self,
        qp: u32,
        departure: &OutgoingPacket<'_>,
    ) -> Option<(PacketKey, TrafficKind)> {
        let identity = &departure.identity;
        self.find_start(identity);
        let class = PacketClass::of(departure);
        let service = PacketService::of(departure).or(self.service);
        let service = service.unwrap_or(PacketService::Rc);
        self.service = Some(service);
        let mut key = PacketKey {
            service,
            qp,
            connection: departure.connection,
            side: identity.side,
            class,
            message: identity.message,
            packet: 0,
            peer: None,
            destination: 0,
            transmission: 1,
        };
        let (stream, attempt) = match (class, service, identity.side) {
            (PacketClass::Cnp, ..) | (_, _, PacketSide::Notification) => {
                let packet = self.notifications;
                self.notifications = packet.saturating_add(1);
                (TrafficKind::Notifications, PacketAttempt { packet, transmission: 1 })
            }
            (_, service, _) if service.is_datagram() => {
                let attempt = self.datagram(departure, &mut key);
                (TrafficKind::Requests, attempt)
            }
            (_, PacketService::Uc, _) => (TrafficKind::Requests, self.once.attempt(identity.relative_psn)),
            (_, _, PacketSide::Requester) => {
                (TrafficKind::Requests, self.requests.attempt(identity.relative_psn)?)
            }
            (PacketClass::Nak | PacketClass::RnrNak, ..) => {
                key.message = unwrap24(self.message, identity.message as u32);
                let packet = unwrap24(self.answer, identity.relative_psn);
                (TrafficKind::Refusals, self.refusal(class, key.message, packet))
            }
            (PacketClass::Ack, ..) => {
                key.message = self.answered(identity.message as u32);
                (
                    TrafficKind::Acks,
                    PacketAttempt { packet: self.answer(identity.relative_psn), transmission: 1 },
                )
            }
            _ => {
                let packet = self.answer(identity.relative_psn);
                let attempt = self.answers.attempt(packet)?;
                key.message = self.answered(identity.message as u32);
                (TrafficKind::Answers, attempt)
            }
        };
        (key.packet, key.transmission) = (attempt.packet, attempt.transmission);
        Some((key, stream))
    }

    /// Records whether a packet arrives, as the plan decided.
    pub(crate) fn decided(&mut self, key: &PacketKey, stream: TrafficKind, psn_count: u32, arrives: bool) {
        match stream {
            TrafficKind::Requests if !key.service.is_unreliable() => {
                self.requests.decided(arrives, psn_count)
            }
            TrafficKind::Answers => {
                let attempt = PacketAttempt { packet: key.packet, transmission: key.transmission };
                self.answers.decided(attempt, arrives);
            }
            _ => {}
        }
    }

    pub(crate) fn answered(&mut self, message: u32) -> u64 {
        let message = unwrap24(self.message, message);
        self.message = self.message.max(message);
        message
    }

    pub(crate) fn answer(&mut self, relative_psn: u32) -> u64 {
        let packet = unwrap24(self.answer, relative_psn);
        self.answer = self.answer.max(packet);
        packet
    }

    /// Counts a refusal of its kind of a message, and returns its number.
    pub(crate) fn refusal(&mut self, class: PacketClass, message: u64, packet: u64) -> PacketAttempt {
        self.refusals.retain(|(_, refused), _| *refused >= message);
        let times = self.refusals.entry((class, message)).or_default();
        *times = times.saturating_add(1);
        PacketAttempt { packet, transmission: *times }
    }

    /// Counts a datagram to its destination, and returns its number.
    pub(crate) fn datagram(&mut self, departure: &OutgoingPacket<'_>, key: &mut PacketKey) -> PacketAttempt {
        let address = departure.path.flow.destination;
        let mut at = (address, departure.destination);
        if !self.destinations.contains_key(&at) && self.destinations.len() >= MAX_DESTINATIONS {
            at = self.destinations.last_key_value().map_or(at, |(last, _)| *last);
        }
        let first = (address, Qpn::new(0));
        let last = (address, Qpn::new(0xff_ffff));
        if !self.destinations.contains_key(&at) {
            let ordinal = self.destinations.range(first..=last).count() as u32;
            self.destinations.insert(at, DatagramDestination { ordinal, datagrams: 0 });
        }
        let Some(destination) = self.destinations.get_mut(&at) else {
            return PacketAttempt { packet: 0, transmission: 1 };
        };
        let packet = destination.datagrams;
        destination.datagrams += 1;
        (key.peer, key.destination, key.message) = (Some(address), destination.ordinal, packet);
        PacketAttempt { packet, transmission: 1 }
    }
}
