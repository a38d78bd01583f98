//! Turns the fate of datagrams and of messages of connection management into rules.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use super::sides::{PacketOutcome, Sighting, outcomes};
use pumice_device::faults::traffic::Connections;
use pumice_device::faults::{PacketClass, PacketKey};
use pumice_device::platform::ordinal::Ordinal;
use pumice_transport::event::PacketSide;
use pumice_transport::wire::Qpn;

use super::rules::{FaultRules, PacketFault, PeerKey, RuleKey};
use super::walk::LATE_NS;

/// Number of the queue pair to which messages of connection management are sent.
const MANAGEMENT_QPN: u32 = 1;

/// The key by which a queue pair of a device is recognized in its capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LocalQp {
    /// By destination, because packets of connections do not name their sender.
    To(IpAddr, u32),
    From(u32),
}

/// The ordinals of the queue pairs of a device.
#[derive(Debug, Default)]
pub(super) struct QpOrdinals {
    known: HashMap<LocalQp, u32>,
    /// The first queue pair that was created with each ordinal.
    made: HashMap<u32, u32>,
}

impl QpOrdinals {
    /// Collects the noted ordinals. Other queue pairs that sent packets follow them, in the order in which
    /// they first sent.
    pub(super) fn of(sent: &[Sighting], noted: &str) -> QpOrdinals {
        let mut ordinals = QpOrdinals::default();
        for (own, ordinal) in noted.lines().filter_map(noted_in) {
            ordinals.known.insert(own, ordinal);
            if let LocalQp::From(qpn) = own {
                ordinals.made.entry(ordinal).or_insert(qpn);
            }
        }
        let mut next = ordinals.known.values().max().map_or(0, |last| last.saturating_add(1));
        for one in sent {
            let own = match &one.datagram {
                None => LocalQp::To(one.destination, one.qpn),
                Some(datagram) if datagram.from_qpn == MANAGEMENT_QPN => continue,
                Some(datagram) => LocalQp::From(datagram.from_qpn),
            };
            ordinals.known.entry(own).or_insert_with(|| {
                let ordinal = next;
                next = next.saturating_add(1);
                ordinal
            });
        }
        ordinals
    }

    /// Returns the ordinal of the queue pair that is connected to this one.
    pub(super) fn of_connected(&self, destination: IpAddr, qpn: u32) -> u32 {
        self.known.get(&LocalQp::To(destination, qpn)).copied().unwrap_or_default()
    }

    /// Returns the queue pair with an ordinal; `None` if it was not noted.
    pub(super) fn qpn(&self, ordinal: u32) -> Option<u32> {
        self.made.get(&ordinal).copied()
    }
}

/// Parses a line that notes that a queue pair was created, and returns its number.
pub(super) fn made_in(line: &str) -> Option<u32> {
    match noted_in(line)? {
        (LocalQp::From(qpn), _) => Some(qpn),
        (LocalQp::To(..), _) => None,
    }
}

/// Parses what a line notes about a queue pair.
fn noted_in(line: &str) -> Option<(LocalQp, u32)> {
    let mut words = line.split(' ');
    let what = words.next()?;
    let Ordinal(ordinal) = words.next()?.parse().ok()?;
    let own = match what {
        "made" => LocalQp::From(words.next()?.parse().ok()?),
        "connected" => LocalQp::To(words.next()?.parse().ok()?, words.next()?.parse().ok()?),
        _ => return None,
    };
    Some((own, ordinal))
}

/// Datagrams that arrived at the processes of a record, and the queue pairs that belong to them.
pub(super) struct Datagrams<'a> {
    arrived: BTreeMap<(IpAddr, IpAddr, u32), Vec<&'a Sighting>>,
    /// Queue pairs of the record. A datagram to another one that does not arrive here may have arrived
    /// elsewhere.
    known: HashSet<(IpAddr, u32)>,
}

impl<'a> Datagrams<'a> {
    /// Collects from `all` packets of the record, and from the `arrivals` of datagrams among them.
    pub(super) fn of<'b>(all: impl Iterator<Item = &'b Sighting>, arrivals: &'a [Sighting]) -> Datagrams<'a> {
        let mut known = HashSet::new();
        for one in all {
            match (&one.datagram, one.is_outbound) {
                (Some(datagram), Some(true)) => known.insert((one.source, datagram.from_qpn)),
                (Some(_), Some(false)) => known.insert((one.destination, one.qpn)),
                _ => false,
            };
        }
        let mut arrived: BTreeMap<_, Vec<&Sighting>> = BTreeMap::new();
        for one in arrivals {
            arrived.entry((one.source, one.destination, one.qpn)).or_default().push(one);
        }
        Datagrams { arrived, known }
    }

    /// Adds the rules for what a process sent, in order.
    pub(super) fn walk(&self, sent: &[Sighting], ordinals: &QpOrdinals, rules: &mut FaultRules) {
        let (messages, datagrams): (Vec<&Sighting>, Vec<&Sighting>) = sent.iter().partition(|one| {
            one.datagram.as_ref().is_some_and(|datagram| datagram.from_qpn == MANAGEMENT_QPN)
        });
        self.walk_datagrams(&datagrams, ordinals, rules);
        self.walk_messages(&messages, ordinals, rules);
    }

