//! Counts of calls that were made.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::table::Call;

/// A count for each call. Threads count without waiting for each other.
pub struct Ordinals {
    counts: [AtomicU64; Call::COUNT],
    /// Marks of the calls for which one that was counted was taken back.
    were_taken_back: [AtomicBool; Call::COUNT],
}

impl Ordinals {
    /// Creates the counts, all zero.
    pub const fn new() -> Ordinals {
        Ordinals {
            counts: [const { AtomicU64::new(0) }; Call::COUNT],
            were_taken_back: [const { AtomicBool::new(false) }; Call::COUNT],
        }
    }

    /// Counts a call, and returns its ordinal, from 1.
    #[inline]
    pub fn add(&self, call: Call) -> u64 {
        self.counts[call as usize].fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Takes back a call that was counted.
    #[inline]
    pub fn take_back(&self, call: Call) {
        let less = |count: u64| Some(count.saturating_sub(1));
        let _ = self.counts[call as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.were_taken_back[call as usize].store(true, Ordering::Relaxed);
    }

    /// Returns how often each call was counted, by name. Calls that never were are left out.
    pub fn counted(&self) -> impl Iterator<Item = (Call, u64)> {
        Call::by_name().filter_map(|call| {
            let count = self.counts[call as usize].load(Ordering::Relaxed);
            let was_counted = count > 0 || self.were_taken_back[call as usize].load(Ordering::Relaxed);
            was_counted.then_some((call, count))
        })
    }
}

impl Default for Ordinals {
    fn default() -> Ordinals {
        Ordinals::new()
    }
}

impl fmt::Debug for Ordinals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.counted()).finish()
    }
}
