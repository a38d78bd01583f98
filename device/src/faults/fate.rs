//! A plan at work: what happens to each packet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Fault, FaultPlan, FaultRule, Trigger};
use crate::ground::random::Random;

/// What happens to one packet; by default, nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fate {
    /// It is lost, whatever else happens.
    pub lost: bool,
    /// It arrives twice.
    pub doubled: bool,
    /// This bit of it is flipped, modulo its length.
    pub flipped_bit: Option<u64>,
    /// Only so many bytes of it arrive.
    pub kept_bytes: Option<usize>,
    /// It comes this much later.
    pub late_ns: Option<u64>,
    /// It waits for the next packet, and no longer than this.
    pub swapped_within_ns: Option<u64>,
    /// It arrives with the ECN bits CE.
    pub marked: bool,
}

impl Fate {
    /// Whether nothing happens.
    pub fn is_ordinary(&self) -> bool {
        *self == Fate::default()
    }

    fn add(&mut self, fault: Fault, packet_bytes: usize, operand: u64) {
        match fault {
            Fault::Drop => self.lost = true,
            Fault::Duplicate => self.doubled = true,
            Fault::FlipBit(bit) => self.flipped_bit = Some(bit),
            Fault::FlipAnyBit => self.flipped_bit = Some(operand),
            Fault::Truncate(bytes) => self.kept_bytes = Some(bytes),
            Fault::TruncateAnywhere if packet_bytes > 1 => self.kept_bytes = Some(operand as usize + 1),
            Fault::TruncateAnywhere => {}
            Fault::Delay { ns } => self.late_ns = Some(self.late_ns.unwrap_or(0).saturating_add(ns)),
            Fault::Swap { within_ns } => self.swapped_within_ns = Some(within_ns),
            Fault::MarkCongestion => self.marked = true,
        }
    }
}

/// Flips a bit of a packet (taken modulo its length), then cuts the packet.
pub(crate) fn damage(packet: &mut Vec<u8>, fate: &Fate) {
    let bits = packet.len() as u64 * 8;
    if let Some(bit) = fate.flipped_bit.and_then(|bit| bit.checked_rem(bits))
        && let Some(byte) = packet.get_mut((bit / 8) as usize)
    {
        *byte ^= 1 << (bit % 8);
    }
    if let Some(kept) = fate.kept_bytes {
        packet.truncate(kept);
    }
}

/// A plan at work.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Vec<Armed>,
    /// Packets seen per source and destination address.
    counts: BTreeMap<(IpAddr, IpAddr), u64>,
}

#[derive(Debug)]
struct Armed {
    rule: FaultRule,
    random: Random,
}

impl Faults {
    pub(crate) fn new(plan: &FaultPlan) -> Faults {
        let mut faults = Faults::default();
        faults.play(plan);
        faults
    }

    /// Another plan from now on; packets are counted on.
    pub(crate) fn play(&mut self, plan: &FaultPlan) {
        let mut ordinals = BTreeMap::<u64, u64>::new();
        let arm = |rule: &FaultRule| {
            // The kind, and which one of its kind: other rules do not matter.
            let kind = rule.fault.kind();
            let ordinal = ordinals.entry(kind).or_default();
            let random = Random::new(plan.seed()).fork(kind << 32 | *ordinal);
            *ordinal += 1;
            Armed { rule: *rule, random }
        };
        self.rules = plan.rules().iter().map(arm).collect();
    }

    /// The index of the next packet between two addresses, which is counted.
    pub(crate) fn count(&mut self, from: IpAddr, to: IpAddr) -> u64 {
        let count = self.counts.entry((from, to)).or_default();
        let index = *count;
        *count += 1;
        index
    }

    /// What happens to a packet of that index; for a multicast packet, asked for each receiver.
    pub(crate) fn fate(&mut self, from: IpAddr, to: IpAddr, index: u64, packet_bytes: usize) -> Fate {
        let mut fate = Fate::default();
        for Armed { rule, random } in &mut self.rules {
            let (applies, operand) = match rule.trigger {
                Trigger::Chance { ppm } => {
                    let applies = random.chance(ppm);
                    let bound = match rule.fault {
                        Fault::TruncateAnywhere => (packet_bytes as u64).saturating_sub(1),
                        _ => packet_bytes as u64 * 8,
                    };
                    (applies, random.below(bound))
                }
                trigger => (trigger == Trigger::Packet { from, to, index }, random.next_u64()),
            };
            if applies {
                fate.add(rule.fault, packet_bytes, operand);
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

    fn fates(plan: &FaultPlan) -> Vec<Fate> {
        let mut faults = Faults::new(plan);
        (0..2_000)
            .map(|_| {
                let index = faults.count(A, B);
                faults.fate(A, B, index, 100)
            })
            .collect()
    }

    #[test]
    fn a_rule_more_changes_no_other_rules_choices() {
        let drops = FaultPlan::seeded(7).by_chance(50_000, Fault::Drop);
        let more = FaultPlan::seeded(7)
            .by_chance(300_000, Fault::Delay { ns: 1 })
            .by_chance(50_000, Fault::Drop)
            .by_chance(100_000, Fault::TruncateAnywhere)
            .at(A, B, 5, Fault::Duplicate);
        let lost = |plan: &FaultPlan| fates(plan).iter().map(|fate| fate.lost).collect::<Vec<_>>();
        assert_eq!(lost(&drops), lost(&more));
        assert_ne!(lost(&drops), lost(&FaultPlan::seeded(8).by_chance(50_000, Fault::Drop)));
        let hits = lost(&drops).iter().filter(|lost| **lost).count();
        assert!((60..140).contains(&hits), "{hits}");
    }

    #[test]
    fn rules_of_one_kind_draw_apart_and_add_up() {
        let plan = FaultPlan::seeded(1)
            .by_chance(500_000, Fault::Delay { ns: 1 })
            .by_chance(500_000, Fault::Delay { ns: 2 });
        let of = |ns| fates(&plan).iter().filter(|fate| fate.late_ns == ns).count();
        for ns in [None, Some(1), Some(2), Some(3)] {
            assert!((400..600).contains(&of(ns)), "{ns:?}: {}", of(ns));
        }
    }

    #[test]
    fn one_packet_of_one_direction_is_met() {
        let plan = FaultPlan::new().at(A, B, 1, Fault::Drop).at(B, A, 0, Fault::MarkCongestion);
        let mut faults = Faults::new(&plan);
        let mut next = |from, to| {
            let index = faults.count(from, to);
            faults.fate(from, to, index, 10)
        };
        assert!(next(A, B).is_ordinary());
        assert!(next(B, A).marked);
        assert!(next(A, B).lost);
        assert!(next(A, B).is_ordinary());
    }

    #[test]
    fn damage_flips_one_bit_and_cuts() {
        let mut packet = vec![0u8; 4];
        damage(&mut packet, &Fate { flipped_bit: Some(32 + 9), ..Fate::default() });
        assert_eq!(packet, [0, 2, 0, 0]);
        damage(&mut packet, &Fate { kept_bytes: Some(2), ..Fate::default() });
        assert_eq!(packet, [0, 2]);
        damage(&mut Vec::new(), &Fate { flipped_bit: Some(3), ..Fate::default() });
    }
}
