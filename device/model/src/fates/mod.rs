//! What a fault plan can do to packets, calls, completions, events and the device, as values.
//!
//! The identities of packets and calls, in terms that are the same in every run, and what happens to them.

use std::collections::VecDeque;
use std::hash::Hasher as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use fnv::FnvHasher;
use pumice_platform::clock::Random;
use pumice_transport::event::{OutgoingPacket, PacketSide};
use pumice_transport::mad::CmMessage;
use pumice_transport::types::{QpState, QpType};
use pumice_transport::wire::{OperationClass, Service, Syndrome};

use crate::fates::incident::Incident;

/// Makes an enum whose values have names, and a table of both.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$value_doc])* $value,)* }

        impl $name {
            /// All values of this type.
            pub const ALL: &'static [$name] = &[$($name::$value,)*];

            /// Returns the name of this value in plans and reports.
            pub const fn name(self) -> &'static str {
                match self { $($name::$value => $text,)* }
            }

            /// Returns the value of this name, if there is one.
            pub fn by_name(name: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

named! {
    /// The service that a packet belongs to.
    PacketService {
        /// Reliable connection.
        Rc = "rc",
        /// Unreliable connection.
        Uc = "uc",
        /// Unreliable datagram.
        Ud = "ud",
        /// Extended reliable connection.
        Xrc = "xrc",
        /// Scalable reliable datagrams, of EFA.
        Srd = "srd",
        /// Dynamically connected, of mlx5.
        Dc = "dc",
        /// Connection management, on queue pair 1.
        Cm = "cm",
    }
}

named! {
    /// The class of a packet: what it does.
    PacketClass {
        /// SEND, with or without immediate data or invalidation.
        Send = "send",
        /// RDMA WRITE, with or without immediate data.
        Write = "write",
        /// A READ request.
        Read = "read",
        /// An atomic request, or ATOMIC WRITE.
        Atomic = "atomic",
        /// FLUSH.
        Flush = "flush",
        /// The data of a READ, or the answer to FLUSH or ATOMIC WRITE.
        ReadResponse = "read-response",
        /// The answer to an atomic.
        AtomicResponse = "atomic-response",
        /// The acknowledgement of a message.
        Ack = "ack",
        /// A NAK: sequence, access, operation, invalid request.
        Nak = "nak",
        /// An RNR NAK: the peer has no receive request.
        RnrNak = "rnr-nak",
        /// A congestion notification.
        Cnp = "cnp",
        /// Connection management: a connection request.
        Req = "req",
        /// Connection management: message receipt acknowledgement, which extends the wait.
        Mra = "mra",
        /// Connection management: a rejection.
        Rej = "rej",
        /// Connection management: the reply to a request.
        Rep = "rep",
        /// Connection management: ready to use.
        Rtu = "rtu",
        /// Connection management: a request to disconnect.
        Dreq = "dreq",
        /// Connection management: the reply to a disconnect request.
        Drep = "drep",
        /// Connection management: a request for the queue pair of a datagram service.
        SidrReq = "sidr-req",
        /// Connection management: the answer to [`PacketClass::SidrReq`].
        SidrRep = "sidr-rep",
    }
}

impl PacketClass {
    /// Reports whether timing decides if, and how often, a packet of this class is sent. A rule matches it
    /// only if it names the class.
    pub const fn depends_on_time(self) -> bool {
        matches!(self, PacketClass::Nak | PacketClass::RnrNak | PacketClass::Cnp | PacketClass::Mra)
    }

    #[doc(hidden)]
    pub fn of(departure: &OutgoingPacket<'_>) -> PacketClass {
        let class = departure.opcode.info().map(|info| info.class);
        match (class, departure.syndrome) {
            (Some(OperationClass::Send) | None, _) => PacketClass::Send,
            (Some(OperationClass::Write), _) => PacketClass::Write,
            (Some(OperationClass::Read), _) => PacketClass::Read,
            (Some(OperationClass::Atomic), _) => PacketClass::Atomic,
            (Some(OperationClass::Flush), _) => PacketClass::Flush,
            (Some(OperationClass::ReadResponse), _) => PacketClass::ReadResponse,
            (Some(OperationClass::AtomicAnswer), _) => PacketClass::AtomicResponse,
            (Some(OperationClass::Cnp), _) => PacketClass::Cnp,
            (Some(OperationClass::Acknowledge), Some(Syndrome::RnrNak { .. })) => PacketClass::RnrNak,
            (Some(OperationClass::Acknowledge), Some(Syndrome::Nak(_))) => PacketClass::Nak,
            (Some(OperationClass::Acknowledge), _) => PacketClass::Ack,
        }
    }

    /// Returns the class of a message of connection management.
    pub const fn of_message(message: &CmMessage) -> PacketClass {
        match message {
            CmMessage::Req(_) => PacketClass::Req,
            CmMessage::Mra(_) => PacketClass::Mra,
            CmMessage::Rej(_) => PacketClass::Rej,
            CmMessage::Rep(_) => PacketClass::Rep,
            CmMessage::Rtu(_) => PacketClass::Rtu,
            CmMessage::Dreq(_) => PacketClass::Dreq,
            CmMessage::Drep(_) => PacketClass::Drep,
            CmMessage::SidrReq(_) => PacketClass::SidrReq,
            CmMessage::SidrRep(_) => PacketClass::SidrRep,
        }
    }
}

impl PacketService {
    #[doc(hidden)]
    pub const fn of(departure: &OutgoingPacket<'_>) -> Option<PacketService> {
        match (departure.qp_type, departure.opcode.service()) {
            (QpType::Srd, _) => Some(PacketService::Srd),
            (QpType::Dci | QpType::Dct, _) => Some(PacketService::Dc),
            (_, Service::Rc) => Some(PacketService::Rc),
            (_, Service::Uc) => Some(PacketService::Uc),
            (_, Service::Ud) => Some(PacketService::Ud),
            (_, Service::Xrc) => Some(PacketService::Xrc),
            _ => None,
        }
    }

    /// Reports whether packets of the service are datagrams, each with a destination of its own: they are
    /// counted by destination.
    pub const fn is_datagram(self) -> bool {
        matches!(self, PacketService::Ud | PacketService::Srd | PacketService::Dc)
    }

    /// Reports whether every packet is sent once. SRD and DC send lost data again in new datagrams.
    pub const fn is_unreliable(self) -> bool {
        matches!(self, PacketService::Uc) || self.is_datagram()
    }
}

/// Returns the name of a side in plans and reports.
pub const fn side_name(side: PacketSide) -> &'static str {
    match side {
        PacketSide::Requester => "requester",
        PacketSide::Responder => "responder",
        PacketSide::Notification => "notification",
    }
}

