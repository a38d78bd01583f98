//! The PSN window of a responder: the packets that it expects, and those that have arrived.

use alloc::vec;
use alloc::vec::Vec;

use crate::mrc::constants::MPR_UNIT;
use crate::wire::Psn;

/// The position of a packet's PSN relative to the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The packet of this number is in the window and new.
    New(u64),
    /// The packet is below the expected one, so it has arrived before.
    DuplicateBelow,
    /// The packet is in the window and has arrived before.
    DuplicateAbove,
    /// The packet is beyond the window.
    Beyond,
    /// The PSN is half the number circle below the expected one: neither old nor new.
    TooOld,
}

/// The receive window. It numbers packets from 0 without wrapping; the PSN of a packet is the first PSN plus
/// its number, modulo 2^24.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    /// PSN of the expected packet.
    expected_psn: Psn,
    /// Number of the first packet that has not arrived.
    expected: u64,
    /// Number of the first packet beyond the window. It never decreases.
    edge: u64,
    /// Number after the highest packet that has arrived.
    highest: u64,
    /// Number of packets beyond the expected one that have arrived.
    above: u32,
    /// Width of the window in PSNs.
    width: u32,
    /// Arrival bits of the packets. The index is the packet number modulo the length of the ring.
    ring: Vec<u64>,
}

impl ReceiveWindow {
    /// Creates a window of at most `most_units` units that starts at a PSN.
    pub(crate) fn new(first: Psn, most_units: u8) -> ReceiveWindow {
        let width = u32::from(most_units.max(1)) * MPR_UNIT;
        let words = (width as usize / 64).next_power_of_two();
        ReceiveWindow {
            expected_psn: first,
            expected: 0,
            edge: u64::from(width),
            highest: 0,
            above: 0,
            width,
            ring: vec![0; words],
        }
    }

    /// Narrows the window, or widens it again up to its largest width. Packets that may be in flight are
    /// still accepted.
    pub(crate) fn set_units(&mut self, units: u8) {
        let most = self.ring.len() as u32 * 64;
        self.width = (u32::from(units.max(1)) * MPR_UNIT).min(most);
        self.edge = self.edge.max(self.expected + u64::from(self.width));
    }

    /// Returns the width of the window in PSNs.
    pub(crate) fn width(&self) -> u32 {
        self.width
    }

    /// Returns the number of the first packet that has not arrived.
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// Returns the number after the highest packet that has arrived.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// Returns the number of packets beyond the expected one that have arrived.
    pub(crate) fn above(&self) -> u32 {
        self.above
    }

    /// Returns the cumulative PSN: all packets up to it have arrived.
    pub(crate) fn cack_psn(&self) -> Psn {
        self.expected_psn.minus(1)
    }

    /// Returns the number of slots that a ring of all packets of the window needs.
    pub(crate) fn slots(&self) -> usize {
        self.ring.len() * 64
    }

    /// Returns the position of a PSN relative to the window.
    pub(crate) fn place(&self, psn: Psn) -> Placement {
        let distance = psn.since(self.expected_psn);
        if distance < 0 {
            let is_old = distance == i32::MIN >> 8;
            return if is_old { Placement::TooOld } else { Placement::DuplicateBelow };
        }
        let number = self.expected + distance as u64;
        if number >= self.edge {
            Placement::Beyond
        } else if self.has(number) {
            Placement::DuplicateAbove
        } else {
            Placement::New(number)
        }
    }

    fn word(&self, number: u64) -> u64 {
        let index = (number / 64) as usize & (self.ring.len() - 1);
        self.ring.get(index).copied().unwrap_or(0)
    }

    fn has(&self, number: u64) -> bool {
        self.word(number) >> (number % 64) & 1 == 1
    }

    fn flip(&mut self, number: u64) {
        let index = (number / 64) as usize & (self.ring.len() - 1);
        if let Some(word) = self.ring.get_mut(index) {
            *word ^= 1 << (number % 64);
        }
    }

    /// Records the arrival of a packet that [`ReceiveWindow::place`] reported as new.
    pub(crate) fn insert(&mut self, number: u64) {
        if number >= self.expected && number < self.edge && !self.has(number) {
            self.flip(number);
            self.above += 1;
            self.highest = self.highest.max(number + 1);
        }
    }

    /// Returns the number of the expected packet if it has arrived, and expects the next one.
    pub(crate) fn advance(&mut self) -> Option<u64> {
        let number = self.expected;
        if !self.has(number) {
            return None;
        }
        self.flip(number);
        self.above = self.above.saturating_sub(1);
        self.expected += 1;
        self.expected_psn = self.expected_psn.next();
        self.edge = self.edge.max(self.expected + u64::from(self.width));
        Some(number)
    }

    /// Returns the arrival bits of the 64 packets from `number` on, which must not be below the expected one.
    pub(crate) fn bits_from(&self, number: u64) -> u64 {
        let Some(count) = self.highest.checked_sub(number).filter(|count| *count > 0) else { return 0 };
        let shift = number % 64;
        let low = self.word(number) >> shift;
        let high = if shift == 0 { 0 } else { self.word(number + 64) << (64 - shift) };
        let known = if count >= 64 { u64::MAX } else { (1 << count) - 1 };
        (low | high) & known
    }
}
