//! Counts of the send requests of each queue pair that were polled.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of send requests polled so far, per queue pair (modulo 2^32). An entry of a send queue is free
/// only when a completion that covers it was polled, and polling happens without the engine's lock: so the
/// number is stored here, between the two.
#[derive(Debug)]
pub struct FreedSendSlots {
    /// Pages of counters, one per upper byte of the index, made when first needed.
    pages: Box<[OnceLock<CounterPage>; 256]>,
}

type CounterPage = Box<[AtomicU32; 256]>;

impl Default for FreedSendSlots {
    fn default() -> FreedSendSlots {
        FreedSendSlots::new()
    }
}

#[expect(clippy::indexing_slicing, reason = "both indices are one byte, and every array has 256 entries")]
impl FreedSendSlots {
    /// Creates the counters, all zero.
    pub fn new() -> FreedSendSlots {
        FreedSendSlots { pages: Box::new([const { OnceLock::new() }; 256]) }
    }

    /// Returns how many send requests of this queue pair were polled so far, modulo 2^32. The index is `qpn &
    /// 0xffff`.
    #[inline]
    pub fn count(&self, qpn: u32) -> u32 {
        let (page, index) = FreedSendSlots::page_and_index(qpn);
        self.pages[page].get().map_or(0, |page| page[index].load(Ordering::Acquire))
    }

    /// Resets the counter to 0, because the queue pair was reset or its number is used anew. Its completions
    /// must have been removed from the completion queues before.
    pub fn reset(&self, qpn: u32) {
        let (page, index) = FreedSendSlots::page_and_index(qpn);
        if let Some(page) = self.pages[page].get() {
            page[index].store(0, Ordering::Release);
        }
    }

    /// Adds to the counter of a queue pair. The lock of its completion queue is held, and no other queue has
    /// completions of its sends.
    #[inline]
    pub(crate) fn add(&self, qpn: u32, count: u32) {
        let (page, index) = FreedSendSlots::page_and_index(qpn);
        let page = self.pages[page].get_or_init(|| Box::new([const { AtomicU32::new(0) }; 256]));
        // No other thread adds: an atomic addition would cost as much as the lock.
        let before = page[index].load(Ordering::Relaxed);
        //= statement:37
        //| An entry of the send queue is free when its completion, or a later one, was polled.
        page[index].store(before.wrapping_add(count), Ordering::Release);
    }

    /// Splits the index into two bytes, so that neither can be out of range.
    #[inline]
    const fn page_and_index(qpn: u32) -> (usize, usize) {
        ((qpn >> 8 & 0xff) as usize, (qpn & 0xff) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_the_low_sixteen_bits_and_wraps() {
        let sends = FreedSendSlots::new();
        assert_eq!(sends.count(0x05_1234), 0);
        sends.add(0x05_1234, 3);
        sends.add(0x05_1235, 1);
        assert_eq!(sends.count(0x00_1234), 3);
        sends.add(0x05_1234, u32::MAX);
        assert_eq!(sends.count(0x05_1234), 2);
        sends.reset(0x05_1234);
        assert_eq!((sends.count(0x05_1234), sends.count(0x05_1235)), (0, 1));
        assert_eq!(sends.count(0xff_ffff), 0);
        sends.add(0xff_ffff, 1);
        assert_eq!(sends.count(0xffff), 1);
    }
}
