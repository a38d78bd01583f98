//! What a rule does to a packet: the kinds of faults, and the amounts that are drawn at random.

use pumice_model::fates::fired::RejData;
use pumice_platform::clock::Random;
use pumice_transport::event::{OutgoingPacket, PacketSide};
use pumice_transport::mrc::constants::DEFAULT_DSCPS;
use pumice_transport::types::{Fate, Flips};
use pumice_transport::wire::Syndrome;

use pumice_model::fates::incident::Incident;

/// The number of parts in a whole, for shares in parts per million.
pub(crate) const MILLION: u64 = 1_000_000;
/// Number of bytes that a switch that trims leaves of a packet of MRC: BTH, METH and TSETH.
const TRIMMED_BYTES: u16 = 20;
/// The longest delay of a packet, in ns; longer drawn values are cut to it.
pub(crate) const LONGEST_DELAY_NS: u64 = 100_000_000_000;

/// A fault: what a rule does to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The packet is lost.
    Drop,
    /// Copies of the packet leave with it.
    Duplicate {
        /// Number of copies, at least 1.
        copies: u8,
    },
    /// The packet leaves later, and later packets may overtake it.
    Delay(Delay),
    /// Later packets leave before this one. The simulated network treats this as a delay.
    Reorder {
        /// Number of packets that overtake this one, at least 1.
        packets: u16,
        /// The longest time that the packet waits for them, in ns.
        within_ns: u64,
    },
    /// Bits of the packet are flipped.
    Corrupt {
        /// Number of bits to flip, at least 1.
        bits: u16,
        /// Index of the first bit, counted from the first byte's least significant bit, modulo the length;
        /// `None`: any bit.
        first: Option<u64>,
        /// True if only the payload is damaged, and the ICRC is computed over the damaged payload, so that no
        /// check finds the damage. Packets without payload are left alone.
        sealed: bool,
    },
    /// The packet is cut: its beginning alone arrives.
    Truncate {
        /// Number of bytes of the UDP payload that arrive; `None`: any number but 0.
        bytes: Option<u16>,
    },
    /// The packet arrives with the ECN bits CE.
    Mark,
    /// A switch trims the packet: its headers alone arrive, with a DSCP that says so. Packets without payload
    /// are left alone.
    Trim {
        /// True if the switch of the last hop trims it.
        last_hop: bool,
    },
    /// A SACK of MRC arrives with another mark of the path that it is about. Other packets are as they were.
    Reflect {
        /// The mark: 0 none, 1 skip once, 2 always skip.
        mark: u8,
    },
    /// The packet does not leave; the queue pair that sends it gets this NAK or RNR NAK as if from its peer.
    /// The simulated network loses the packet and sends no answer.
    Refuse {
        /// The syndrome of the answer in the peer's name.
        syndrome: Syndrome,
    },
    /// The packet leaves, and the queue pair that sends it gets a CNP as if from its peer. The simulated
    /// network does nothing.
    Notify,
    /// The packet is a connection request that does not leave: its sender gets a REJ as if from the peer. The
    /// simulated network loses the packet and sends no answer.
    Reject {
        /// The reason code of the REJ.
        reason: u16,
        /// The private data of the REJ.
        private_data: RejData,
    },
    /// The packet is a connection request or a request for a service ID, and does not leave: its sender gives
    /// up at once, as if no answer had come until the last time-out. The simulated network loses the packet
    /// and sends no answer.
    Unreachable,
    /// The device suffers this incident before the packet leaves: a reliable queue pair waits until
    /// everything before the packet is acknowledged. A packet of an unreliable service leaves first. The
    /// simulated network does nothing.
    Happen(Incident),
    /// The packet is only noted: the report says that it was sent, and its length. The simulated network does
    /// nothing.
    Note,
    /// A partition begins with this packet: nothing passes between this device and the peers of the rule.
    Partition {
        /// Duration of the partition, in ns; `None`: without end.
        for_ns: Option<u64>,
    },
}

/// A delay of a packet: a fixed time, or a distribution to draw it from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// Every packet is delayed by the same time.
    Fixed {
        /// The delay, in ns.
        ns: u64,
    },
    /// The delay is drawn from a uniform distribution.
    Uniform {
        /// The shortest delay, in ns.
        from_ns: u64,
        /// The longest delay, in ns.
        to_ns: u64,
        /// Weight of the previous packet's delay in this one, in parts per million.
        correlation_ppm: u32,
    },
    /// The delay is drawn from a normal distribution, cut at 0 and at six standard deviations.
    Normal {
        /// The mean, in ns.
        mean_ns: u64,
        /// The standard deviation, in ns.
        deviation_ns: u64,
        /// Weight of the previous packet's delay in this one, in parts per million.
        correlation_ppm: u32,
    },
    /// The delay is drawn from a Pareto distribution with shape 2: mostly little more than the shortest
    /// delay, sometimes very much more.
    Pareto {
        /// The shortest delay, in ns; the mean is twice as much.
        least_ns: u64,
        /// Weight of the previous packet's delay in this one, in parts per million.
        correlation_ppm: u32,
    },
}

