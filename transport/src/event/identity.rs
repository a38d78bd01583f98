//! Identity of a packet that does not depend on this run's numbers, clock or batches.

use alloc::collections::VecDeque;
use core::fmt;

use crate::path::Path;
use crate::types::QpType;
use crate::wire::{Opcode, Psn, Qpn, Syndrome};

/// Passes that are remembered for counting transmissions; older ones are dropped.
const MAX_PASSES: usize = 64;
/// PSNs that are remembered. A sender goes back less far, and PSNs can be compared over twice this distance.
const REACH: u32 = 1 << 22;

/// The side of a queue pair that sent a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PacketSide {
    /// The requester: it sends requests.
    Requester,
    /// The responder: it sends answers.
    Responder,
    /// Congestion notifications, which have no PSN.
    Notification,
}

/// Identity of a queue pair's packet by its contents: the same in every run in which the program sends the
/// same messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketIdentity {
    /// Side that sends the packet.
    pub side: PacketSide,
    /// Ordinal of the message that the packet belongs to, from 0. For a request it is the ordinal of the send
    /// request on the queue pair; for an answer, the ordinal of the request that it answers or refuses, as
    /// the responder counts requests (modulo 2^24). An ACK answers the last of the requests that it
    /// acknowledges.
    pub message: u64,
    /// PSN relative to the first of this side, modulo 2^24.
    pub relative_psn: u32,
    /// Number of this transmission of the PSN, from 1.
    pub transmission: u32,
}

impl PacketIdentity {
    /// Returns a PSN relative to the first one.
    pub const fn relative(psn: Psn, first: Psn) -> u32 {
        psn.value().wrapping_sub(first.value()) & 0x00ff_ffff
    }
}

impl fmt::Display for PacketIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PacketIdentity { message, relative_psn, transmission, .. } = self;
        write!(f, "message {message}  packet {relative_psn}  transmission {transmission}")
    }
}

/// A packet that is about to leave, or an ACK that is owed, as described to a host that decides the packet's
/// [`Fate`](crate::types::Fate).
#[derive(Debug, Clone, Copy)]
pub struct OutgoingPacket<'a> {
    /// Identity of the packet.
    pub identity: PacketIdentity,
    /// Ordinal of the queue pair's connection: the number of resets before it.
    pub connection: u32,
    /// Type of the sending queue pair: packets of SRD and DC have opcodes of UD.
    pub qp_type: QpType,
    /// Opcode of the packet.
    pub opcode: Opcode,
    /// Kind of an ACK or NAK; `None` for other packets.
    pub syndrome: Option<Syndrome>,
    /// PSNs that the packet takes; for a READ request, those of its answer.
    pub psn_count: u32,
    /// Bytes from the BTH to the ICRC.
    pub length_bytes: u32,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// Path of the packet.
    pub path: &'a Path,
    /// Number of the queue pair that the packet is for.
    pub destination: Qpn,
}

/// Counts how often each PSN was sent. A sender goes through PSNs upwards and sometimes back: each way
/// upwards is a pass, and a PSN was sent as often as there are passes over it.
#[derive(Debug, Clone, Default)]
pub struct Transmissions {
    current: Option<Pass>,
    earlier: VecDeque<Pass>,
}

#[derive(Debug, Clone, Copy)]
struct Pass {
    first: Psn,
    end: Psn,
}

impl Pass {
    fn covers(&self, psn: Psn) -> bool {
        !psn.is_before(self.first) && psn.is_before(self.end)
    }
}

impl Transmissions {
    /// Records that `count` PSNs from `psn` on are sent, and returns the number of the first one's
    /// transmission. A gap counts as sent: a coalesced acknowledgement speaks for the PSNs before it.
    #[inline]
    pub fn note(&mut self, psn: Psn, count: u32) -> u32 {
        // Nearly always the PSN is the next one, and no PSN was sent twice.
        if let Some(current) = &mut self.current
            && self.earlier.is_empty()
            && current.end == psn
        {
            let end = psn.plus(count);
            if end.since(current.first) <= REACH as i32 {
                current.end = end;
                return 1;
            }
        }
        self.note_turn(psn, count)
    }

    fn note_turn(&mut self, psn: Psn, count: u32) -> u32 {
        let end = psn.plus(count);
        match &mut self.current {
            Some(current) if !psn.is_before(current.end) => {
                current.end = end;
                if end.since(current.first) > REACH as i32 {
                    current.first = end.minus(REACH);
                }
            }
            current => {
                if let Some(finished) = current.replace(Pass { first: psn, end }) {
                    if self.earlier.len() >= MAX_PASSES {
                        self.earlier.pop_front();
                    }
                    self.earlier.push_back(finished);
                }
            }
        }
        while self.earlier.front().is_some_and(|pass| psn.since(pass.end) > REACH as i32) {
            self.earlier.pop_front();
        }
        1 + self.earlier.iter().filter(|pass| pass.covers(psn)).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_psn_is_counted_once_per_pass() {
        let mut sent = Transmissions::default();
        let mut note = |psn, count| sent.note(Psn::new(psn), count);
        assert_eq!([note(10, 1), note(11, 1), note(12, 4), note(16, 1)], [1; 4]);
        assert_eq!([note(11, 1), note(12, 4)], [2, 2], "back to 11");
        assert_eq!(
            [note(12, 4), note(16, 1), note(17, 1)],
            [3, 2, 1],
            "back to 12; 16 was sent in the first pass"
        );
    }

    #[test]
    fn psns_wrap_and_old_passes_are_forgotten() {
        let mut sent = Transmissions::default();
        assert_eq!(sent.note(Psn::new(0xff_ffff), 1), 1);
        assert_eq!(sent.note(Psn::new(0), 1), 1);
        let last = (0..1000).map(|_| sent.note(Psn::new(0xff_ffff), 2)).last();
        assert_eq!(last, Some(MAX_PASSES as u32 + 1));
        assert_eq!(PacketIdentity::relative(Psn::new(1), Psn::new(0xff_fffe)), 3);
    }

    #[test]
    fn a_psn_that_comes_round_again_is_a_new_one() {
        let mut sent = Transmissions::default();
        let step = 1 << 16;
        assert_eq!(sent.note(Psn::new(0), step), 1);
        assert_eq!(sent.note(Psn::new(0), step), 2);
        for k in 1..1000 {
            assert_eq!(sent.note(Psn::new((k * step) & 0xff_ffff), step), 1, "step {k}");
        }
        assert_eq!(sent.note(Psn::new((998 * step) & 0xff_ffff), step), 2, "back by two steps");
    }
}
