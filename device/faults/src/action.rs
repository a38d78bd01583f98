//! What a rule does to a packet, and the amounts that are left to chance.

use pumice_ground::random::Random;
use pumice_transport::event::{Departure, Side};
use pumice_transport::types::{Fate, Flips};
use pumice_transport::wire::Syndrome;

use super::incident::Incident;
use super::rejection::RejData;

/// One in a million.
pub(crate) const MILLION: u64 = 1_000_000;
/// Late packets come within this time, also if a longer one was drawn.
pub(crate) const LONGEST_DELAY_NS: u64 = 100_000_000_000;

/// What happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is lost.
    Drop,
    /// Copies leave with it.
    Duplicate {
        /// How many, at least 1.
        copies: u8,
    },
    /// It leaves later, and later packets may overtake it.
    Delay(Delay),
    /// Later packets leave before it. The simulated network takes it for a delay.
    Reorder {
        /// How many packets, at least 1.
        packets: u16,
        /// How long it waits for them at most.
        within_ns: u64,
    },
    /// Bits of it are flipped.
    Corrupt {
        /// How many, at least 1.
        bits: u16,
        /// The first one, counted from the first byte's least significant bit, modulo the length; `None`:
        /// any.
        first: Option<u64>,
        /// The payload alone is damaged, and the ICRC is made for it: no check finds the damage. Packets
        /// without payload are left alone.
        sealed: bool,
    },
    /// Only a part of it arrives.
    Truncate {
        /// So many bytes of the UDP payload; `None`: any number but 0.
        bytes: Option<u16>,
    },
    /// It arrives with the ECN bits CE.
    Mark,
    /// It does not leave; the queue pair that sends it gets this NAK or RNR NAK as if from its peer. The
    /// simulated network loses it and tells nothing.
    Refuse {
        /// What the peer would say.
        syndrome: Syndrome,
    },
    /// It leaves, and the queue pair that sends it gets a CNP as if from its peer. The simulated network does
    /// nothing.
    Notify,
    /// It is a request for a connection, which does not leave: its sender gets a REJ as if from the peer. The
    /// simulated network loses it and tells nothing.
    Reject {
        /// The reason, as REJ numbers them.
        reason: u16,
        /// What the peer says with it.
        private_data: RejData,
    },
    /// It is a request for a connection or of a service id, which does not leave: its sender gives up at
    /// once, as if no answer had come until the last time-out. The simulated network loses it and tells
    /// nothing.
    Unreachable,
    /// Before it leaves, this happens to the device: a reliable queue pair waits until all before it is
    /// acknowledged. A packet of an unreliable service leaves first. The simulated network does nothing.
    Happen(Incident),
    /// Nothing happens to it: the report says that it was there, and how long it was. The simulated network
    /// does nothing.
    Note,
    /// From this packet on, nothing passes between this device and the peers of the rule.
    Partition {
        /// For so long; `None`: for ever.
        for_ns: Option<u64>,
    },
}

/// How much later a packet leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// This much.
    Fixed {
        /// How much.
        ns: u64,
    },
    /// Each value from here to there is as likely.
    Uniform {
        /// The least.
        from_ns: u64,
        /// The most.
        to_ns: u64,
        /// How much of the value is that of the packet before, in parts per million.
        correlation_ppm: u32,
    },
    /// The normal distribution, cut at 0 and at six deviations.
    Normal {
        /// The mean.
        mean_ns: u64,
        /// The standard deviation.
        deviation_ns: u64,
        /// How much of the value is that of the packet before, in parts per million.
        correlation_ppm: u32,
    },
    /// The Pareto distribution with shape 2: mostly little more than the least, sometimes very much more.
    Pareto {
        /// The least; the mean is twice as much.
        least_ns: u64,
        /// How much of the value is that of the packet before, in parts per million.
        correlation_ppm: u32,
    },
}

/// Of the BTH and the ICRC.
pub(crate) const BARE_BYTES: u32 = 16;

/// How long a packet is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// From the BTH to the ICRC.
    pub(super) length_bytes: u32,
    pub(super) payload_bytes: u32,
}

impl Size {
    /// Of an answer to a READ the AETH does not count. Whether the packet has one depends on where the
    /// repeated request began, and so on when the requester gave up waiting.
    pub fn of(departure: &Departure<'_>) -> Size {
        let Departure { length_bytes, payload_bytes, identity, .. } = *departure;
        let answers_read = identity.side == Side::Responder && payload_bytes > 0;
        let bare_bytes = payload_bytes.next_multiple_of(4) + BARE_BYTES;
        Size { length_bytes: if answers_read { bare_bytes } else { length_bytes }, payload_bytes }
    }
}

