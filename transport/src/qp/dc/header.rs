//! The header of DC between two pumice devices, in front of the payload of a datagram. Adapters have another
//! one, which is not public.

use crate::qp::NumberedPart;
use crate::qp::srd::{parts_of, take};
use crate::types::WcStatus;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 68;
/// Bytes of the operands of an atomic, behind the header.
pub(crate) const OPERAND_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"DC 1";
/// Q_Key of the datagrams. The access key in the header is what counts.
pub(crate) const QKEY: u32 = 0x8443_0000;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A part of a SEND.
    Send = 1,
    /// A part of a SEND with immediate data.
    SendImm = 2,
    /// A part of an RDMA WRITE.
    Write = 3,
    /// A part of an RDMA WRITE with immediate data.
    WriteImm = 4,
    /// Asks for a part of an RDMA READ.
    Read = 5,
    /// A compare and swap.
    CompareSwap = 6,
    /// A fetch and add.
    FetchAdd = 7,
    /// An answer: everything before a part of a message has been carried out.
    Ack = 8,
    /// An answer: the same, and that part is missing though later ones came.
    Behind = 9,
    /// An answer: the same, and no receive request is posted for that message.
    NotReady = 10,
    /// A part of what an RDMA READ asked for.
    Data = 11,
    /// What an atomic found.
    Value = 12,
    /// An answer: the message is refused, and all before it have been carried out.
    Refused = 13,
}

impl Kind {
    const ALL: [Kind; 13] = [
        Kind::Send,
        Kind::SendImm,
        Kind::Write,
        Kind::WriteImm,
        Kind::Read,
        Kind::CompareSwap,
        Kind::FetchAdd,
        Kind::Ack,
        Kind::Behind,
        Kind::NotReady,
        Kind::Data,
        Kind::Value,
        Kind::Refused,
    ];

    /// It is for the side that receives messages.
    pub(crate) const fn is_request(self) -> bool {
        (self as u8) < Kind::Ack as u8
    }

    /// It has immediate data.
    pub(crate) const fn has_imm(self) -> bool {
        matches!(self, Kind::SendImm | Kind::WriteImm)
    }

    /// In words.
    const fn name(self) -> &'static str {
        match self {
            Kind::Send => "SEND",
            Kind::SendImm => "SEND_WITH_IMM",
            Kind::Write => "RDMA_WRITE",
            Kind::WriteImm => "RDMA_WRITE_WITH_IMM",
            Kind::Read => "RDMA_READ",
            Kind::CompareSwap => "ATOMIC_CMP_AND_SWP",
            Kind::FetchAdd => "ATOMIC_FETCH_AND_ADD",
            Kind::Ack => "answer: before this",
            Kind::Behind => "answer: this is missing",
            Kind::NotReady => "answer: no receive request",
            Kind::Data => "data of RDMA_READ",
            Kind::Value => "value of an atomic",
            Kind::Refused => "answer: refused",
        }
    }

    /// Its data goes into a receive request.
    pub(crate) const fn is_send(self) -> bool {
        matches!(self, Kind::Send | Kind::SendImm)
    }

    /// Something comes back that later messages do not wait for: a READ or an atomic.
    pub(crate) const fn returns(self) -> bool {
        matches!(self, Kind::Read | Kind::CompareSwap | Kind::FetchAdd)
    }

    /// It is an atomic.
    pub(crate) const fn is_atomic(self) -> bool {
        matches!(self, Kind::CompareSwap | Kind::FetchAdd)
    }

    /// The parts of the message are behind the headers of its packets.
    pub(crate) const fn carries_parts(self) -> bool {
        (self as u8) <= Kind::WriteImm as u8 || matches!(self, Kind::Data)
    }
}

/// Why a message was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// The access key is not that of the target.
    AccessKey = 1,
    /// The remote memory cannot be used so.
    Memory = 2,
    /// The message is longer than its receive request, or cannot be.
    Invalid = 3,
    /// The receive request at the target cannot be used.
    Operation = 4,
}

