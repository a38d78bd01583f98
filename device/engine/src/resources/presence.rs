//! The presence of the device, which a fault plan can unplug or move to other addresses.

use std::sync::atomic::{AtomicU64, Ordering};

/// The presence of the device. What was opened before it left stays dead, also when it is back.
#[derive(Debug, Default)]
pub struct Presence {
    /// The time at which the device is back, in ns of its clock, plus one; 0: it has not left.
    back: AtomicU64,
    /// Number of times that the network's addresses were led to another adapter.
    address_changes: AtomicU64,
}

impl Presence {
    /// Records that the device leaves, and is back at this time; `u64::MAX`: never. Returns false if it had
    /// left already.
    pub(crate) fn leave(&self, back_ns: u64) -> bool {
        let back = back_ns.saturating_add(1);
        self.back.compare_exchange(0, back, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(crate) fn change_address(&self) {
        self.address_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns how often a fault plan has led the network's addresses to another adapter.
    pub fn address_changes(&self) -> u64 {
        self.address_changes.load(Ordering::Acquire)
    }

    /// Returns when the device is back, if it has left, in ns of its clock; `u64::MAX`: never.
    pub fn back_ns(&self) -> Option<u64> {
        match self.back.load(Ordering::Acquire) {
            0 => None,
            u64::MAX => Some(u64::MAX),
            back => Some(back - 1),
        }
    }
}