impl Fault {
    /// What plans call it.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Fault::Drop => "drop",
            Fault::Duplicate { .. } => "duplicate",
            Fault::Delay(_) => "delay",
            Fault::Reorder { .. } => "reorder",
            Fault::Corrupt { .. } => "corrupt",
            Fault::Truncate { .. } => "truncate",
            Fault::Mark => "mark",
            Fault::Note => "note",
            Fault::Refuse { .. } | Fault::Notify => "answer",
            Fault::Happen(_) => "event",
            Fault::Reject { .. } => "reject",
            Fault::Unreachable => "unreachable",
            Fault::Partition { .. } => "partition",
        }
    }

    /// Copies: one.
    pub const DUPLICATE: Fault = Fault::Duplicate { copies: 1 };
    /// Any bit is flipped, and the ICRC shows it.
    pub const FLIP: Fault = Fault::Corrupt { bits: 1, first: None, sealed: false };
    /// Any part of the packet arrives.
    pub const CUT: Fault = Fault::Truncate { bytes: None };

    /// A fixed delay.
    pub const fn delay(ns: u64) -> Fault {
        Fault::Delay(Delay::Fixed { ns })
    }

    /// This bit is flipped, and the ICRC shows it.
    pub const fn bit(first: u64) -> Fault {
        Fault::Corrupt { bits: 1, first: Some(first), sealed: false }
    }

    /// What it does to a packet; `None`: nothing, because the packet has nothing that it could be done to.
    /// `operand` decides what is left to chance, `before` is what the packet before drew.
    pub fn fate(&self, size: Size, operand: u64, before: &mut Option<u64>) -> Option<Fate> {
        let none = Fate::default();
        Some(match *self {
            Fault::Drop | Fault::Partition { .. } => Fate::LOST,
            Fault::Duplicate { copies } => Fate { copies, ..none },
            Fault::Delay(delay) => Fate { delay_ns: delay.draw(operand, before), ..none },
            Fault::Reorder { packets, within_ns } => {
                Fate { behind_packets: packets, behind_ns: within_ns, ..none }
            }
            Fault::Corrupt { sealed: true, .. } if size.payload_bytes == 0 => return None,
            Fault::Corrupt { bits, first, sealed } => {
                let bytes = if sealed { size.payload_bytes } else { size.length_bytes };
                let any = scale(operand, u64::from(bytes) * 8);
                Fate { flips: Some(Flips { count: bits, first: first.unwrap_or(any), sealed }), ..none }
            }
            Fault::Truncate { bytes: Some(bytes) } if u32::from(bytes) >= size.length_bytes => return None,
            Fault::Truncate { bytes: Some(bytes) } => Fate { kept_bytes: Some(bytes), ..none },
            Fault::Truncate { bytes: None } if size.length_bytes < 2 => return None,
            Fault::Truncate { bytes: None } => {
                let any = scale(operand, u64::from(size.length_bytes) - 1) + 1;
                Fate { kept_bytes: Some(u16::try_from(any).unwrap_or(u16::MAX)), ..none }
            }
            Fault::Mark => Fate { marked: true, ..none },
            Fault::Note => none,
            Fault::Refuse { syndrome } => Fate { refused: Some(syndrome), ..Fate::LOST },
            Fault::Notify => Fate { notified: true, ..none },
            Fault::Reject { reason, .. } => Fate { rejected: Some(reason), ..Fate::LOST },
            Fault::Unreachable => Fate { unanswered: true, ..Fate::LOST },
            Fault::Happen(_) => Fate { halted: true, ..Fate::LOST },
        })
    }
}

/// A number that stands to `bound` as `operand` stands to 2^64.
pub(crate) fn scale(operand: u64, bound: u64) -> u64 {
    ((u128::from(operand) * u128::from(bound)) >> 64) as u64
}

impl Delay {
    /// How much of a value is that of the packet before, in parts per million.
    pub const fn correlation_ppm(&self) -> u32 {
        match self {
            Delay::Fixed { .. } => 0,
            Delay::Uniform { correlation_ppm, .. }
            | Delay::Normal { correlation_ppm, .. }
            | Delay::Pareto { correlation_ppm, .. } => *correlation_ppm,
        }
    }

