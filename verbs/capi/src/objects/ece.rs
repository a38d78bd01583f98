//! Options of a queue pair that it agrees on with its peer (enhanced connection establishment), as in mlx5.
//!
//! A new queue pair has all options of the device. Options that a program sets apply from the next successful
//! `ibv_modify_qp` on; until then the queue pair has none.

use std::sync::atomic::{AtomicU64, Ordering};

/// The options of a queue pair.
pub(crate) struct EceOptions {
    /// Options that the device has.
    device: u32,
    /// Options that the queue pair has, and in the upper half those that the program has set since.
    state: AtomicU64,
}

impl EceOptions {
    /// Creates the options of a new queue pair, on a device that has these.
    pub(crate) const fn new(device: u32) -> EceOptions {
        EceOptions { device, state: AtomicU64::new(device as u64) }
    }

    /// Returns the options that the device has.
    pub(crate) const fn of_device(&self) -> u32 {
        self.device
    }

    /// Returns the options that the queue pair has.
    pub(crate) fn get(&self) -> u32 {
        self.state.load(Ordering::Relaxed) as u32
    }

    /// Sets options for the program.
    pub(crate) fn set(&self, options: u32) {
        self.state.store(u64::from(options) << 32, Ordering::Relaxed);
    }

    /// Applies, after the queue pair was modified, those of the set options that the device has.
    pub(crate) fn modified(&self) {
        let wanted = (self.state.load(Ordering::Relaxed) >> 32) as u32;
        if wanted != 0 {
            self.state.store((wanted & self.device).into(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_counts_from_the_next_change_of_the_queue_pair() {
        let options = EceOptions::new(0x3000_0002);
        options.modified();
        assert_eq!(options.get(), 0x3000_0002);
        options.set(0x1000_0006);
        assert_eq!(options.get(), 0);
        options.modified();
        assert_eq!(options.get(), 0x1000_0002);
        options.modified();
        assert_eq!(options.get(), 0x1000_0002);
        options.set(0);
        options.modified();
        assert_eq!(options.get(), 0);
    }
}
