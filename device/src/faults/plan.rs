//! Plans: when what happens to packets.

use std::net::IpAddr;

/// What happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// One bit of the UDP payload is flipped, counted from the first byte's least significant one, modulo the
    /// length.
    FlipBit(u64),
    /// One random bit of the UDP payload is flipped.
    FlipAnyBit,
    /// Only this many bytes of the UDP payload arrive.
    Truncate(usize),
    /// A random part of the UDP payload, at least one byte, is all that arrives.
    TruncateAnywhere,
    /// It arrives this much later than it would have, and later packets may overtake it.
    Delay {
        /// How much later.
        ns: u64,
    },
    /// It is held back until the next packet has been sent, and no longer than this. The simulated network
    /// takes it for a delay.
    Swap {
        /// How long at most.
        within_ns: u64,
    },
    /// It arrives with the ECN bits CE.
    MarkCongestion,
}

impl Fault {
    /// A number for the kind of fault: rules of different kinds draw from different generators.
    pub(super) const fn kind(self) -> u64 {
        match self {
            Fault::Drop => 1,
            Fault::Duplicate => 2,
            Fault::FlipBit(_) => 3,
            Fault::FlipAnyBit => 4,
            Fault::Truncate(_) => 5,
            Fault::TruncateAnywhere => 6,
            Fault::Delay { .. } => 7,
            Fault::Swap { .. } => 8,
            Fault::MarkCongestion => 9,
        }
    }
}

/// When a rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// To so many of a million packets, by chance.
    Chance {
        /// Parts per million.
        ppm: u32,
    },
    /// To one packet.
    Packet {
        /// The sender's address.
        from: IpAddr,
        /// The destination address, perhaps a multicast group.
        to: IpAddr,
        /// Which packet from there to here, counted from 0.
        index: u64,
    },
}

/// When what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultRule {
    /// When.
    pub trigger: Trigger,
    /// What.
    pub fault: Fault,
}

/// What goes wrong with packets. Several rules may apply to the same packet, and then all of it happens.
///
/// ```
/// use pumice_device::faults::{Fault, FaultPlan};
///
/// let plan = FaultPlan::seeded(7).by_chance(10_000, Fault::Drop).by_chance(500, Fault::Duplicate);
/// assert_eq!(plan.rules().len(), 2);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    seed: u64,
    rules: Vec<FaultRule>,
}

impl FaultPlan {
    /// Nothing goes wrong.
    pub fn new() -> FaultPlan {
        FaultPlan::default()
    }

    /// Nothing goes wrong yet; what is added by chance draws from this seed.
    pub fn seeded(seed: u64) -> FaultPlan {
        FaultPlan { seed, rules: Vec::new() }
    }

    /// Also this, to so many of a million packets.
    #[must_use]
    pub fn by_chance(self, ppm: u32, fault: Fault) -> FaultPlan {
        self.with(FaultRule { trigger: Trigger::Chance { ppm }, fault })
    }

    /// Also this, to the packet of this index (from 0) between two addresses.
    #[must_use]
    pub fn at(self, from: IpAddr, to: IpAddr, index: u64, fault: Fault) -> FaultPlan {
        self.with(FaultRule { trigger: Trigger::Packet { from, to, index }, fault })
    }

    /// Also this rule.
    #[must_use]
    pub fn with(mut self, rule: FaultRule) -> FaultPlan {
        self.rules.push(rule);
        self
    }

    /// The seed of what happens by chance.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The rules, in the order in which they were added.
    pub fn rules(&self) -> &[FaultRule] {
        &self.rules
    }

    /// Whether nothing can go wrong.
    pub fn is_empty(&self) -> bool {
        self.rules.iter().all(|rule| rule.trigger == Trigger::Chance { ppm: 0 })
    }
}

impl Extend<FaultRule> for FaultPlan {
    fn extend<I: IntoIterator<Item = FaultRule>>(&mut self, rules: I) {
        self.rules.extend(rules);
    }
}
