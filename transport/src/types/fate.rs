//! Fates of packets: faults that a fault plan injects on their way.

use crate::wire::Syndrome;

/// Faults injected into one packet after it was made; by default none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fate {
    /// True if the packet is lost, even if other fields are set.
    pub lost: bool,
    /// True if the packet arrives with the ECN bits CE.
    pub marked: bool,
    /// Number of copies that leave with the packet.
    pub copies: u8,
    /// Number of later packets that leave before it.
    pub behind_packets: u16,
    /// Longest time that it waits for those packets, in nanoseconds.
    pub behind_ns: u64,
    /// Delay of the packet in nanoseconds; later packets may overtake it.
    pub delay_ns: u64,
    /// Bits of the packet that are flipped.
    pub flips: Option<Flips>,
    /// Number of bytes of the packet that are sent; `None` for all.
    pub kept_bytes: Option<u16>,
    /// DSCP with which the packet arrives, as after a switch that trims; `None` for its own.
    pub dscp: Option<u8>,
    /// Mark of the path, from 0 to 3, with which a SACK of MRC arrives; `None` for its own.
    pub path_mark: Option<u8>,
    /// NAK or RNR NAK that the sending queue pair gets in the peer's name. It is used together with `lost`.
    pub refused: Option<Syndrome>,
    /// True if the sending queue pair gets a congestion notification in the peer's name.
    pub notified: bool,
    /// True if a fault of the device comes before the packet. The queue pair sends no packet from here on,
    /// until all before it are acknowledged and the host has let it continue. It is used together with
    /// `lost`: the packet is sent again.
    pub halted: bool,
    /// Number that only the host understands, for captures; 0 for none.
    pub note: u32,
    /// Reason for which a request for a connection, this packet, is rejected in the peer's name. It is used
    /// together with `lost`.
    pub rejected: Option<u16>,
    /// True if the packet is a request for a connection or of a service id whose sender gives up at once, as
    /// after the last timeout. It is used together with `lost`.
    pub unanswered: bool,
}

/// Bits that are flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flips {
    /// Number of bits, at least 1.
    pub count: u16,
    /// Index of the first bit, counted from the first byte's least significant bit, modulo the length of what
    /// may be flipped. The others follow from it.
    pub first: u64,
    /// True if only the payload is damaged, and the ICRC is made for the damaged payload, so that no check
    /// finds it.
    pub sealed: bool,
}

impl Fate {
    /// The fate of a lost packet.
    pub const LOST: Fate = Fate {
        lost: true,
        marked: false,
        copies: 0,
        behind_packets: 0,
        behind_ns: 0,
        delay_ns: 0,
        flips: None,
        kept_bytes: None,
        dscp: None,
        path_mark: None,
        refused: None,
        notified: false,
        halted: false,
        note: 0,
        rejected: None,
        unanswered: false,
    };

    /// Reports whether no fault is injected.
    #[inline]
    pub fn is_ordinary(&self) -> bool {
        *self == Fate::default()
    }

    /// Reports whether the packet reaches its receiver in a form that the receiver accepts.
    pub fn arrives(&self) -> bool {
        !self.lost && self.kept_bytes.is_none() && self.flips.is_none_or(|flips| flips.sealed)
    }

    /// Joins two fates: both happen.
    #[must_use]
    pub fn and(self, other: Fate) -> Fate {
        Fate {
            lost: self.lost || other.lost,
            marked: self.marked || other.marked,
            copies: self.copies.saturating_add(other.copies),
            behind_packets: self.behind_packets.max(other.behind_packets),
            behind_ns: self.behind_ns.max(other.behind_ns),
            delay_ns: self.delay_ns.saturating_add(other.delay_ns),
            // A broken ICRC is visible, so it takes precedence.
            flips: match (self.flips, other.flips) {
                (Some(one), Some(two)) => Some(if two.sealed { one } else { two }),
                (one, two) => one.or(two),
            },
            kept_bytes: match (self.kept_bytes, other.kept_bytes) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            },
            dscp: self.dscp.or(other.dscp),
            path_mark: self.path_mark.or(other.path_mark),
            refused: self.refused.or(other.refused),
            notified: self.notified || other.notified,
            halted: self.halted || other.halted,
            note: if self.note == 0 { other.note } else { self.note },
            rejected: self.rejected.or(other.rejected),
            unanswered: self.unanswered || other.unanswered,
        }
    }

    /// Returns the part of the fate that concerns the packet alone, without effects on its sender.
    #[must_use]
    pub fn of_packet(self) -> Fate {
        Fate { refused: None, notified: false, halted: false, rejected: None, unanswered: false, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_fates_are_one_in_which_both_happen() {
        let flips = |sealed| Some(Flips { count: 1, first: 7, sealed });
        let one = Fate { delay_ns: 5, copies: 1, flips: flips(true), ..Fate::default() };
        let two =
            Fate { delay_ns: 6, kept_bytes: Some(9), flips: flips(false), marked: true, ..Fate::default() };
        let both = Fate { delay_ns: 11, copies: 1, ..two };
        assert_eq!((one.and(two), two.and(one)), (both, both));
        assert_eq!(one.and(Fate::default()), one);
        assert!(Fate::default().is_ordinary() && !one.is_ordinary());
    }

    #[test]
    fn what_breaks_the_icrc_does_not_arrive() {
        let flips = |sealed| Fate { flips: Some(Flips { count: 1, first: 0, sealed }), ..Fate::default() };
        assert!(Fate::default().arrives() && flips(true).arrives());
        let cut = Fate { kept_bytes: Some(20), ..Fate::default() };
        assert!(!Fate::LOST.arrives() && !flips(false).arrives() && !cut.arrives());
    }
}