impl Reason {
    /// The reason of this number; one that is not known is an invalid request.
    pub(crate) const fn of(number: u8) -> Reason {
        match number {
            1 => Reason::AccessKey,
            2 => Reason::Memory,
            4 => Reason::Operation,
            _ => Reason::Invalid,
        }
    }

    /// How the message ends where it came from.
    pub(crate) const fn status(self) -> WcStatus {
        match self {
            Reason::AccessKey | Reason::Invalid => WcStatus::RemInvReqErr,
            Reason::Memory => WcStatus::RemAccessErr,
            Reason::Operation => WcStatus::RemOpErr,
        }
    }
}

/// What a packet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Of a refusal.
    pub(crate) reason: u8,
    /// Bytes of each part but the last.
    pub(crate) part_bytes: u16,
    /// Which of the initiator's streams it belongs to.
    pub(crate) stream: u16,
    /// Of a request: the last part raises a solicited event.
    pub(crate) solicited: bool,
    /// Of [`Kind::NotReady`]: how long to wait, as `min_rnr_timer` says it.
    pub(crate) rnr_timer: u8,
    /// Tells a way between an initiator's stream and a target from an earlier one.
    pub(crate) epoch: u64,
    /// Number of the message on that way.
    pub(crate) message: u64,
    /// Of a request: what messages below have brought is known.
    pub(crate) floor: u64,
    /// Which part.
    pub(crate) part: u32,
    /// Bytes of the message.
    pub(crate) total: u32,
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    pub(crate) imm: [u8; 4],
    /// The access key of the target.
    pub(crate) key: u64,
}

impl Header {
    /// The header at the beginning of a payload, and what follows. `None`: it is none.
    pub(crate) fn parse(payload: &[u8]) -> Option<(Header, &[u8])> {
        let mut rest = payload;
        if *take::<4>(&mut rest)? != MAGIC {
            return None;
        }
        let [kind, reason, high, low] = *take::<4>(&mut rest)?;
        let [stream_high, stream_low, solicited, rnr_timer] = *take::<4>(&mut rest)?;
        let header = Header {
            kind: *Kind::ALL.get(usize::from(kind).checked_sub(1)?)?,
            reason,
            part_bytes: u16::from_be_bytes([high, low]),
            stream: u16::from_be_bytes([stream_high, stream_low]),
            solicited: solicited != 0,
            rnr_timer,
            epoch: u64::from_be_bytes(*take(&mut rest)?),
            message: u64::from_be_bytes(*take(&mut rest)?),
            floor: u64::from_be_bytes(*take(&mut rest)?),
            part: u32::from_be_bytes(*take(&mut rest)?),
            total: u32::from_be_bytes(*take(&mut rest)?),
            address: u64::from_be_bytes(*take(&mut rest)?),
            rkey: u32::from_be_bytes(*take(&mut rest)?),
            imm: *take(&mut rest)?,
            key: u64::from_be_bytes(*take(&mut rest)?),
        };
        Some((header, rest))
    }

    /// As it travels.
    pub(crate) fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut start = 0;
        let [high, low] = self.part_bytes.to_be_bytes();
        let [stream_high, stream_low] = self.stream.to_be_bytes();
        for field in [
            &MAGIC[..],
            &[self.kind as u8, self.reason, high, low],
            &[stream_high, stream_low, self.solicited.into(), self.rnr_timer],
            &self.epoch.to_be_bytes(),
            &self.message.to_be_bytes(),
            &self.floor.to_be_bytes(),
            &self.part.to_be_bytes(),
            &self.total.to_be_bytes(),
            &self.address.to_be_bytes(),
            &self.rkey.to_be_bytes(),
            &self.imm,
            &self.key.to_be_bytes(),
        ] {
            if let Some(room) = bytes.get_mut(start..start + field.len()) {
                room.copy_from_slice(field);
            }
            start += field.len();
        }
        bytes
    }

    /// Where its part begins in the message.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.part) * u64::from(self.part_bytes)
    }

    /// Parts of its message.
    pub(crate) fn parts(&self) -> u32 {
        if self.kind.is_atomic() { 1 } else { parts_of(self.total, self.part_bytes) }
    }

    /// Bytes of its part; `None`: the message has no such part.
    pub(crate) fn length(&self) -> Option<usize> {
        if self.part_bytes == 0 || self.part >= self.parts() {
            return None;
        }
        let left = u64::from(self.total).checked_sub(self.offset())?;
        usize::try_from(left.min(self.part_bytes.into())).ok()
    }
}

