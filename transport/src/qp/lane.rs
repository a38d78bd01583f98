//! Lanes: the packets that take the short way.
//!
//! A lane is a cache of decisions. The next message of a connected queue pair, if it is one packet, and an
//! acknowledgement pass over the steps that decide, because nothing is left to be decided. `by_lane` says
//! when.

use crate::types::{RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge};
use crate::wire::{Aeth, Bth, ICRC_BYTES, ImmDt, Operation, Psn, Reth};

/// Length of an acknowledgement in bytes.
pub(crate) const ACKNOWLEDGE_BYTES: usize = Bth::LEN + Aeth::LEN + ICRC_BYTES;

// The service bits of RC are zero: its opcodes are the numbers of the operations.
const SEND: u8 = Operation::SendOnly as u8;
const SEND_IMM: u8 = Operation::SendOnlyImm as u8;
const WRITE: u8 = Operation::WriteOnly as u8;
const WRITE_IMM: u8 = Operation::WriteOnlyImm as u8;
const ACKNOWLEDGE: u8 = Operation::Acknowledge as u8;

/// Reports whether a packet may arrive by a lane, by its opcode.
#[inline]
pub fn may_arrive_by_lane(packet: &[u8]) -> bool {
    matches!(packet.first(), Some(&(SEND | SEND_IMM | WRITE | WRITE_IMM | ACKNOWLEDGE)))
}

/// Reports whether a request may leave by a lane, by its opcode.
#[inline]
pub const fn may_leave_by_lane(opcode: SendOpcode) -> bool {
    use SendOpcode::{RdmaWrite, RdmaWriteWithImm, Send, SendWithImm};
    matches!(opcode, Send | SendWithImm | RdmaWrite | RdmaWriteWithImm)
}

/// A SEND or WRITE that is posted by itself, and may leave by a lane at once.
#[derive(Debug, Clone, Copy)]
pub struct LaneSend<'a> {
    /// Number that the program gave the request.
    pub wr_id: u64,
    /// One of the operations for which [`may_leave_by_lane`] returns true.
    pub opcode: SendOpcode,
    /// Flags of the request.
    pub flags: SendFlags,
    /// Immediate data, for the operations that have it.
    pub imm_data: [u8; 4],
    /// Target of a WRITE.
    pub remote: RemoteTarget,
    /// The message.
    pub data: LaneData<'a>,
}

impl<'a> LaneSend<'a> {
    /// Returns a request as a lane takes it; `None` for other operations, and for messages of several
    /// buffers.
    #[inline]
    pub fn of(request: &SendRequest<'a>) -> Option<LaneSend<'a>> {
        let data = match request.sges {
            _ if request.flags.contains(SendFlags::INLINE) => LaneData::Inline(request.inline_data),
            [] => LaneData::Nothing,
            [only] => LaneData::Buffer(*only),
            _ => return None,
        };
        let is_plain = may_leave_by_lane(request.opcode) && request.completes_as.is_none();
        let &SendRequest { wr_id, opcode, flags, imm_data, remote, .. } = request;
        is_plain.then_some(LaneSend { wr_id, opcode, flags, imm_data, remote, data })
    }
}

/// The message of a [`LaneSend`].
#[derive(Debug, Clone, Copy)]
pub enum LaneData<'a> {
    /// No bytes.
    Nothing,
    /// Bytes that are copied now: the flag INLINE is set.
    Inline(&'a [u8]),
    /// A buffer in registered memory: the flag INLINE is not set.
    Buffer(Sge),
}

impl LaneData<'_> {
    /// Returns the length of the message in bytes.
    #[inline]
    pub(crate) const fn length_bytes(&self) -> usize {
        match self {
            LaneData::Nothing => 0,
            LaneData::Inline(bytes) => bytes.len(),
            LaneData::Buffer(sge) => sge.length as usize,
        }
    }
}

/// A request, and perhaps an acknowledgement, that a lane has written one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneBatch {
    /// Length of the request in bytes.
    pub request_bytes: usize,
    /// Length of the acknowledgement in bytes; 0: there is none.
    pub acknowledge_bytes: usize,
}

