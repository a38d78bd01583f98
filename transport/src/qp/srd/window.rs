//! The set of a message's parts that have arrived: all below a number, and some of the 64 from there on.

/// Largest number of outstanding parts from the first missing one on.
pub(crate) const WINDOW_PARTS: u32 = 64;

/// Largest number of messages that a sender may have outstanding, counted from the oldest one that has not
/// ended.
pub(crate) const SPAN: u64 = 1024;

/// The parts of one message that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PartSet {
    /// First part that has not arrived.
    pub(crate) first_missing: u32,
    /// Bits of the parts from there on that have arrived; bit 0 is never set.
    pub(crate) beyond: u64,
}

impl PartSet {
    /// Reports whether a part may arrive now: it has not arrived before, and is not too far ahead.
    pub(crate) fn awaits(&self, part: u32) -> bool {
        let ahead = part.checked_sub(self.first_missing);
        ahead.is_some_and(|ahead| ahead < WINDOW_PARTS && self.beyond >> ahead & 1 == 0)
    }

    /// Adds a part, for which [`PartSet::awaits`] returned true.
    pub(crate) fn add(&mut self, part: u32) {
        if let Some(ahead) = part.checked_sub(self.first_missing).filter(|ahead| *ahead < WINDOW_PARTS) {
            self.beyond |= 1 << ahead;
            let run = self.beyond.trailing_ones();
            self.beyond = self.beyond.checked_shr(run).unwrap_or(0);
            self.first_missing += run;
        }
    }

    /// Adds the parts that another side says have arrived; removes none. Returns true if that is news.
    pub(crate) fn merge(&mut self, other: PartSet, parts: u32) -> bool {
        let before = *self;
        let other_first = other.first_missing.min(parts);
        if other_first > self.first_missing {
            self.beyond = self.beyond.checked_shr(other_first - self.first_missing).unwrap_or(0);
            self.first_missing = other_first;
        }
        for ahead in 0..WINDOW_PARTS {
            let part = other_first.saturating_add(ahead);
            if other.beyond >> ahead & 1 != 0 && part < parts && self.awaits(part) {
                self.add(part);
            }
        }
        // The shift has brought more parts to the beginning.
        let run = self.beyond.trailing_ones();
        self.beyond = self.beyond.checked_shr(run).unwrap_or(0);
        self.first_missing = (self.first_missing + run).min(parts);
        *self != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_any_order_come_to_the_same() {
        for rotation in 0..10 {
            let mut parts = PartSet::default();
            for index in 0..10 {
                let part = (index + rotation) % 10;
                assert!(parts.awaits(part));
                parts.add(part);
                assert!(!parts.awaits(part));
            }
            assert_eq!(parts, PartSet { first_missing: 10, beyond: 0 });
        }
        let mut parts = PartSet::default();
        assert!(parts.awaits(63) && !parts.awaits(64));
        for part in (0..64).rev() {
            parts.add(part);
        }
        assert_eq!(parts, PartSet { first_missing: 64, beyond: 0 });
    }

    #[test]
    fn what_another_side_says_is_added_and_never_taken_away() {
        let mut parts = PartSet::default();
        parts.add(2);
        assert!(parts.merge(PartSet { first_missing: 1, beyond: 0b100 }, 10));
        assert_eq!(parts, PartSet { first_missing: 1, beyond: 0b110 });
        assert!(!parts.merge(PartSet { first_missing: 0, beyond: 0b100 }, 10));
        assert!(parts.merge(PartSet { first_missing: 2, beyond: 0 }, 10));
        assert_eq!(parts, PartSet { first_missing: 4, beyond: 0 });
        // Parts beyond the end are ignored.
        assert!(parts.merge(PartSet { first_missing: u32::MAX, beyond: u64::MAX }, 10));
        assert_eq!(parts, PartSet { first_missing: 10, beyond: 0 });
    }
}