    /// Whether it can only be 0.
    pub(super) const fn is_none(&self) -> bool {
        match *self {
            Delay::Fixed { ns } => ns == 0,
            Delay::Uniform { from_ns, to_ns, .. } => from_ns == 0 && to_ns == 0,
            Delay::Normal { mean_ns, deviation_ns, .. } => mean_ns == 0 && deviation_ns == 0,
            Delay::Pareto { least_ns, .. } => least_ns == 0,
        }
    }

    /// Integers only, and the square root that IEEE 754 defines to the last bit: the same on every machine.
    pub fn draw(&self, operand: u64, before: &mut Option<u64>) -> u64 {
        let fresh = match *self {
            Delay::Fixed { ns } => ns,
            Delay::Uniform { from_ns, to_ns, .. } => {
                let width = to_ns.saturating_sub(from_ns).saturating_add(1);
                from_ns.saturating_add(scale(operand, width))
            }
            Delay::Normal { mean_ns, deviation_ns, .. } => {
                // The sum of twelve uniform numbers has variance 1 and mean 6.
                let mut random = Random::new(operand);
                let sum: u64 = (0..12).map(|_| random.below(MILLION)).sum();
                let spread = u128::from(deviation_ns) * u128::from(sum) / u128::from(MILLION);
                let above = mean_ns.saturating_add(u64::try_from(spread).unwrap_or(u64::MAX));
                above.saturating_sub(deviation_ns.saturating_mul(6))
            }
            Delay::Pareto { least_ns, .. } => {
                let uniform = (((operand >> 11) + 1) as f64) / ((1_u64 << 53) as f64);
                (least_ns as f64 / uniform.sqrt()) as u64
            }
        };
        let old = u128::from(self.correlation_ppm().min(MILLION as u32));
        let mixed = match *before {
            Some(before) if old > 0 => {
                let weighed = u128::from(before) * old + u128::from(fresh) * (u128::from(MILLION) - old);
                u64::try_from(weighed / u128::from(MILLION)).unwrap_or(u64::MAX)
            }
            _ => fresh,
        };
        let drawn = mixed.min(LONGEST_DELAY_NS);
        *before = Some(drawn);
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { length_bytes: 100, payload_bytes: 60 };

    fn draws(delay: Delay) -> Vec<u64> {
        let (mut random, mut before) = (Random::new(3), None);
        (0..20_000).map(|_| delay.draw(random.next_u64(), &mut before)).collect()
    }

    fn mean(values: &[u64]) -> u64 {
        values.iter().sum::<u64>() / values.len() as u64
    }

    #[test]
    fn delays_have_their_distributions() {
        let uniform = draws(Delay::Uniform { from_ns: 100, to_ns: 300, correlation_ppm: 0 });
        assert!(uniform.iter().all(|ns| (100..=300).contains(ns)) && (198..202).contains(&mean(&uniform)));
        let normal = draws(Delay::Normal { mean_ns: 10_000, deviation_ns: 1_000, correlation_ppm: 0 });
        let near = normal.iter().filter(|ns| (9_000..11_000).contains(*ns)).count();
        assert!((13_000..14_300).contains(&near) && (9_950..10_050).contains(&mean(&normal)), "{near}");
        let pareto = draws(Delay::Pareto { least_ns: 1_000, correlation_ppm: 0 });
        let long = pareto.iter().filter(|ns| **ns > 10_000).count();
        assert!(pareto.iter().all(|ns| *ns >= 1_000) && (150..250).contains(&long), "{long}");
        let correlated = draws(Delay::Uniform { from_ns: 0, to_ns: 1_000, correlation_ppm: 900_000 });
        let steps: Vec<u64> = correlated.windows(2).map(|pair| pair[0].abs_diff(pair[1])).collect();
        assert!(mean(&steps) < 50, "{}", mean(&steps));
    }

    #[test]
    fn amounts_stay_within_the_packet() {
        for operand in [0, u64::MAX / 2, u64::MAX] {
            let fate = |fault: Fault| fault.fate(SIZE, operand, &mut None).unwrap();
            assert!((1..100).contains(&fate(Fault::CUT).kept_bytes.unwrap()));
            assert!(fate(Fault::FLIP).flips.unwrap().first < 800);
            let sealed = Fault::Corrupt { bits: 2, first: None, sealed: true };
            assert!(fate(sealed).flips.unwrap().first < 480);
        }
        let bare = Size { length_bytes: 20, payload_bytes: 0 };
        let silent = Fault::Corrupt { bits: 1, first: None, sealed: true };
        assert_eq!(silent.fate(bare, 0, &mut None), None);
        assert_eq!(Fault::Truncate { bytes: Some(20) }.fate(bare, 0, &mut None), None);
    }
}
