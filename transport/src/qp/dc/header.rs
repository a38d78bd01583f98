//! The header of DC between two pumice devices, in front of the payload of a datagram. Adapters use another
//! one, which is not public.

use crate::qp::NumberedPart;
use crate::qp::srd::{parts_of, take};
use crate::types::WcStatus;

/// Length of the header in bytes.
pub(crate) const HEADER_BYTES: usize = 68;
/// Length in bytes of the operands of an atomic, behind the header.
pub(crate) const OPERAND_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"DC 1";
/// Q_Key of the datagrams. Access is controlled by the access key in the header.
pub(crate) const QKEY: u32 = 0x8443_0000;

/// Kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DcPacketKind {
    /// A part of a SEND.
    Send = 1,
    /// A part of a SEND with immediate data.
    SendImm = 2,
    /// A part of an RDMA WRITE.
    Write = 3,
    /// A part of an RDMA WRITE with immediate data.
    WriteImm = 4,
    /// A request for a part of an RDMA READ.
    Read = 5,
    /// A compare and swap.
    CompareSwap = 6,
    /// A fetch and add.
    FetchAdd = 7,
    /// An answer: everything before a part of a message has been executed.
    Ack = 8,
    /// An answer like [`DcPacketKind::Ack`], which also says that the part is missing though later ones came.
    Behind = 9,
    /// An answer like [`DcPacketKind::Ack`], which also says that no receive request is posted for that
    /// message.
    NotReady = 10,
    /// A part of an RDMA READ's data.
    Data = 11,
    /// The original value that an atomic found.
    Value = 12,
    /// An answer: the message is refused, and all before it have been executed.
    Refused = 13,
}

impl DcPacketKind {
    const ALL: [DcPacketKind; 13] = [
        DcPacketKind::Send,
        DcPacketKind::SendImm,
        DcPacketKind::Write,
        DcPacketKind::WriteImm,
        DcPacketKind::Read,
        DcPacketKind::CompareSwap,
        DcPacketKind::FetchAdd,
        DcPacketKind::Ack,
        DcPacketKind::Behind,
        DcPacketKind::NotReady,
        DcPacketKind::Data,
        DcPacketKind::Value,
        DcPacketKind::Refused,
    ];

    /// Reports whether the packet is for the side that receives messages.
    pub(crate) const fn is_request(self) -> bool {
        (self as u8) < DcPacketKind::Ack as u8
    }

    /// Reports whether the packet has immediate data.
    pub(crate) const fn has_imm(self) -> bool {
        matches!(self, DcPacketKind::SendImm | DcPacketKind::WriteImm)
    }

    /// Returns the kind in words.
    const fn name(self) -> &'static str {
        match self {
            DcPacketKind::Send => "SEND",
            DcPacketKind::SendImm => "SEND_WITH_IMM",
            DcPacketKind::Write => "RDMA_WRITE",
            DcPacketKind::WriteImm => "RDMA_WRITE_WITH_IMM",
            DcPacketKind::Read => "RDMA_READ",
            DcPacketKind::CompareSwap => "ATOMIC_CMP_AND_SWP",
            DcPacketKind::FetchAdd => "ATOMIC_FETCH_AND_ADD",
            DcPacketKind::Ack => "answer: before this",
            DcPacketKind::Behind => "answer: this is missing",
            DcPacketKind::NotReady => "answer: no receive request",
            DcPacketKind::Data => "data of RDMA_READ",
            DcPacketKind::Value => "value of an atomic",
            DcPacketKind::Refused => "answer: refused",
        }
    }

    /// Reports whether the data goes into a receive request.
    pub(crate) const fn is_send(self) -> bool {
        matches!(self, DcPacketKind::Send | DcPacketKind::SendImm)
    }

    /// Reports whether the response carries data, which later messages do not wait for: a READ or an atomic.
    pub(crate) const fn returns(self) -> bool {
        matches!(self, DcPacketKind::Read | DcPacketKind::CompareSwap | DcPacketKind::FetchAdd)
    }

    /// Reports whether the packet is an atomic.
    pub(crate) const fn is_atomic(self) -> bool {
        matches!(self, DcPacketKind::CompareSwap | DcPacketKind::FetchAdd)
    }

    /// Reports whether parts of the message are behind the headers of its packets.
    pub(crate) const fn carries_parts(self) -> bool {
        (self as u8) <= DcPacketKind::WriteImm as u8 || matches!(self, DcPacketKind::Data)
    }
}

/// Reason why a message was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DcReason {
    /// The access key is not that of the target.
    AccessKey = 1,
    /// The remote memory cannot be accessed like this.
    Memory = 2,
    /// The message is longer than its receive request, or is not valid.
    Invalid = 3,
    /// The receive request at the target cannot be used.
    Operation = 4,
}

impl DcReason {
    /// Returns the reason with this number; an unknown number is an invalid request.
    pub(crate) const fn of(number: u8) -> DcReason {
        match number {
            1 => DcReason::AccessKey,
            2 => DcReason::Memory,
            4 => DcReason::Operation,
            _ => DcReason::Invalid,
        }
    }

    /// Returns the status with which the message completes at the initiator.
    pub(crate) const fn status(self) -> WcStatus {
        match self {
            DcReason::AccessKey | DcReason::Invalid => WcStatus::RemInvReqErr,
            DcReason::Memory => WcStatus::RemAccessErr,
            DcReason::Operation => WcStatus::RemOpErr,
        }
    }
}