/// What a datagram says, for those that look at packets.
pub(crate) fn described(payload: &[u8]) -> Option<NumberedPart> {
    let (header, _) = Header::parse(payload)?;
    Some(NumberedPart {
        service: "DC",
        kind: header.kind.name(),
        message: header.message,
        // An answer may say that the last part has come.
        part: header.part.min(header.parts() - 1),
        parts: header.parts(),
        length_bytes: header.total,
        stream: Some(header.stream),
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_comes_back_from_its_bytes_and_half_of_one_does_not() {
        let header = Header {
            kind: Kind::WriteImm,
            reason: 3,
            part_bytes: 956,
            stream: 0x0708,
            solicited: true,
            rnr_timer: 12,
            epoch: 0x0102_0304_0506_0708,
            message: 77,
            floor: 70,
            part: 9,
            total: 8928,
            address: 0xffee_ddcc_bbaa_9988,
            rkey: 0x42,
            imm: [1, 2, 3, 4],
            key: 0xffee_ddcc,
        };
        let bytes = header.bytes();
        assert_eq!(Header::parse(&bytes), Some((header, &[][..])));
        assert_eq!((header.parts(), header.offset(), header.length()), (10, 8604, Some(324)));
        for length in 0..bytes.len() {
            assert_eq!(Header::parse(&bytes[..length]), None, "{length}");
        }
        for wrong in [0, 14, 255] {
            let mut bytes = bytes;
            bytes[4] = wrong;
            assert_eq!(Header::parse(&bytes), None, "kind {wrong}");
        }
        assert_eq!(Header { part: 10, ..header }.length(), None);
        assert_eq!(Header { part_bytes: 0, ..header }.length(), None);
        assert_eq!(Header { part: 0, total: 0, ..header }.length(), Some(0));
    }

    proptest! {
        /// Nothing is lost, and no part lies outside of its message.
        #[test]
        fn what_was_parsed_is_written_again(
            mut bytes in vec(any::<u8>(), HEADER_BYTES..200),
            kind in 1..=13u8,
        ) {
            bytes[..4].copy_from_slice(&MAGIC);
            bytes[4] = kind;
            bytes[10] &= 1;
            let (header, behind) = Header::parse(&bytes).unwrap();
            prop_assert_eq!(header.kind as u8, kind);
            prop_assert_eq!(&header.bytes()[..], &bytes[..HEADER_BYTES]);
            prop_assert_eq!(behind, &bytes[HEADER_BYTES..]);
            if let Some(length) = header.length() {
                prop_assert!(length <= header.part_bytes.into());
                prop_assert!(header.offset() + length as u64 <= header.total.into());
            }
        }

        /// Anything at all is refused or understood.
        #[test]
        fn nothing_panics(mut bytes in vec(any::<u8>(), 0..200), has_magic: bool) {
            if let (true, Some(front)) = (has_magic, bytes.first_chunk_mut()) {
                *front = MAGIC;
            }
            if let Some((header, _)) = Header::parse(&bytes) {
                let _ = (header.length(), header.offset(), Reason::of(header.reason).status());
            }
            if let Some(part) = described(&bytes) {
                prop_assert!(part.part < part.parts);
            }
        }
    }
}
