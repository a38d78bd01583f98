//! Where communication ids come from.

use crate::mad::CommId;

/// Chooses communication ids: the slot of the process in the top byte, a counter below it. An id comes
/// again after 2^24 others only, so a late message does not meet a new connection.
#[derive(Debug, Clone)]
pub struct IdSource {
    slot: u8,
    next: u32,
}

const COUNTER_MASK: u32 = 0x00ff_ffff;

impl IdSource {
    /// Ids that may live at once.
    pub const MAX_LIVE: usize = 1 << 23;

    /// Ids of this slot, from a place that `seed` chooses: random, so that a process does not begin
    /// with the ids of the one that had the slot before.
    pub const fn new(slot: u8, seed: u32) -> IdSource {
        IdSource { slot, next: seed & COUNTER_MASK }
    }

    /// The slot in every id.
    pub const fn slot(&self) -> u8 {
        self.slot
    }

    /// The next id that is not taken; `None` after 2^24 attempts.
    pub(super) fn next(&mut self, taken: impl Fn(CommId) -> bool) -> Option<CommId> {
        (0..=COUNTER_MASK).find_map(|_| {
            let id = CommId(u32::from(self.slot) << 24 | self.next);
            self.next = self.next.wrapping_add(1) & COUNTER_MASK;
            (id != CommId::NONE && !taken(id)).then_some(id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_carry_the_slot_wrap_and_skip_what_is_taken() {
        let mut ids = IdSource::new(7, 0xabff_fffe);
        assert_eq!(ids.next(|_| false), Some(CommId(0x07ff_fffe)));
        assert_eq!(ids.next(|_| false), Some(CommId(0x07ff_ffff)));
        assert_eq!(ids.next(|id| id.0 < 0x0700_0002), Some(CommId(0x0700_0002)));
        assert_eq!(ids.next(|_| false).map(CommId::slot), Some(7));
    }

    #[test]
    fn no_id_is_0() {
        assert_eq!(IdSource::new(0, 0).next(|_| false), Some(CommId(1)));
    }
}
