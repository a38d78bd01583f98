//! The selection of the packets that a rule is about.

use std::fmt;
use std::net::IpAddr;

use pumice_platform::ordinal::OrdinalSpan;
use pumice_transport::event::PacketSide;

use pumice_model::fates::identity::{PacketClass, PacketKey, PacketService};

/// A range of numbers, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
}

impl Span {
    /// Returns a span of one number.
    pub const fn one(number: u64) -> Span {
        Span { first: number, last: number }
    }

    pub(super) fn has(self, number: u64) -> bool {
        (self.first..=self.last).contains(&number)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, u64::MAX) => write!(f, "{first}.."),
            (first, last) => write!(f, "{first}..{last}"),
        }
    }
}

/// Checks that a span of object numbers contains a number.
///
/// # Errors
/// The smaller number is not first.
pub(super) fn check_ordinals(name: &str, span: Option<OrdinalSpan>) -> Result<(), String> {
    match span.filter(|span| span.last < span.first) {
        Some(span) => Err(format!("{name} = {span} has no number: write the smaller number first")),
        None => Ok(()),
    }
}

/// Selects packets by what they are. A field without a value matches anything; but packets whose number
/// depends on timing ([`PacketClass::depends_on_time`]) match only if their class is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketSelector {
    /// The tag of the sending process; `*` at its end stands for anything.
    pub tag: Option<String>,
    /// Ordinals of queue pairs.
    pub qp: Option<OrdinalSpan>,
    /// Ordinals of connections.
    pub connection: Option<OrdinalSpan>,
    /// Addresses of the receiver; empty: all.
    pub peer: Vec<IpAddr>,
    /// Services; empty: all.
    pub service: Vec<PacketService>,
    /// The side that sends the packet.
    pub side: Option<PacketSide>,
    /// Classes; empty: all but those that depend on timing.
    pub opcode: Vec<PacketClass>,
    /// Ordinals of messages.
    pub message: Option<Span>,
    /// Ordinals of packets.
    pub packet: Option<Span>,
    /// Transmissions, from 1.
    pub transmission: Option<Span>,
}

impl PacketSelector {
    /// Reports whether the selector is about all packets of a process.
    pub(super) fn is_of_all(&self) -> bool {
        *self == PacketSelector { tag: self.tag.clone(), ..PacketSelector::default() }
    }

    /// Reports whether the selector is about packets of a process with this tag.
    pub fn is_of(&self, tag: &str) -> bool {
        self.tag.as_deref().is_none_or(|wanted| match wanted.strip_suffix('*') {
            Some(start) => tag.starts_with(start),
            None => tag == wanted,
        })
    }

    /// Reports whether the selector is about packets to this address.
    pub fn is_towards(&self, peer: IpAddr) -> bool {
        self.peer.is_empty() || self.peer.contains(&peer)
    }

    /// Reports whether the selector matches this packet, which belongs to a process that the selector is
    /// about.
    pub fn matches(&self, key: &PacketKey, peer: IpAddr) -> bool {
        let has = |span: Option<Span>, number| span.is_none_or(|span| span.has(number));
        let named = if self.opcode.is_empty() {
            !key.class.depends_on_time()
        } else {
            self.opcode.contains(&key.class)
        };
        named
            && (self.service.is_empty() || self.service.contains(&key.service))
            && self.side.is_none_or(|side| side == key.side)
            && self.qp.is_none_or(|qp| qp.has(key.qp))
            && self.connection.is_none_or(|connection| connection.has(key.connection))
            && has(self.message, key.message)
            && has(self.packet, key.packet)
            && has(self.transmission, key.transmission.into())
            && self.is_towards(peer)
    }
}
