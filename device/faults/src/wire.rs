//! Faults of the simulated network, drawn for each packet in the order in which packets are sent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pumice_platform::clock::Random;
use pumice_transport::types::Fate;

use super::action::{Fault, Size};

/// The condition under which a rule of the network applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireTrigger {
    /// The rule applies to a share of all packets, at random.
    Chance {
        /// The share, in parts per million.
        ppm: u32,
    },
    /// The rule applies to one packet.
    Packet {
        /// The sender's address.
        from: IpAddr,
        /// The destination address, perhaps a multicast group.
        to: IpAddr,
        /// The index of the packet among those between the two addresses, from 0.
        index: u64,
    },
}

/// A rule of the simulated network: a condition and a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireRule {
    /// The condition under which the rule applies.
    pub trigger: WireTrigger,
    /// The fault. A partition is one lost packet here; `Fabric::cut` separates devices.
    pub fault: Fault,
}

/// A fault plan of the simulated network. It identifies packets by their order only, so a real run cannot
/// repeat it. For that, give a device a [`FaultPlan`](super::FaultPlan).
///
/// ```
/// use pumice_faults::{Fault, WirePlan};
///
/// let plan = WirePlan::seeded(7).by_chance(10_000, Fault::Drop).by_chance(500, Fault::DUPLICATE);
/// assert_eq!(plan.rules().len(), 2);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WirePlan {
    seed: u64,
    rules: Vec<WireRule>,
}

impl WirePlan {
    /// Returns a plan without rules.
    pub fn new() -> WirePlan {
        WirePlan::default()
    }

    /// Returns a plan without rules whose random draws follow from this seed.
    pub fn seeded(seed: u64) -> WirePlan {
        WirePlan { seed, rules: Vec::new() }
    }

    /// Adds a fault that happens to `ppm` of a million packets, at random.
    #[must_use]
    pub fn by_chance(self, ppm: u32, fault: Fault) -> WirePlan {
        self.with(WireRule { trigger: WireTrigger::Chance { ppm }, fault })
    }

    /// Adds a fault of the packet with this index (from 0) between two addresses.
    #[must_use]
    pub fn at(self, from: IpAddr, to: IpAddr, index: u64, fault: Fault) -> WirePlan {
        self.with(WireRule { trigger: WireTrigger::Packet { from, to, index }, fault })
    }

    /// Adds a rule.
    #[must_use]
    pub fn with(mut self, rule: WireRule) -> WirePlan {
        self.rules.push(rule);
        self
    }

    /// Returns the rules, in the order in which they were added.
    pub fn rules(&self) -> &[WireRule] {
        &self.rules
    }
}

/// The rules of a [`WirePlan`] with their state.
#[derive(Debug, Default)]
pub struct WireFaults {
    rules: Vec<ArmedWireRule>,
    /// Number of packets seen per source and destination address.
    counts: BTreeMap<(IpAddr, IpAddr), u64>,
}

#[derive(Debug)]
pub(crate) struct ArmedWireRule {
    rule: WireRule,
    random: Random,
    before: Option<u64>,
}

/// Returns a number for the kind of fault: rules of different kinds draw from different generators.
pub(crate) const fn kind(fault: &Fault) -> u64 {
    match fault {
        Fault::Drop => 1,
        Fault::Duplicate { .. } => 2,
        Fault::Corrupt { first: Some(_), .. } => 3,
        Fault::Corrupt { first: None, .. } => 4,
        Fault::Truncate { bytes: Some(_) } => 5,
        Fault::Truncate { bytes: None } => 6,
        Fault::Delay(_) => 7,
        Fault::Reorder { .. } => 8,
        Fault::Mark => 9,
        Fault::Partition { .. } => 10,
        Fault::Refuse { .. } => 11,
        Fault::Notify => 12,
        Fault::Happen(_) => 13,
        Fault::Reject { .. } => 14,
        Fault::Note => 15,
        Fault::Unreachable => 16,
        Fault::Trim { .. } => 17,
        Fault::Reflect { .. } => 18,
    }
}