/// A message of one packet: a SEND or WRITE, with or without immediate data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneRequest<'a> {
    pub(crate) psn: Psn,
    pub(crate) solicited: bool,
    pub(crate) ack_request: bool,
    /// The range of a WRITE.
    pub(crate) reth: Option<Reth>,
    pub(crate) imm: Option<[u8; 4]>,
    pub(crate) payload: &'a [u8],
}

/// A packet of RC that a lane may handle.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LanePacket<'a> {
    Request(LaneRequest<'a>),
    /// An AETH with the PSN that it is about.
    Acknowledge(Psn, Aeth),
}

impl<'a> LanePacket<'a> {
    /// Reads a packet, whose BTH is `bth`. Returns `None` for packets of other opcodes, and for malformed
    /// ones.
    #[inline]
    pub(crate) fn parse(bth: &Bth, bytes: &'a [u8]) -> Option<LanePacket<'a>> {
        let body = bytes.get(Bth::LEN..bytes.len().checked_sub(ICRC_BYTES)?)?;
        let (reth, body) = match bth.opcode.byte() {
            SEND | SEND_IMM => (None, body),
            WRITE | WRITE_IMM => {
                let (head, rest) = body.split_at_checked(Reth::LEN)?;
                (Some(Reth::parse(head)?), rest)
            }
            ACKNOWLEDGE if body.len() == Aeth::LEN && bth.pad_count == 0 => {
                return Some(LanePacket::Acknowledge(bth.psn, Aeth::parse(body)?));
            }
            _ => return None,
        };
        let (imm, body) = match bth.opcode.byte() {
            SEND_IMM | WRITE_IMM => {
                let (head, rest) = body.split_at_checked(ImmDt::LEN)?;
                (Some(ImmDt::parse(head)?.0), rest)
            }
            _ => (None, body),
        };
        let pad_bytes = usize::from(bth.pad_count);
        let payload = body.get(..body.len().checked_sub(pad_bytes)?)?;
        let is_padded = body.len() % 4 == 0 && pad_bytes == payload.len().wrapping_neg() & 3;
        let Bth { psn, solicited, ack_request, .. } = *bth;
        is_padded.then_some(LanePacket::Request(LaneRequest {
            psn,
            solicited,
            ack_request,
            reth,
            imm,
            payload,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Packet;

    /// A lane reads in each packet what the parser reads, and no packet of these opcodes is left out
    /// whose pad fills the payload up to whole words.
    #[test]
    fn a_lane_reads_what_the_parser_reads() {
        let mut read = 0;
        for opcode in 0..=u8::MAX {
            for (length, flags) in
                (0..80).flat_map(|length| [0, 0x10, 0x20, 0x30, 0xd0].map(|flags| (length, flags)))
            {
                let mut bytes: [u8; 80] = core::array::from_fn(|index| (index * 37) as u8);
                bytes[..2].copy_from_slice(&[opcode, flags]);
                let bytes = &bytes[..length];
                let Some(bth) = Bth::parse(bytes) else { continue };
                let packet = Packet::parse(bytes);
                match LanePacket::parse(&bth, bytes) {
                    Some(LanePacket::Request(request)) => {
                        let packet = packet.unwrap();
                        let imm = packet.imm().map(|imm| imm.0);
                        assert_eq!((request.payload, request.imm), (packet.payload(), imm), "{opcode:#x}");
                        assert_eq!((request.reth, packet.info().position.ends()), (packet.reth(), true));
                        assert_eq!((request.psn, request.ack_request), (bth.psn, bth.ack_request));
                    }
                    Some(LanePacket::Acknowledge(psn, aeth)) => {
                        assert_eq!((Some(aeth), psn), (packet.unwrap().aeth(), bth.psn));
                    }
                    None => {
                        let is_padded = |packet: &Packet<'_>| {
                            usize::from(bth.pad_count) == packet.payload().len().wrapping_neg() & 3
                        };
                        let takes = [SEND, SEND_IMM, WRITE, WRITE_IMM, ACKNOWLEDGE].contains(&opcode);
                        assert!(!takes || !packet.is_ok_and(|packet| is_padded(&packet)), "{bytes:x?}");
                        continue;
                    }
                }
                read += 1;
            }
        }
        assert!(read > 50, "{read}");
    }
}
