//! Reliability of a responder, and its PSN window.

use alloc::vec;
use alloc::vec::Vec;

use crate::mrc::constants::{
    MAX_SACKS_OF_A_TRIGGER, MPR_UNIT, OUT_OF_WINDOW_NACK_INTERVAL_NS, SACK_LEAST_PACKET_BYTES,
};
use crate::mrc::entropy::Entropy;
use crate::mrc::wire::{CcState, PathMark, SackTrigger, Seth};
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

/// The packet or probe that a SACK answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SackCause {
    /// PSN of the packet, or number of the probe.
    pub(crate) trigger: Result<Psn, u16>,
    pub(crate) mark: PathMark,
    pub(crate) entropy: Entropy,
    pub(crate) timestamp: u16,
    /// Low 16 bits of the numbers of this queue pair and of the peer's.
    pub(crate) ids: (u16, u16),
}

#[derive(Debug)]
pub(crate) struct ReceiveReliability {
    window: ReceiveWindow,
    /// Window in units, as SACKs report it; 0 if it may not change.
    granted_units: u8,
    max_units: u8,
    threshold_bytes: u32,
    trigger_bytes: u32,
    received_bytes: u64,
    /// Number below which SACKs have reported all packets.
    sacked_up_to: u64,
    penalty: u8,
    restores: bool,
    nacked_ns: Option<u64>,
}

impl ReceiveReliability {
    pub(crate) fn new(
        first: Psn,
        units: u8,
        is_dynamic: bool,
        (mtu_bytes, threshold_bytes): (u32, u32),
    ) -> ReceiveReliability {
        let window = ReceiveWindow::new(first, units);
        let half = window.width().saturating_mul(mtu_bytes) / 2;
        ReceiveReliability {
            window,
            granted_units: if is_dynamic { units.max(1) } else { 0 },
            max_units: units.max(1),
            threshold_bytes: threshold_bytes.min(half),
            trigger_bytes: 0,
            received_bytes: 0,
            sacked_up_to: 0,
            penalty: 0,
            restores: false,
            nacked_ns: None,
        }
    }

    /// Returns the number of slots that a ring of all packets of the window needs.
    pub(crate) fn slots(&self) -> usize {
        self.window.slots()
    }

    /// Changes the width of the window, at most to the first width. Without dynamic MPR the width does not
    /// change.
    pub(crate) fn set_units(&mut self, units: u8) {
        if self.granted_units > 0 {
            self.granted_units = units.clamp(1, self.max_units);
            self.window.set_units(self.granted_units);
        }
    }

    /// Sets the penalty that SACKs impose on the sender's window from now on.
    pub(crate) fn set_penalty(&mut self, penalty: u8, restores: bool) {
        (self.penalty, self.restores) = (penalty & 0x7f, restores);
    }

    /// Returns the largest width of the window, in units of 128 PSNs.
    pub(crate) fn max_units(&self) -> u8 {
        self.max_units
    }

    /// Reports whether a packet was placed.
    pub(crate) fn has_received(&self) -> bool {
        self.received_bytes > 0
    }

    pub(crate) fn place(&self, psn: Psn) -> Placement {
        self.window.place(psn)
    }

    pub(crate) fn cack_psn(&self) -> Psn {
        self.window.cack_psn()
    }

    /// Records that a new packet was placed, with its bytes including all headers and its data bytes. Reports
    /// whether a SACK is due.
    pub(crate) fn accept(&mut self, number: u64, nominal_bytes: u32, payload_bytes: u32) -> bool {
        self.window.insert(number);
        self.sacked_up_to = self.sacked_up_to.min(number);
        self.received_bytes = self.received_bytes.wrapping_add(nominal_bytes.into());
        self.trigger_bytes = self.trigger_bytes.saturating_add(payload_bytes.max(SACK_LEAST_PACKET_BYTES));
        self.trigger_bytes >= self.threshold_bytes
    }

    /// Returns the number of the expected packet if it has arrived, and expects the next one.
    pub(crate) fn advance(&mut self) -> Option<u64> {
        self.window.advance()
    }

    /// Reports whether a NACK of a PSN beyond the window may be sent now.
    pub(crate) fn may_nack(&mut self, now_ns: u64) -> bool {
        let is_early = |last: u64| now_ns < last.saturating_add(OUT_OF_WINDOW_NACK_INTERVAL_NS);
        if self.nacked_ns.is_some_and(is_early) {
            return false;
        }
        self.nacked_ns = Some(now_ns);
        true
    }

    /// Sends the SACKs that a packet or a probe causes: usually one, and more if more packets have arrived
    /// than were reported.
    pub(crate) fn sacks(&mut self, cause: &SackCause, mut send: impl FnMut(Seth, CcState)) {
        self.trigger_bytes = 0;
        let (expected, highest) = (self.window.expected(), self.window.highest());
        if cause.trigger.is_err() {
            self.sacked_up_to = expected;
        }
        for _ in 0..MAX_SACKS_OF_A_TRIGGER {
            let newest = highest.saturating_sub(64).max(expected);
            let base = self.sacked_up_to.max(expected).min(newest);
            send(self.seth(cause, base), self.state(cause));
            self.sacked_up_to = self.sacked_up_to.max(base.saturating_add(64).min(highest));
            if self.sacked_up_to >= highest {
                return;
            }
        }
    }

    fn seth(&self, cause: &SackCause, base: u64) -> Seth {
        let cack_psn = self.window.cack_psn();
        let trigger = match cause.trigger {
            Ok(psn) => {
                let distance = psn.since(cack_psn);
                // All packets far below have arrived.
                SackTrigger::Packet { offset: i16::try_from(distance).unwrap_or(0) }
            }
            Err(probe_id) => SackTrigger::Probe { probe_id },
        };
        // The cumulative PSN, which the offset is relative to, is the one before the expected PSN.
        let offset = base - self.window.expected() + 1;
        Seth {
            mark: cause.mark,
            trigger,
            entropy: cause.entropy,
            spdcid: cause.ids.0,
            dpdcid: cause.ids.1,
            cack_psn,
            cc_type: CcState::CC_TYPE,
            cc_flags: 0,
            mpr: self.granted_units,
            sack_offset: i16::try_from(offset).unwrap_or(i16::MAX),
            bitmap: self.window.bits_from(base),
        }
    }

    fn state(&self, cause: &SackCause) -> CcState {
        CcState {
            timestamp: cause.timestamp,
            ooo_count: self.window.above().min(0x7fff) as u16,
            restore_cwnd: self.restores,
            rcv_cwnd_pen: self.penalty,
            rcvd_bytes: self.received_bytes.div_ceil(256) as u32 & 0xff_ffff,
        }
    }
}
