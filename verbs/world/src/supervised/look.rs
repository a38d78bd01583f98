//! Whether a thread looks for something, in a world of exact time.

/// Number of times that a parked thread looks on each occasion: the second look finds what the first looks of
/// other threads have changed.
const MAX_LOOKS: u32 = 2;

/// The state of a thread that may look for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// The thread does something else.
    Active,
    /// The thread has looked in vain, and looks again later.
    Parked(Parked),
    /// The thread looks again.
    Looking(Parked),
}

/// A thread that has looked in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parked {
    /// Time at which what it looks for can be there, in ns of the world.
    pub(crate) until_ns: u64,
    /// Occasion at which it last looked.
    pub(crate) turn: u64,
    /// Number of looks at that occasion.
    pub(crate) looks: u32,
}

impl Parked {
    /// Reports whether the thread looks at this occasion.
    pub(crate) const fn looks_at(&self, turn: u64) -> bool {
        self.turn != turn || self.looks < MAX_LOOKS
    }

    pub(crate) const fn looked_at(self, turn: u64) -> Parked {
        let looks = if self.turn == turn { self.looks + 1 } else { 1 };
        Parked { turn, looks, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parked_thread_looks_twice_on_each_occasion() {
        let parked = Parked { until_ns: 9, turn: 3, looks: 1 };
        assert!(parked.looks_at(3) && parked.looks_at(4));
        let again = parked.looked_at(3);
        assert!(!again.looks_at(3) && again.looks_at(4));
        assert_eq!(again.looked_at(4), Parked { until_ns: 9, turn: 4, looks: 1 });
    }
}