/// Contents of a packet's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DcHeader {
    pub(crate) kind: DcPacketKind,
    /// Reason of a refusal.
    pub(crate) reason: u8,
    /// Length in bytes of each part but the last.
    pub(crate) part_bytes: u16,
    /// Stream of the initiator that the packet belongs to.
    pub(crate) stream: u16,
    /// True if the last part of the request raises a solicited event.
    pub(crate) solicited: bool,
    /// Delay of [`DcPacketKind::NotReady`], as a code of `min_rnr_timer`.
    pub(crate) rnr_timer: u8,
    /// Epoch: distinguishes the message sequence between an initiator's stream and a target from an earlier
    /// one.
    pub(crate) epoch: u64,
    /// Number of the message in that sequence.
    pub(crate) message: u64,
    /// Number of the request below which the initiator knows the results of all messages.
    pub(crate) floor: u64,
    /// Index of the part.
    pub(crate) part: u32,
    /// Length of the message in bytes.
    pub(crate) total: u32,
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    pub(crate) imm: [u8; 4],
    /// Access key of the target.
    pub(crate) key: u64,
}

impl DcHeader {
    /// Reads the header at the beginning of a payload, and returns what follows; `None` if there is no such
    /// header.
    pub(crate) fn parse(payload: &[u8]) -> Option<(DcHeader, &[u8])> {
        let mut rest = payload;
        if *take::<4>(&mut rest)? != MAGIC {
            return None;
        }
        let [kind, reason, high, low] = *take::<4>(&mut rest)?;
        let [stream_high, stream_low, solicited, rnr_timer] = *take::<4>(&mut rest)?;
        let header = DcHeader {
            kind: *DcPacketKind::ALL.get(usize::from(kind).checked_sub(1)?)?,
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

    /// Returns the bytes on the wire.
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

    /// Returns the offset of the part in the message.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.part) * u64::from(self.part_bytes)
    }

    /// Returns the number of parts of the message.
    pub(crate) fn parts(&self) -> u32 {
        if self.kind.is_atomic() { 1 } else { parts_of(self.total, self.part_bytes) }
    }

    /// Returns the length of the part in bytes; `None` if the message has no such part.
    pub(crate) fn length(&self) -> Option<usize> {
        if self.part_bytes == 0 || self.part >= self.parts() {
            return None;
        }
        let left = u64::from(self.total).checked_sub(self.offset())?;
        usize::try_from(left.min(self.part_bytes.into())).ok()
    }
}

/// Describes a datagram, for programs that show packets.
pub(crate) fn described(payload: &[u8]) -> Option<NumberedPart> {
    let (header, _) = DcHeader::parse(payload)?;
    Some(NumberedPart {
        service: "DC",
        kind: header.kind.name(),
        message: header.message,
        // An answer may say that the last part has arrived.
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
        let header = DcHeader {
            kind: DcPacketKind::WriteImm,
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
        assert_eq!(DcHeader::parse(&bytes), Some((header, &[][..])));
        assert_eq!((header.parts(), header.offset(), header.length()), (10, 8604, Some(324)));
        for length in 0..bytes.len() {
            assert_eq!(DcHeader::parse(&bytes[..length]), None, "{length}");
        }
        for wrong in [0, 14, 255] {
            let mut bytes = bytes;
            bytes[4] = wrong;
            assert_eq!(DcHeader::parse(&bytes), None, "kind {wrong}");
        }
        assert_eq!(DcHeader { part: 10, ..header }.length(), None);
        assert_eq!(DcHeader { part_bytes: 0, ..header }.length(), None);
        assert_eq!(DcHeader { part: 0, total: 0, ..header }.length(), Some(0));
    }

    proptest! {
        /// A header that is parsed is written again unchanged, and its part lies inside of its message.
        #[test]
        fn what_was_parsed_is_written_again(
            mut bytes in vec(any::<u8>(), HEADER_BYTES..200),
            kind in 1..=13u8,
        ) {
            bytes[..4].copy_from_slice(&MAGIC);
            bytes[4] = kind;
            bytes[10] &= 1;
            let (header, behind) = DcHeader::parse(&bytes).unwrap();
            prop_assert_eq!(header.kind as u8, kind);
            prop_assert_eq!(&header.bytes()[..], &bytes[..HEADER_BYTES]);
            prop_assert_eq!(behind, &bytes[HEADER_BYTES..]);
            if let Some(length) = header.length() {
                prop_assert!(length <= header.part_bytes.into());
                prop_assert!(header.offset() + length as u64 <= header.total.into());
            }
        }

        /// Arbitrary bytes are refused or parsed, without a panic.
        #[test]
        fn nothing_panics(mut bytes in vec(any::<u8>(), 0..200), has_magic: bool) {
            if let (true, Some(front)) = (has_magic, bytes.first_chunk_mut()) {
                *front = MAGIC;
            }
            if let Some((header, _)) = DcHeader::parse(&bytes) {
                let _ = (header.length(), header.offset(), DcReason::of(header.reason).status());
            }
            if let Some(part) = described(&bytes) {
                prop_assert!(part.part < part.parts);
            }
        }
    }
}
