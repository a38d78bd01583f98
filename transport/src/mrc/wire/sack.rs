//! Reliability SACK and NACK, which report the packets that have arrived and the one that was refused.

use super::{ControlHeaderType, NextHeader};
use crate::mrc::entropy::Entropy;
use crate::wire::Psn;

/// The mark that a SACK gives to the path of the packet that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum PathMark {
    /// No mark.
    #[default]
    None = 0,
    /// The packet was marked as congested: the sender skips this entropy value once.
    SkipOnce = 1,
    /// The sender stops using this entropy value.
    AlwaysSkip = 2,
    /// Reserved value without meaning.
    Reserved = 3,
}

impl PathMark {
    const fn of(bits: u8) -> PathMark {
        match bits & 3 {
            0 => PathMark::None,
            1 => PathMark::SkipOnce,
            2 => PathMark::AlwaysSkip,
            _ => PathMark::Reserved,
        }
    }
}

/// The trigger of a SACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SackTrigger {
    /// A packet, whose PSN is the cumulative one plus this offset.
    Packet {
        /// `ack_psn_offset`.
        offset: i16,
    },
    /// A reliability probe (`pr` = 1).
    Probe {
        /// Number of the probe.
        probe_id: u16,
    },
}

/// SACK extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seth {
    /// Mark of the path that the packet came by.
    pub mark: PathMark,
    /// Trigger of the SACK.
    pub trigger: SackTrigger,
    /// Entropy value of the packet that caused the SACK.
    pub entropy: Entropy,
    /// Low 16 bits of the number of the queue pair that sends the SACK; informational.
    pub spdcid: u16,
    /// Low 16 bits of the number of the queue pair that receives the SACK; informational.
    pub dpdcid: u16,
    /// Cumulative PSN: all packets up to it have arrived.
    pub cack_psn: Psn,
    /// Type of the congestion control state; 0 for [`CcState`].
    pub cc_type: u8,
    /// Flags of the congestion control state, 4 bits.
    pub cc_flags: u8,
    /// Window in units of 128 PSNs with dynamic MPR; otherwise 0.
    pub mpr: u8,
    /// Offset of bit 0 of the bitmap from the cumulative PSN.
    pub sack_offset: i16,
    /// Bitmap of arrived packets: bit i stands for the packet i after the first one. A zero bit has no
    /// meaning.
    pub bitmap: u64,
}

impl Seth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 28;

    /// Returns the PSN of bit 0 of the bitmap.
    pub const fn bitmap_base(&self) -> Psn {
        offset_psn(self.cack_psn, self.sack_offset)
    }

    /// Returns the PSN of the packet that caused the SACK; `None` if a probe did.
    pub const fn ack_psn(&self) -> Option<Psn> {
        match self.trigger {
            SackTrigger::Packet { offset } => Some(offset_psn(self.cack_psn, offset)),
            SackTrigger::Probe { .. } => None,
        }
    }

    /// Parses the first 28 bytes.
    ///
    /// # Errors
    /// There are fewer bytes, or the header is another one.
    pub fn parse(bytes: &[u8]) -> Result<Seth, NextHeader> {
        let Some(
            &[
                a,
                flags,
                o0,
                o1,
                e0,
                e1,
                e2,
                e3,
                s0,
                s1,
                d0,
                d1,
                _,
                c0,
                c1,
                c2,
                cc,
                mpr,
                b0,
                b1,
                ref bitmap @ ..,
            ],
        ) = bytes.first_chunk::<{ Seth::LEN }>()
        else {
            return Err(NextHeader::Short);
        };
        ControlHeaderType::check(a, flags)?;
        let offset = [o0, o1];
        let trigger = match flags & 2 != 0 {
            true => SackTrigger::Probe { probe_id: u16::from_be_bytes(offset) },
            false => SackTrigger::Packet { offset: i16::from_be_bytes(offset) },
        };
        Ok(Seth {
            mark: PathMark::of(flags >> 5),
            trigger,
            entropy: Entropy(u32::from_be_bytes([e0, e1, e2, e3])),
            spdcid: u16::from_be_bytes([s0, s1]),
            dpdcid: u16::from_be_bytes([d0, d1]),
            cack_psn: Psn::new(u32::from_be_bytes([0, c0, c1, c2])),
            cc_type: cc >> 4,
            cc_flags: cc & 0x0f,
            mpr,
            sack_offset: i16::from_be_bytes([b0, b1]),
            bitmap: u64::from_be_bytes(*bitmap),
        })
    }

    /// Returns the 28 bytes of the header.
    pub fn bytes(&self) -> [u8; Seth::LEN] {
        let (is_probe, [o0, o1]) = match self.trigger {
            SackTrigger::Packet { offset } => (0, offset.to_be_bytes()),
            SackTrigger::Probe { probe_id } => (2, probe_id.to_be_bytes()),
        };
        let [e0, e1, e2, e3] = self.entropy.0.to_be_bytes();
        let ([s0, s1], [d0, d1]) = (self.spdcid.to_be_bytes(), self.dpdcid.to_be_bytes());
        let [_, c0, c1, c2] = self.cack_psn.value().to_be_bytes();
        let [b0, b1] = self.sack_offset.to_be_bytes();
        let [m0, m1, m2, m3, m4, m5, m6, m7] = self.bitmap.to_be_bytes();
        let flags = (self.mark as u8) << 5 | is_probe;
        let cc = self.cc_type << 4 | (self.cc_flags & 0x0f);
        [
            0, flags, o0, o1, e0, e1, e2, e3, s0, s1, d0, d1, 0, c0, c1, c2, cc, self.mpr, b0, b1, m0, m1,
            m2, m3, m4, m5, m6, m7,
        ]
    }
}