/// Returns the side of this name, if there is one.
pub fn side_by_name(name: &str) -> Option<PacketSide> {
    [PacketSide::Requester, PacketSide::Responder, PacketSide::Notification]
        .into_iter()
        .find(|side| side_name(*side) == name)
}

/// The identity of a packet in a process: the same in every run in which the process sends the same messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketKey {
    /// The service of the packet.
    pub service: PacketService,
    /// The ordinal of the queue pair in its process, from 0; for connection management 0.
    pub qp: u32,
    /// The ordinal of the connection. For a queue pair: how often it was reset before. For connection
    /// management: how many connections with this peer were requested before it from this side.
    pub connection: u32,
    /// The side that sends the packet. For connection management, the requester is the side that requested
    /// the connection.
    pub side: PacketSide,
    /// The class of the packet.
    pub class: PacketClass,
    /// The ordinal of the message on the queue pair, from 0; for a datagram, among those to its destination.
    pub message: u64,
    /// Number of packets of this direction before this one on the connection; for a datagram the same as
    /// `message`.
    pub packet: u64,
    /// The peer's address, where one queue pair has several peers: for datagrams and connection management.
    pub peer: Option<IpAddr>,
    /// The ordinal of a datagram's destination queue pair among those of that address; else 0.
    pub destination: u32,
    /// Number of the transmission, from 1, counted while a plan loses the earlier ones.
    pub transmission: u32,
}

