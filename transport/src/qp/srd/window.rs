//! Which parts of a message have arrived: all below a number, and some of the 64 from there on.

/// Parts that may be under way beyond the first one that is missing.
pub(crate) const WINDOW_PARTS: u32 = 64;

/// Messages from the oldest one that has not ended on, which a sender may have under way.
pub(crate) const SPAN: u64 = 1024;

/// The parts of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Parts {
    /// All before have arrived.
    pub(crate) first_missing: u32,
    /// Those from there on that have: bit 0 is never set.
    pub(crate) beyond: u64,
}

impl Parts {
    /// Whether a part may arrive now: it has not, and is not too far ahead.
    pub(crate) fn awaits(&self, part: u32) -> bool {
        let ahead = part.checked_sub(self.first_missing);
        ahead.is_some_and(|ahead| ahead < WINDOW_PARTS && self.beyond >> ahead & 1 == 0)
    }

    /// A part has arrived, which [`Parts::awaits`] was asked for.
    pub(crate) fn add(&mut self, part: u32) {
        if let Some(ahead) = part.checked_sub(self.first_missing).filter(|ahead| *ahead < WINDOW_PARTS) {
            self.beyond |= 1 << ahead;
            let run = self.beyond.trailing_ones();
            self.beyond = self.beyond.checked_shr(run).unwrap_or(0);
            self.first_missing += run;
        }
    }

    /// Everything of what another side says has arrived. Nothing that has arrived is forgotten. True if that
    /// is news.
    pub(crate) fn merge(&mut self, other: Parts, parts: u32) -> bool {
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
        // What the shift has left at the beginning.
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
            let mut parts = Parts::default();
            for index in 0..10 {
                let part = (index + rotation) % 10;
                assert!(parts.awaits(part));
                parts.add(part);
                assert!(!parts.awaits(part));
            }
            assert_eq!(parts, Parts { first_missing: 10, beyond: 0 });
        }
        let mut parts = Parts::default();
        assert!(parts.awaits(63) && !parts.awaits(64));
        for part in (0..64).rev() {
            parts.add(part);
        }
        assert_eq!(parts, Parts { first_missing: 64, beyond: 0 });
    }

    #[test]
    fn what_another_side_says_is_added_and_never_taken_away() {
        let mut parts = Parts::default();
        parts.add(2);
        assert!(parts.merge(Parts { first_missing: 1, beyond: 0b100 }, 10));
        assert_eq!(parts, Parts { first_missing: 1, beyond: 0b110 });
        assert!(!parts.merge(Parts { first_missing: 0, beyond: 0b100 }, 10));
        assert!(parts.merge(Parts { first_missing: 2, beyond: 0 }, 10));
        assert_eq!(parts, Parts { first_missing: 4, beyond: 0 });
        // Beyond the end is nothing.
        assert!(parts.merge(Parts { first_missing: u32::MAX, beyond: u64::MAX }, 10));
        assert_eq!(parts, Parts { first_missing: 10, beyond: 0 });
    }
}