/// The length of a BTH and an ICRC, in bytes.
pub(crate) const BARE_BYTES: u32 = 16;

/// The length of a packet and of its payload, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Length from the BTH to the ICRC.
    pub(super) length_bytes: u32,
    pub(super) payload_bytes: u32,
}

impl Size {
    /// Returns the size of a packet that is about to leave. The AETH of a READ response is not counted:
    /// whether the packet has one depends on where the repeated request began, and so on when the requester
    /// gave up waiting.
    pub fn of(departure: &OutgoingPacket<'_>) -> Size {
        let OutgoingPacket { length_bytes, payload_bytes, identity, .. } = *departure;
        let answers_read = identity.side == PacketSide::Responder && payload_bytes > 0;
        let bare_bytes = payload_bytes.next_multiple_of(4) + BARE_BYTES;
        Size { length_bytes: if answers_read { bare_bytes } else { length_bytes }, payload_bytes }
    }
}

impl Fault {
    /// Returns the name of this kind of fault in plans.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Fault::Drop => "drop",
            Fault::Duplicate { .. } => "duplicate",
            Fault::Delay(_) => "delay",
            Fault::Reorder { .. } => "reorder",
            Fault::Corrupt { .. } => "corrupt",
            Fault::Truncate { .. } => "truncate",
            Fault::Mark => "mark",
            Fault::Trim { .. } => "trim",
            Fault::Reflect { .. } => "reflect",
            Fault::Note => "note",
            Fault::Refuse { .. } | Fault::Notify => "answer",
            Fault::Happen(_) => "event",
            Fault::Reject { .. } => "reject",
            Fault::Unreachable => "unreachable",
            Fault::Partition { .. } => "partition",
        }
    }

    const fn is_trim(&self) -> bool {
        matches!(self, Fault::Trim { .. })
    }

    /// A fault that sends one copy of the packet with it.
    pub const DUPLICATE: Fault = Fault::Duplicate { copies: 1 };
    /// A fault that flips any one bit of the packet; the ICRC shows the damage.
    pub const FLIP: Fault = Fault::Corrupt { bits: 1, first: None, sealed: false };
    /// A fault that cuts the packet at any length.
    pub const CUT: Fault = Fault::Truncate { bytes: None };

    /// Returns a fault that delays packets by a fixed time.
    pub const fn delay(ns: u64) -> Fault {
        Fault::Delay(Delay::Fixed { ns })
    }

    /// Returns a fault that flips this bit of the packet; the ICRC shows the damage.
    pub const fn bit(first: u64) -> Fault {
        Fault::Corrupt { bits: 1, first: Some(first), sealed: false }
    }

    /// Returns what the fault does to a packet; `None` if the packet has nothing that the fault could change.
    /// `operand` decides what is drawn at random, `before` is what was drawn for the previous packet.
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
            Fault::Trim { .. } | Fault::Reflect { .. } if (size.payload_bytes == 0) == self.is_trim() => {
                return None;
            }
            Fault::Trim { last_hop } => {
                let dscp = if last_hop { DEFAULT_DSCPS.trimmed_last_hop } else { DEFAULT_DSCPS.trimmed };
                Fate { kept_bytes: Some(TRIMMED_BYTES), dscp: Some(dscp), ..none }
            }
            Fault::Reflect { mark } => Fate { path_mark: Some(mark), ..none },
            Fault::Note => none,
            Fault::Refuse { syndrome } => Fate { refused: Some(syndrome), ..Fate::LOST },
            Fault::Notify => Fate { notified: true, ..none },
            Fault::Reject { reason, .. } => Fate { rejected: Some(reason), ..Fate::LOST },
            Fault::Unreachable => Fate { unanswered: true, ..Fate::LOST },
            Fault::Happen(_) => Fate { halted: true, ..Fate::LOST },
        })
    }
}

/// Scales `operand` from the range of `u64` down to the range below `bound`.
pub(crate) fn scale(operand: u64, bound: u64) -> u64 {
    ((u128::from(operand) * u128::from(bound)) >> 64) as u64
}

impl Delay {
    /// Returns the weight of the previous packet's delay in this one, in parts per million.
    pub const fn correlation_ppm(&self) -> u32 {
        match self {
            Delay::Fixed { .. } => 0,
            Delay::Uniform { correlation_ppm, .. }
            | Delay::Normal { correlation_ppm, .. }
            | Delay::Pareto { correlation_ppm, .. } => *correlation_ppm,
        }
    }

    /// Reports whether the delay can only be 0.
    pub(super) const fn is_none(&self) -> bool {
        match *self {
            Delay::Fixed { ns } => ns == 0,
            Delay::Uniform { from_ns, to_ns, .. } => from_ns == 0 && to_ns == 0,
            Delay::Normal { mean_ns, deviation_ns, .. } => mean_ns == 0 && deviation_ns == 0,
            Delay::Pareto { least_ns, .. } => least_ns == 0,
        }
    }

    /// Draws a delay, in ns. The computation uses integers, and the square root that IEEE 754 defines to the
    /// last bit, so that it gives the same result on every machine.
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
