//! Which packets a rule is about.

use std::fmt;
use std::net::IpAddr;

use pumice_ground::ordinal::OrdinalSpan;
use pumice_transport::event::Side;

use super::identity::{PacketClass, PacketKey, PacketService};

/// Numbers from here to there, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

impl Span {
    /// One number.
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

/// Whether numbers of objects are such of any.
///
/// # Errors
/// The smaller one is not first.
pub(super) fn check_ordinals(name: &str, span: Option<OrdinalSpan>) -> Result<(), String> {
    match span.filter(|span| span.last < span.first) {
        Some(span) => Err(format!("{name} = {span} has no number: write the smaller number first")),
        None => Ok(()),
    }
}

/// Packets, by what they are. What is not said may be anything; but packets whose number depends on timing
/// ([`PacketClass::depends_on_time`]) are met only if their class is named.
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
    /// Who sends it.
    pub side: Option<Side>,
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
    /// Whether it is about packets of this process.
    pub fn is_of(&self, tag: &str) -> bool {
        self.tag.as_deref().is_none_or(|wanted| match wanted.strip_suffix('*') {
            Some(start) => tag.starts_with(start),
            None => tag == wanted,
        })
    }

    /// Whether it is about packets to this address.
    pub fn is_towards(&self, peer: IpAddr) -> bool {
        self.peer.is_empty() || self.peer.contains(&peer)
    }

    /// Whether it is about this packet of a process that it is about.
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