    /// Returns the outcomes of datagrams to one queue pair; `None` if they are unknown.
    fn outcomes(&self, sent: &[&Sighting]) -> Option<Vec<PacketOutcome>> {
        let first = sent.first()?;
        let is_known = self.known.contains(&(first.destination, first.qpn));
        // A datagram to a multicast group arrives once at each member.
        if !is_known || first.destination.is_multicast() {
            return None;
        }
        let flow = (first.source, first.destination, first.qpn);
        let mut outcomes = outcomes(sent, self.arrived.get(&flow).map(Vec::as_slice).unwrap_or_default());
        // Every process with the address has a queue pair 1: an arrival may belong to another process.
        if first.qpn == MANAGEMENT_QPN && first.source == first.destination {
            if outcomes.iter().all(|outcome| outcome.arrived_at.is_none()) {
                return None;
            }
            // Processes that share an address forward what is not for them, also back to one that has seen
            // it. Such a datagram is seen more often than it arrived, and after ones that arrived directly.
            for outcome in &mut outcomes {
                (outcome.copies, outcome.overtaken_by) = (0, 0);
            }
        }
        Some(outcomes)
    }

    fn walk_datagrams(&self, sent: &[&Sighting], ordinals: &QpOrdinals, rules: &mut FaultRules) {
        let mut groups: BTreeMap<(u32, IpAddr, u32), Vec<&Sighting>> = BTreeMap::new();
        let mut receivers: HashMap<(u32, IpAddr), Vec<u32>> = HashMap::new();
        for one in sent {
            let from_qpn = one.datagram.as_ref().map_or(0, |datagram| datagram.from_qpn);
            groups.entry((from_qpn, one.destination, one.qpn)).or_default().push(one);
            let of_address = receivers.entry((from_qpn, one.destination)).or_default();
            if !of_address.contains(&one.qpn) {
                of_address.push(one.qpn);
            }
        }
        for ((from_qpn, peer, qpn), group) in &groups {
            let Some(outcomes) = self.outcomes(group) else { continue };
            let of_address = receivers.get(&(*from_qpn, *peer));
            let destination = of_address.and_then(|all| all.iter().position(|known| known == qpn));
            let destination = destination.and_then(|index| u32::try_from(index).ok()).unwrap_or_default();
            let qp = ordinals.known.get(&LocalQp::From(*from_qpn)).copied().unwrap_or_default();
            for ((one, outcome), number) in group.iter().zip(&outcomes).zip(0_u64..) {
                let key = RuleKey {
                    peer: *peer,
                    service: "ud",
                    side: "requester",
                    qp,
                    opcode: PacketClass::Send.name(),
                    message: number,
                    packet: number,
                    transmission: 1,
                    peer_key: Some(PeerKey { connection: 0, destination }),
                };
                add_outcome(one, outcome, &key, rules);
            }
        }
    }

    fn walk_messages(&self, sent: &[&Sighting], ordinals: &QpOrdinals, rules: &mut FaultRules) {
        let mut groups: BTreeMap<(IpAddr, IpAddr), Vec<(usize, &Sighting)>> = BTreeMap::new();
        for (index, one) in sent.iter().enumerate() {
            groups.entry((one.source, one.destination)).or_default().push((index, one));
        }
        let mut fates: BTreeMap<usize, PacketOutcome> = BTreeMap::new();
        for group in groups.values() {
            let alone: Vec<&Sighting> = group.iter().map(|(_, one)| *one).collect();
            if let Some(outcomes) = self.outcomes(&alone) {
                fates.extend(group.iter().map(|(index, _)| *index).zip(outcomes));
            }
        }
        let mut connections = Connections::default();
        for (index, one) in sent.iter().enumerate() {
            let Some(message) = one.datagram.as_ref().and_then(|datagram| datagram.message.as_deref()) else {
                continue;
            };
            // A message that the plan has let pass before is not a new decision.
            let ordinal_of = |qpn: Qpn| ordinals.known.get(&LocalQp::From(qpn.value())).copied();
            let Some(key) = connections.key(one.destination, message, ordinal_of) else { continue };
            let outcome = fates.get(&index);
            let arrives = !one.is_lost && outcome.is_none_or(|it| it.arrived_at.is_some() && !it.is_damaged);
            connections.decided(message, arrives);
            if let Some(outcome) = outcome.filter(|_| !key.class.depends_on_time()) {
                add_outcome(one, outcome, &of_management(&key, one.destination), rules);
            }
        }
    }
}

fn of_management(key: &PacketKey, peer: IpAddr) -> RuleKey {
    RuleKey {
        peer,
        service: key.service.name(),
        side: if key.side == PacketSide::Requester { "requester" } else { "responder" },
        qp: key.qp,
        opcode: key.class.name(),
        message: key.message,
        packet: key.packet,
        transmission: key.transmission,
        peer_key: Some(PeerKey { connection: key.connection, destination: key.destination }),
    }
}

/// Adds the rules for a datagram.
fn add_outcome(one: &Sighting, outcome: &PacketOutcome, key: &RuleKey, rules: &mut FaultRules) {
    let mut add = |fault| rules.add(fault, key.clone(), one.is_planned || one.is_damaged);
    if outcome.arrived_at.is_none() {
        return add(PacketFault::Drop);
    }
    if outcome.is_damaged || one.is_damaged {
        return add(PacketFault::Corrupt);
    }
    if outcome.copies > 0 {
        add(PacketFault::Duplicate { copies: outcome.copies });
    }
    if outcome.late_ns >= LATE_NS {
        add(PacketFault::Delay { ns: outcome.late_ns });
    } else if outcome.overtaken_by > 0 {
        add(PacketFault::Reorder { packets: outcome.overtaken_by });
    }
}

#[cfg(test)]
#[path = "datagrams_tests.rs"]
mod tests;
