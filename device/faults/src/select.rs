//! The selection of the packets that a rule is about, and the conditions under which it applies.

use std::fmt;
use std::net::IpAddr;

use pumice_model::fates::{PacketClass, PacketKey, PacketService};
use pumice_platform::ordinal::OrdinalSpan;
use pumice_transport::event::PacketSide;

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

/// A plane of MRC: packets whose UDP source port modulo the number of planes is this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneSpan {
    /// The plane, from 0.
    pub plane: u8,
    /// The number of planes.
    pub planes: u8,
}

impl PlaneSpan {
    const fn has(self, source_port: u16) -> bool {
        self.planes > 0 && source_port % self.planes as u16 == self.plane as u16
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
    /// UDP source ports, which are the paths of MRC.
    pub source_port: Option<Span>,
    /// The plane of MRC.
    pub plane: Option<PlaneSpan>,
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

    /// Reports whether the selector matches this packet, which goes to a peer from a UDP source port, and
    /// belongs to a process that the selector is about.
    pub fn matches(&self, key: &PacketKey, peer: IpAddr, source_port: u16) -> bool {
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
            && has(self.source_port, source_port.into())
            && self.plane.is_none_or(|plane| plane.has(source_port))
            && self.is_towards(peer)
    }
}

/// A probability of 1, in parts per million.
const ALWAYS_PPM: u32 = 1_000_000;

/// Selects every `step`-th of what a rule is about, from the first to the last, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// The first ordinal.
    pub first: u64,
    /// The last ordinal.
    pub last: u64,
    /// The distance from one to the next, at least 1.
    pub step: u64,
}

impl Steps {
    pub(super) const fn has(self, ordinal: u64) -> bool {
        let step = if self.step == 0 { 1 } else { self.step };
        ordinal >= self.first && ordinal <= self.last && (ordinal - self.first).is_multiple_of(step)
    }
}

/// Good and bad stretches (the model of Gilbert and Elliott): the rule applies in bad ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bursts {
    /// Probability that a bad stretch begins with a packet, in parts per million.
    pub begin_ppm: u32,
    /// Probability that a bad stretch ends with a packet, in parts per million.
    pub end_ppm: u32,
}

/// The conditions of a rule, all of which have to hold. What a rule is about is counted along one kind of
/// traffic (requests, answers, ACKs, NAKs) of one connection of one queue pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuleConditions {
    /// The ordinals to which the rule applies.
    pub steps: Option<Steps>,
    /// The share to which the rule applies at random, in parts per million.
    pub chance_ppm: Option<u32>,
    /// The bad stretches in which the rule applies.
    pub bursts: Option<Bursts>,
    /// The largest number of times that the rule applies.
    pub times: Option<u64>,
}

impl RuleConditions {
    /// Reports whether the rule applies to everything that it is about.
    pub(super) fn is_always(&self) -> bool {
        let chance = self.chance_ppm.is_none_or(|ppm| ppm == ALWAYS_PPM);
        chance && self.steps.is_none() && self.bursts.is_none() && self.times.is_none()
    }

    /// Checks that the conditions make sense together.
    ///
    /// # Errors
    /// The conditions can never hold; the sentence says what to write.
    pub(super) fn check(&self) -> Result<(), String> {
        let chances = [self.chance_ppm, self.bursts.map(|bursts| bursts.begin_ppm)];
        if chances.into_iter().flatten().any(|ppm| ppm > ALWAYS_PPM) {
            return Err("a chance is more than 100 %: write at most 100%".to_owned());
        }
        if chances.contains(&Some(0)) && self.chance_ppm.is_some_and(|ppm| ppm == 0) {
            return Err("a chance of 0 never applies: remove the rule, or write a chance above 0".to_owned());
        }
        if self.bursts.is_some_and(|bursts| bursts.begin_ppm == 0) {
            return Err("bad stretches with a chance of 0 never begin: write a chance above 0".to_owned());
        }
        if self.times == Some(0) {
            return Err("times = 0 never applies: remove the rule, or write at least 1".to_owned());
        }
        match self.steps {
            Some(Steps { first: 0, .. }) => Err("counting begins with 1: write 1 for the first".to_owned()),
            Some(Steps { first, last, .. }) if last < first => {
                Err(format!("from {first} to {last} there is nothing: write the smaller number first"))
            }
            Some(Steps { step: 0, .. }) => Err("a step of 0 does not go on: write at least 1".to_owned()),
            _ => Ok(()),
        }
    }

    /// Checks that a span has as many things as the rule counts.
    ///
    /// # Errors
    /// The first one to which the rule applies is beyond the span.
    pub(crate) fn check_count(&self, span: Span, field: &str) -> Result<(), String> {
        let there = span.last.saturating_sub(span.first).saturating_add(1);
        match self.steps {
            Some(steps) if steps.first > there => Err(format!(
                "{field}={span} is {there} at most on each connection, and nth begins with {}: of these \
                 there is none, write nth=1 or leave it out",
                steps.first
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_and_paths_are_selected_by_the_source_port() {
        let key = PacketKey {
            service: PacketService::Uc,
            side: PacketSide::Requester,
            class: PacketClass::Write,
            qp: 0,
            connection: 0,
            message: 0,
            packet: 0,
            peer: None,
            destination: 0,
            transmission: 1,
        };
        let peer = IpAddr::from([127, 0, 0, 1]);
        let plane = PlaneSpan { plane: 3, planes: 8 };
        let of_plane = PacketSelector { plane: Some(plane), ..PacketSelector::default() };
        let met: Vec<u16> = (49_152..49_168).filter(|port| of_plane.matches(&key, peer, *port)).collect();
        assert_eq!(met, [49_155, 49_163]);
        let paths = Span { first: 49_160, last: 49_163 };
        let of_both = PacketSelector { source_port: Some(paths), ..of_plane };
        let met: Vec<u16> = (49_152..49_168).filter(|port| of_both.matches(&key, peer, *port)).collect();
        assert_eq!(met, [49_163]);
        assert!(!of_both.is_of_all());
    }
}
