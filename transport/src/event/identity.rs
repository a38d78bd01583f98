//! What a packet is, in words that do not depend on this run's numbers, clock or batches.

use alloc::collections::VecDeque;
use core::fmt;

use crate::path::Path;
use crate::types::QpType;
use crate::wire::{Opcode, Psn, Qpn, Syndrome};

/// Passes that are remembered for counting transmissions; older ones are forgotten.
const MAX_PASSES: usize = 64;
/// PSNs that are remembered. A sender goes back less far, and PSNs can be compared over twice this distance.
const REACH: u32 = 1 << 22;

/// Which side of a queue pair a packet comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Requests: the requester sends them.
    Requester,
    /// Answers: the responder sends them.
    Responder,
    /// Congestion notifications, which have no PSN.
    Notification,
}

/// A packet of a queue pair, by what it carries: the same in every run in which the program sends the same
/// messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketIdentity {
    /// Who sends it.
    pub side: Side,
    /// The message that it belongs to, from 0: of a request, the ordinal of the send request on the queue
    /// pair; of an answer, the ordinal of the request that it answers or refuses, as the responder counts
    /// requests (modulo 2^24). An ACK answers the last of the requests that it acknowledges.
    pub message: u64,
    /// PSN relative to the first of this side, modulo 2^24.
    pub relative_psn: u32,
    /// Which transmission of this PSN it is, from 1.
    pub transmission: u32,
}

impl PacketIdentity {
    /// A PSN relative to the first one.
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

/// A packet that is about to leave, or an ACK that is owed: what a host is told of it when it decides the
/// packet's [`Fate`](crate::types::Fate).
#[derive(Debug, Clone, Copy)]
pub struct Departure<'a> {
    /// Which packet of which message it is.
    pub identity: PacketIdentity,
    /// The ordinal of the queue pair's connection: how often it was reset before.
    pub connection: u32,
    /// What the queue pair is that sends it: of SRD and DC, packets have opcodes of UD.
    pub qp_type: QpType,
    /// Its opcode.
    pub opcode: Opcode,
    /// Of an answer of the kind ACK or NAK: which one.
    pub syndrome: Option<Syndrome>,
    /// PSNs that it takes: of a READ request, those of its answer.
    pub psn_count: u32,
    /// Bytes from the BTH to the ICRC.
    pub length_bytes: u32,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// Its way.
    pub path: &'a Path,
    /// The queue pair that it is for.
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
    /// Notes that `count` PSNs from `psn` on are sent, and says which transmission of the first one it is. A
    /// gap counts as sent: a coalesced acknowledgement speaks for the PSNs before it.
    #[inline]
    pub fn note(&mut self, psn: Psn, count: u32) -> u32 {
        // Nearly always it is the next one, and nothing was sent twice.
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