impl PacketKey {
    /// Returns the random numbers of a rule for this packet: a function of the seed, the rule's name, the
    /// process and the packet.
    pub fn draw(&self, seed: u64, rule: &str, tag: &str) -> Random {
        // FNV-1a gives the same result on every machine and with every compiler. Numbers are written byte by
        // byte for the same reason; 0xff separates, since it is in no UTF-8 text.
        let mut hasher = FnvHasher::default();
        for text in [rule, tag, self.service.name(), side_name(self.side), self.class.name()] {
            hasher.write(text.as_bytes());
            hasher.write(&[0xff]);
        }
        let peer = self.peer.map(|peer| peer.to_string()).unwrap_or_default();
        hasher.write(peer.as_bytes());
        let numbers = [self.qp, self.connection, self.destination, self.transmission].map(u64::from);
        for number in numbers.into_iter().chain([self.message, self.packet, seed]) {
            hasher.write(&number.to_le_bytes());
        }
        Random::new(hasher.finish())
    }
}

/// The text that reports have in place of a call's name where an incident happened at a time. The ordinal is
/// then the time that had passed, in ns.
pub const TIME: &str = "time";

/// The identity of a call in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallKey<'a> {
    /// The name of the call.
    pub call: &'a str,
    /// The ordinal of the call among those of this name in this process, from 1.
    pub ordinal: u64,
    /// The ordinal of the call's queue pair, from 0, if it is a call on one.
    pub qp: Option<u32>,
    /// The state to which the call moves its queue pair, if it is such a call.
    pub to: Option<QpState>,
}

/// The fate of a call: what all rules together do to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallFate {
    /// The errno with which the call fails instead of being carried out.
    pub errno: Option<i32>,
    /// Additional time that the call takes, in ns.
    pub delay_ns: u64,
    /// The incident of the device after the call has returned.
    pub incident: Option<Incident>,
}

impl CallFate {
    /// Reports whether nothing happens to the call.
    pub fn is_ordinary(&self) -> bool {
        *self == CallFate::default()
    }
}

impl CallKey<'_> {
    /// Returns the random numbers of a rule for this call: a function of the seed, the rule's name, the
    /// process and the call.
    pub fn draw(&self, seed: u64, rule: &str, tag: &str) -> Random {
        let mut hasher = FnvHasher::default();
        for text in [rule, tag, self.call] {
            hasher.write(text.as_bytes());
            // The byte 0xff is in no UTF-8 text, so it separates.
            hasher.write(&[0xff]);
        }
        for number in [self.ordinal, seed] {
            hasher.write(&number.to_le_bytes());
        }
        Random::new(hasher.finish())
    }
}

/// Most notes that are stored: more than packets can be in flight.
pub const MAX_NOTES: usize = 65_536;

/// Notes by the number that a [`Fate`](pumice_transport::types::Fate) carries: written where fates are
/// decided, and read where packets leave.
#[derive(Debug, Clone, Default)]
pub struct Notes(Arc<Mutex<StoredNotes>>);

#[derive(Debug, Default)]
struct StoredNotes {
    /// The number of the newest note.
    newest: u32,
    texts: VecDeque<Arc<str>>,
}

impl Notes {
    /// Stores a note, and returns its number, which is never 0.
    pub fn store(&self, text: String) -> u32 {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stored.newest == u32::MAX {
            *stored = StoredNotes::default();
        }
        if stored.texts.len() >= MAX_NOTES {
            stored.texts.pop_front();
        }
        stored.texts.push_back(text.into());
        stored.newest += 1;
        stored.newest
    }

    /// Returns the note of this number, if it is still stored.
    pub fn of(&self, number: u32) -> Option<Arc<str>> {
        let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = usize::try_from(stored.newest.checked_sub(number)?).ok()?;
        let index = stored.texts.len().checked_sub(before.checked_add(1)?)?;
        stored.texts.get(index).cloned()
    }
}

pub mod completion;
pub mod details;
pub mod fired;
pub mod incident;
pub mod live;
pub mod trigger;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_found_by_their_numbers_while_they_are_new() {
        let notes = Notes::default();
        assert_eq!((notes.of(0), notes.of(1)), (None, None));
        let numbers: Vec<u32> = (0..MAX_NOTES as u32 + 2).map(|i| notes.store(i.to_string())).collect();
        assert_eq!(notes.of(numbers[2]).as_deref(), Some("2"));
        assert_eq!(notes.of(numbers[MAX_NOTES + 1]).as_deref(), Some("65537"));
        assert_eq!((notes.of(numbers[1]), notes.of(numbers[MAX_NOTES + 1] + 1)), (None, None));
        assert_eq!(notes.of(0), None);
    }
}
