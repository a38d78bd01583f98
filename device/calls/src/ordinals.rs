//! Counts of calls that were made, and calls that a fault plan can make fail.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::errnos::Errnos;
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

/// A call that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallInfo {
    /// Name of the call.
    pub name: &'static str,
    /// Name of its manual page in section 3; empty if rdma-core 44 has none.
    pub page: &'static str,
    /// Errnos with which it can fail.
    pub errnos: Errnos,
}

impl CallInfo {
    /// Returns the call of this name.
    pub fn of(name: &str) -> Option<&'static CallInfo> {
        let position = CALLS.binary_search_by(|info| info.name.cmp(name)).ok()?;
        CALLS.get(position)
    }

    /// Returns the errnos with which it can fail; the first is the default.
    pub const fn errnos(&self) -> &'static [i32] {
        self.errnos.all()
    }

    /// Returns the [`Call`] of this name.
    pub fn call(&self) -> Option<Call> {
        Call::of(self.name)
    }
}

const COUNT: usize = {
    let (mut count, mut index) = (0, 0);
    while index < Call::COUNT {
        if Call::nth(index).errnos().is_some() {
            count += 1;
        }
        index += 1;
    }
    count
};

const LIST: [CallInfo; COUNT] = {
    let mut list = [CallInfo { name: "", page: "", errnos: Errnos::Usual(&[]) }; COUNT];
    let (mut count, mut index) = (0, 0);
    while index < Call::COUNT {
        let row = Call::nth(index).row();
        if let Some(errnos) = row.errnos {
            list[count] = CallInfo { name: row.name, page: row.page, errnos };
            count += 1;
        }
        index += 1;
    }
    list
};

/// All calls that can fail, by name.
pub const CALLS: &[CallInfo] = &LIST;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_each_call_fails_with_something() {
        assert!(CALLS.is_sorted_by(|one, next| one.name < next.name));
        for info in CALLS {
            assert_eq!(CallInfo::of(info.name), Some(info));
            assert!(!info.errnos().is_empty());
        }
        assert_eq!(CallInfo::of("ibv_wc_status_str"), None);
        assert_eq!(
            CallInfo::of("ibv_close_xrc_domain").and_then(CallInfo::call),
            Some(Call::ibv_close_xrc_domain)
        );
    }
}
