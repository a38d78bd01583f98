//! What becomes of a packet on its way, if a fault plan says so.

use crate::wire::Syndrome;

/// What happens to one packet after it was made; by default, nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fate {
    /// It is lost, also if other fields are set.
    pub lost: bool,
    /// It arrives with the ECN bits CE.
    pub marked: bool,
    /// Copies that leave with it.
    pub copies: u8,
    /// So many later packets leave before it.
    pub behind_packets: u16,
    /// It waits no longer than this for those packets.
    pub behind_ns: u64,
    /// It leaves this much later than it would have, and later packets may overtake it.
    pub delay_ns: u64,
    /// Bits of it are flipped.
    pub flips: Option<Flips>,
    /// Only so many of its bytes are sent.
    pub kept_bytes: Option<u16>,
    /// The queue pair that sends it is answered in the peer's name by this NAK or RNR NAK. It goes with
    /// `lost`.
    pub refused: Option<Syndrome>,
    /// The queue pair that sends it is told in the peer's name that the path is congested.
    pub notified: bool,
    /// Something happens to the device before it leaves. The queue pair sends nothing from here on, until all
    /// before is acknowledged and the host has let it go on. It goes with `lost`: the packet is sent again.
    pub halted: bool,
    /// What captures say about it: a number that only the host understands. 0: nothing.
    pub note: u32,
    /// It is a request for a connection, which is rejected in the peer's name for this reason. It goes with
    /// `lost`.
    pub rejected: Option<u16>,
    /// It is a request for a connection or of a service id, and its sender gives up at once, as after the
    /// last time-out. It goes with `lost`.
    pub unanswered: bool,
}

/// Bits that are flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flips {
    /// How many, at least 1.
    pub count: u16,
    /// The first one, counted from the first byte's least significant bit, modulo the length of what may be
    /// flipped. The others follow from it.
    pub first: u64,
    /// The payload alone is damaged, and the ICRC is made for the damaged payload: no check finds it.
    pub sealed: bool,
}

impl Fate {
    /// The packet is lost.
    pub const LOST: Fate = Fate {
        lost: true,
        marked: false,
        copies: 0,
        behind_packets: 0,
        behind_ns: 0,
        delay_ns: 0,
        flips: None,
        kept_bytes: None,
        refused: None,
        notified: false,
        halted: false,
        note: 0,
        rejected: None,
        unanswered: false,
    };

    /// Whether nothing happens.
    #[inline]
    pub fn is_ordinary(&self) -> bool {
        *self == Fate::default()
    }

    /// Whether the packet reaches its receiver in a form that the receiver accepts.
    pub fn arrives(&self) -> bool {
        !self.lost && self.kept_bytes.is_none() && self.flips.is_none_or(|flips| flips.sealed)
    }

    /// Both happen.
    #[must_use]
    pub fn and(self, other: Fate) -> Fate {
        Fate {
            lost: self.lost || other.lost,
            marked: self.marked || other.marked,
            copies: self.copies.saturating_add(other.copies),
            behind_packets: self.behind_packets.max(other.behind_packets),
            behind_ns: self.behind_ns.max(other.behind_ns),
            delay_ns: self.delay_ns.saturating_add(other.delay_ns),
            // A broken ICRC shows; so it wins.
            flips: match (self.flips, other.flips) {
                (Some(one), Some(two)) => Some(if two.sealed { one } else { two }),
                (one, two) => one.or(two),
            },
            kept_bytes: match (self.kept_bytes, other.kept_bytes) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            },
            refused: self.refused.or(other.refused),
            notified: self.notified || other.notified,
            halted: self.halted || other.halted,
            note: if self.note == 0 { other.note } else { self.note },
            rejected: self.rejected.or(other.rejected),
            unanswered: self.unanswered || other.unanswered,
        }
    }

    /// What happens to the packet alone: its sender is not told anything.
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