impl WireFaults {
    #[doc(hidden)]
    pub fn new(plan: &WirePlan) -> WireFaults {
        let mut faults = WireFaults::default();
        faults.play(plan);
        faults
    }

    /// Replaces the plan; the counts of packets stay.
    pub fn play(&mut self, plan: &WirePlan) {
        let mut ordinals = BTreeMap::<u64, u64>::new();
        let arm = |rule: &WireRule| {
            // The generator depends on the kind of fault and the ordinal within that kind, so other rules do
            // not matter.
            let kind = kind(&rule.fault);
            let ordinal = ordinals.entry(kind).or_default();
            let random = Random::new(plan.seed).fork(kind << 32 | *ordinal);
            *ordinal += 1;
            ArmedWireRule { rule: *rule, random, before: None }
        };
        self.rules = plan.rules.iter().map(arm).collect();
    }

    /// Counts a packet between two addresses, and returns its index.
    pub fn count(&mut self, from: IpAddr, to: IpAddr) -> u64 {
        let count = self.counts.entry((from, to)).or_default();
        let index = *count;
        *count += 1;
        index
    }

    /// Decides what happens to a packet of this index; for a multicast packet it is called for each receiver.
    pub fn fate(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        index: u64,
        packet_bytes: usize,
        payload_bytes: usize,
    ) -> Fate {
        let size = Size { length_bytes: packet_bytes as u32, payload_bytes: payload_bytes as u32 };
        let mut fate = Fate::default();
        for ArmedWireRule { rule, random, before } in &mut self.rules {
            let (applies, operand) = match rule.trigger {
                WireTrigger::Chance { ppm } => (random.chance(ppm), random.next_u64()),
                trigger => (trigger == WireTrigger::Packet { from, to, index }, random.next_u64()),
            };
            let has_device = matches!(rule.fault, Fault::Happen(_));
            if applies
                && !has_device
                && let Some(more) = rule.fault.fate(size, operand, before)
            {
                fate = fate.and(more);
            }
        }
        fate
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn fates(plan: &WirePlan) -> Vec<Fate> {
        let mut faults = WireFaults::new(plan);
        (0..2_000)
            .map(|_| {
                let index = faults.count(A, B);
                faults.fate(A, B, index, 100, 60)
            })
            .collect()
    }

    #[test]
    fn a_rule_more_changes_no_other_rules_choices() {
        let drops = WirePlan::seeded(7).by_chance(50_000, Fault::Drop);
        let more = WirePlan::seeded(7)
            .by_chance(300_000, Fault::delay(1))
            .by_chance(50_000, Fault::Drop)
            .by_chance(100_000, Fault::CUT)
            .at(A, B, 5, Fault::DUPLICATE);
        let lost = |plan: &WirePlan| fates(plan).iter().map(|fate| fate.lost).collect::<Vec<_>>();
        assert_eq!(lost(&drops), lost(&more));
        assert_ne!(lost(&drops), lost(&WirePlan::seeded(8).by_chance(50_000, Fault::Drop)));
        let hits = lost(&drops).iter().filter(|lost| **lost).count();
        assert!((60..140).contains(&hits), "{hits}");
    }

    #[test]
    fn rules_of_one_kind_draw_apart_and_add_up() {
        let plan =
            WirePlan::seeded(1).by_chance(500_000, Fault::delay(1)).by_chance(500_000, Fault::delay(2));
        let of = |ns| fates(&plan).iter().filter(|fate| fate.delay_ns == ns).count();
        for ns in 0..4 {
            assert!((400..600).contains(&of(ns)), "{ns}: {}", of(ns));
        }
    }

    #[test]
    fn one_packet_of_one_direction_is_met() {
        let plan = WirePlan::new().at(A, B, 1, Fault::Drop).at(B, A, 0, Fault::Mark);
        let mut faults = WireFaults::new(&plan);
        let mut next = |from, to| {
            let index = faults.count(from, to);
            faults.fate(from, to, index, 10, 0)
        };
        assert!(next(A, B).is_ordinary());
        assert!(next(B, A).marked);
        assert!(next(A, B).lost);
        assert!(next(A, B).is_ordinary());
    }
}