/// Returns a PSN plus a signed offset, modulo 2^24.
const fn offset_psn(psn: Psn, offset: i16) -> Psn {
    psn.plus(offset as i32 as u32)
}

/// Congestion control state, which follows the SETH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CcState {
    /// Time stamp of the packet that caused the SACK; 0 if it had none.
    pub timestamp: u16,
    /// Number of packets above the cumulative PSN that have arrived; 15 bits.
    pub ooo_count: u16,
    /// True if the sender's window returns to its size before the penalty.
    pub restore_cwnd: bool,
    /// Penalty that the receiver imposes on the sender's window, in 1/128 of the new bytes; 7 bits.
    pub rcv_cwnd_pen: u8,
    /// Bytes received since the start, in units of 256 rounded up, modulo 2^24.
    pub rcvd_bytes: u32,
}

impl CcState {
    /// Length on the wire in bytes.
    pub const LEN: usize = 8;
    /// The `cc_type` of this state.
    pub const CC_TYPE: u8 = 0;

    /// Parses the first 8 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<CcState> {
        let &[t0, t1, o0, o1, penalty, r0, r1, r2] = bytes.first_chunk()?;
        Some(CcState {
            timestamp: u16::from_be_bytes([t0, t1]),
            ooo_count: u16::from_be_bytes([o0, o1]) & 0x7fff,
            restore_cwnd: penalty & 0x80 != 0,
            rcv_cwnd_pen: penalty & 0x7f,
            rcvd_bytes: u32::from_be_bytes([0, r0, r1, r2]),
        })
    }

    /// Returns the 8 bytes of the state. Excess bits are cut off.
    pub fn bytes(&self) -> [u8; CcState::LEN] {
        let ([t0, t1], [o0, o1]) = (self.timestamp.to_be_bytes(), (self.ooo_count & 0x7fff).to_be_bytes());
        let [_, r0, r1, r2] = self.rcvd_bytes.to_be_bytes();
        [t0, t1, o0, o1, u8::from(self.restore_cwnd) << 7 | (self.rcv_cwnd_pen & 0x7f), r0, r1, r2]
    }
}

/// The reason why a packet was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NackReason {
    /// A switch before the last one has trimmed the packet.
    Trimmed,
    /// The last switch has trimmed the packet.
    TrimmedLastHop,
    /// The responder cannot record the arrival.
    NoBitmap,
    /// The responder has no buffer for the packet.
    NoPacketBuffer,
    /// The responder lacks another resource.
    NoResource,
    /// The PSN of the packet is beyond the window.
    PsnOutOfWindow,
    /// The responder cannot continue. The packet is not retransmitted.
    UnexpectedEvent,
    /// A number without meaning here. The packet is retransmitted.
    Other(u8),
}

