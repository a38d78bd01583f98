//! What a plan remembers of one queue pair: where each kind of traffic stands, and what rules have counted.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pumice_transport::event::{Departure, PacketIdentity, Side};
use pumice_transport::wire::Qpn;

use super::frontier::{Answers, Once, PacketAttempt, Requests, unwrap24};
use super::identity::{PacketClass, PacketKey, PacketService};

/// Destinations of one datagram queue pair that are told apart; more of them share the last ordinal.
pub(crate) const MAX_DESTINATIONS: usize = 65_536;

/// Packets whose order among each other is the same in every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    Requests,
    Answers,
    Acks,
    Refusals,
    Notifications,
    Management,
}

/// What a rule has counted along one stream.
#[derive(Debug, Clone, Default)]
pub struct Count {
    /// Packets that the rule is about.
    pub(super) matched: u64,
    /// How often it applied.
    pub(super) applied: u64,
    /// In a bad stretch.
    pub(super) bad: bool,
    /// What it drew last.
    pub(super) before: Option<u64>,
}

/// One connection of a queue pair.
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
    destinations: BTreeMap<(IpAddr, Qpn), Destination>,
    /// By rule.
    pub(super) counts: BTreeMap<(usize, Stream), Count>,
    /// Directions of which nothing was seen yet, though packets may have left: the first one seen is where
    /// they stand.
    unseen: Unseen,
}

#[derive(Debug, Default)]
pub(crate) struct Unseen {
    requests: bool,
    answers: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Destination {
    ordinal: u32,
    datagrams: u64,
}

impl Traffic {
    /// The traffic of a connection; that of an earlier one is forgotten.
    pub(crate) fn of_connection(&mut self, connection: u32) -> &mut Traffic {
        if self.connection != connection {
            *self = Traffic { connection, ..Traffic::default() };
        }
        self
    }

    /// The traffic of a connection of which packets may have left before.
    pub(crate) fn late(connection: u32) -> Traffic {
        let unseen = Unseen { requests: true, answers: true };
        Traffic { connection, unseen, ..Traffic::default() }
    }

    /// The first packet that is seen of a direction says where it stands.
    pub(crate) fn find_start(&mut self, identity: &PacketIdentity) {
        if identity.side == Side::Requester && std::mem::take(&mut self.unseen.requests) {
            self.requests = Requests::beginning_at(identity.relative_psn);
            self.once = Once::beginning_at(identity.relative_psn);
        }
        if identity.side == Side::Responder && std::mem::take(&mut self.unseen.answers) {
            self.answers = Answers::beginning_at(identity.relative_psn);
            (self.answer, self.message) = (identity.relative_psn.into(), identity.message);
        }
    }

    /// Which packet this is. `None`: the plan is not asked about it.
    pub(crate) fn key(&mut self, qp: u32, departure: &Departure<'_>) -> Option<(PacketKey, Stream)> {
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
            (PacketClass::Cnp, ..) | (_, _, Side::Notification) => {
                let packet = self.notifications;
                self.notifications = packet.saturating_add(1);
                (Stream::Notifications, PacketAttempt { packet, transmission: 1 })
            }
            (_, service, _) if service.is_datagram() => {
                let attempt = self.datagram(departure, &mut key);
                (Stream::Requests, attempt)
            }
            (_, PacketService::Uc, _) => (Stream::Requests, self.once.attempt(identity.relative_psn)),
            (_, _, Side::Requester) => (Stream::Requests, self.requests.attempt(identity.relative_psn)?),
            (PacketClass::Nak | PacketClass::RnrNak, ..) => {
                key.message = unwrap24(self.message, identity.message as u32);
                let packet = unwrap24(self.answer, identity.relative_psn);
                (Stream::Refusals, self.refusal(class, key.message, packet))
            }
            (PacketClass::Ack, ..) => {
                key.message = self.answered(identity.message as u32);
                (Stream::Acks, PacketAttempt { packet: self.answer(identity.relative_psn), transmission: 1 })
            }
            _ => {
                let packet = self.answer(identity.relative_psn);
                let attempt = self.answers.attempt(packet)?;
                key.message = self.answered(identity.message as u32);
                (Stream::Answers, attempt)
            }
        };
        (key.packet, key.transmission) = (attempt.packet, attempt.transmission);
        Some((key, stream))
    }

    /// What was decided about a packet.
    pub(crate) fn decided(&mut self, key: &PacketKey, stream: Stream, psn_count: u32, arrives: bool) {
        match stream {
            Stream::Requests if !key.service.is_unreliable() => self.requests.decided(arrives, psn_count),
            Stream::Answers => {
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

    /// The n-th refusal of its kind of a message.
    pub(crate) fn refusal(&mut self, class: PacketClass, message: u64, packet: u64) -> PacketAttempt {
        self.refusals.retain(|(_, refused), _| *refused >= message);
        let times = self.refusals.entry((class, message)).or_default();
        *times = times.saturating_add(1);
        PacketAttempt { packet, transmission: *times }
    }

    /// The n-th datagram to its destination.
    pub(crate) fn datagram(&mut self, departure: &Departure<'_>, key: &mut PacketKey) -> PacketAttempt {
        let address = departure.path.flow.destination;
        let mut at = (address, departure.destination);
        if !self.destinations.contains_key(&at) && self.destinations.len() >= MAX_DESTINATIONS {
            at = self.destinations.last_key_value().map_or(at, |(last, _)| *last);
        }
        let first = (address, Qpn::new(0));
        let last = (address, Qpn::new(0xff_ffff));
        if !self.destinations.contains_key(&at) {
            let ordinal = self.destinations.range(first..=last).count() as u32;
            self.destinations.insert(at, Destination { ordinal, datagrams: 0 });
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