impl NackReason {
    /// Returns the reason with this number.
    pub const fn from_byte(byte: u8) -> NackReason {
        match byte {
            0x01 => NackReason::Trimmed,
            0x02 => NackReason::TrimmedLastHop,
            0x06 => NackReason::NoBitmap,
            0x07 => NackReason::NoPacketBuffer,
            0x0a => NackReason::NoResource,
            0x0b => NackReason::PsnOutOfWindow,
            0x19 => NackReason::UnexpectedEvent,
            byte => NackReason::Other(byte),
        }
    }

    /// Returns the number of the reason.
    pub const fn byte(self) -> u8 {
        match self {
            NackReason::Trimmed => 0x01,
            NackReason::TrimmedLastHop => 0x02,
            NackReason::NoBitmap => 0x06,
            NackReason::NoPacketBuffer => 0x07,
            NackReason::NoResource => 0x0a,
            NackReason::PsnOutOfWindow => 0x0b,
            NackReason::UnexpectedEvent => 0x19,
            NackReason::Other(byte) => byte,
        }
    }

    /// Reports whether the packet was trimmed, at the last hop or before.
    pub const fn is_trim(self) -> bool {
        matches!(self, NackReason::Trimmed | NackReason::TrimmedLastHop)
    }
}

/// NACK extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neth {
    /// Reason why the packet was refused.
    pub reason: NackReason,
    /// Vendor-specific value.
    pub vendor_info: u8,
    /// Entropy value of the packet.
    pub entropy: Entropy,
    /// Low 16 bits of the number of the queue pair that sends the NACK; informational.
    pub spdcid: u16,
    /// Low 16 bits of the number of the queue pair that receives the NACK; informational.
    pub dpdcid: u16,
    /// PSN of the packet.
    pub nack_psn: Psn,
    /// Flags of congestion control, 4 bits.
    pub cc_flags: u8,
    /// Time stamp of the packet; 0 if it had none.
    pub timestamp: u16,
}

impl Neth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 20;
    /// The `cc_type` of a NACK.
    const CC_TYPE: u8 = 2;

    /// Parses the first 20 bytes.
    ///
    /// # Errors
    /// There are fewer bytes, or the header is another one.
    pub fn parse(bytes: &[u8]) -> Result<Neth, NextHeader> {
        let Some(
            &[a, flags, reason, vendor_info, e0, e1, e2, e3, s0, s1, d0, d1, _, p0, p1, p2, cc, _, t0, t1],
        ) = bytes.first_chunk::<{ Neth::LEN }>()
        else {
            return Err(NextHeader::Short);
        };
        ControlHeaderType::check(a, flags)?;
        Ok(Neth {
            reason: NackReason::from_byte(reason),
            vendor_info,
            entropy: Entropy(u32::from_be_bytes([e0, e1, e2, e3])),
            spdcid: u16::from_be_bytes([s0, s1]),
            dpdcid: u16::from_be_bytes([d0, d1]),
            nack_psn: Psn::new(u32::from_be_bytes([0, p0, p1, p2])),
            cc_flags: cc & 0x0f,
            timestamp: u16::from_be_bytes([t0, t1]),
        })
    }

    /// Returns the 20 bytes of the header.
    pub fn bytes(&self) -> [u8; Neth::LEN] {
        let [e0, e1, e2, e3] = self.entropy.0.to_be_bytes();
        let ([s0, s1], [d0, d1]) = (self.spdcid.to_be_bytes(), self.dpdcid.to_be_bytes());
        let [_, p0, p1, p2] = self.nack_psn.value().to_be_bytes();
        let [t0, t1] = self.timestamp.to_be_bytes();
        let cc = Neth::CC_TYPE << 4 | (self.cc_flags & 0x0f);
        [
            0,
            0,
            self.reason.byte(),
            self.vendor_info,
            e0,
            e1,
            e2,
            e3,
            s0,
            s1,
            d0,
            d1,
            0,
            p0,
            p1,
            p2,
            cc,
            0,
            t0,
            t1,
        ]
    }
}
