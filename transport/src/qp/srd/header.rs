//! The header of SRD between two pumice devices, in front of the payload of a datagram. Adapters use another
//! one, which is not public.

use crate::qp::NumberedPart;
use crate::types::WcStatus;

/// Length of the header in bytes.
pub(crate) const HEADER_BYTES: usize = 60;
/// Longest SEND in bytes.
pub(crate) const MAX_SEND_BYTES: u32 = 8928;
/// Longest RDMA in bytes.
pub(crate) const MAX_RDMA_BYTES: u32 = 1 << 30;
const MAGIC: [u8; 4] = *b"SRD1";

/// Kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SrdPacketKind {
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
    /// A part of an RDMA READ's data.
    Data = 6,
    /// An answer that says which parts have arrived.
    Progress = 7,
    /// An answer that says that no receive request is posted.
    NotReady = 8,
    /// An answer that says that the message has been executed, or refused.
    Done = 9,
}

impl SrdPacketKind {
    const ALL: [SrdPacketKind; 9] = [
        SrdPacketKind::Send,
        SrdPacketKind::SendImm,
        SrdPacketKind::Write,
        SrdPacketKind::WriteImm,
        SrdPacketKind::Read,
        SrdPacketKind::Data,
        SrdPacketKind::Progress,
        SrdPacketKind::NotReady,
        SrdPacketKind::Done,
    ];

    /// Reports whether the packet is for the side that receives messages.
    pub(crate) const fn is_request(self) -> bool {
        (self as u8) <= SrdPacketKind::Read as u8
    }

    /// Reports whether the message takes a receive request.
    pub(crate) const fn takes_receive(self) -> bool {
        matches!(self, SrdPacketKind::Send | SrdPacketKind::SendImm | SrdPacketKind::WriteImm)
    }

    /// Reports whether the packet has immediate data.
    pub(crate) const fn has_imm(self) -> bool {
        matches!(self, SrdPacketKind::SendImm | SrdPacketKind::WriteImm)
    }

    /// Returns the kind in words.
    const fn name(self) -> &'static str {
        match self {
            SrdPacketKind::Send => "SEND",
            SrdPacketKind::SendImm => "SEND_WITH_IMM",
            SrdPacketKind::Write => "RDMA_WRITE",
            SrdPacketKind::WriteImm => "RDMA_WRITE_WITH_IMM",
            SrdPacketKind::Read => "RDMA_READ",
            SrdPacketKind::Data => "data of RDMA_READ",
            SrdPacketKind::Progress => "answer: parts came",
            SrdPacketKind::NotReady => "answer: no receive request",
            SrdPacketKind::Done => "answer: ended",
        }
    }

    /// Reports whether the data goes into a receive request.
    pub(crate) const fn is_send(self) -> bool {
        matches!(self, SrdPacketKind::Send | SrdPacketKind::SendImm)
    }

    /// Reports whether the packet has data behind the header.
    pub(crate) const fn carries_data(self) -> bool {
        (self as u8) <= SrdPacketKind::WriteImm as u8 || matches!(self, SrdPacketKind::Data)
    }
}

/// Reason why a message was not executed: the numbers of EFA's completions, as in `vendor_err`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SrdReason {
    /// The message was executed.
    None = 0,
    /// The queue pair went to ERR.
    Flushed = 1,
    /// The local buffers cannot be used.
    LocalKey = 5,
    /// The message is too long.
    Length = 6,
    /// The remote memory cannot be used.
    RemoteKey = 7,
    /// The receive request at the peer cannot be used.
    RemoteAbort = 8,
    /// The peer's adapter has no such queue pair.
    NoQueuePair = 9,
    /// The peer has no receive request.
    NotReady = 10,
    /// The message is longer than its receive request.
    RemoteLength = 11,
    /// The peer's answer is not valid.
    BadAnswer = 12,
    /// The peer does not answer.
    Unresponsive = 13,
    /// The peer has no address handle of this adapter.
    UnknownPeer = 14,
}

impl SrdReason {
    /// Returns the reason with this number; an unknown number is a bad answer.
    pub(crate) const fn of(number: u8) -> SrdReason {
        match number {
            0 => SrdReason::None,
            7 => SrdReason::RemoteKey,
            8 => SrdReason::RemoteAbort,
            10 => SrdReason::NotReady,
            11 => SrdReason::RemoteLength,
            14 => SrdReason::UnknownPeer,
            _ => SrdReason::BadAnswer,
        }
    }

    /// Returns the status of the completion.
    pub(crate) const fn status(self) -> WcStatus {
        match self {
            SrdReason::None => WcStatus::Success,
            SrdReason::Flushed => WcStatus::WrFlushErr,
            SrdReason::LocalKey => WcStatus::LocProtErr,
            SrdReason::Length => WcStatus::LocLenErr,
            SrdReason::RemoteKey => WcStatus::RemAccessErr,
            SrdReason::RemoteAbort => WcStatus::RemAbortErr,
            SrdReason::NoQueuePair => WcStatus::RemInvRdReqErr,
            SrdReason::NotReady => WcStatus::RnrRetryExcErr,
            SrdReason::RemoteLength => WcStatus::RemInvReqErr,
            SrdReason::BadAnswer => WcStatus::BadRespErr,
            SrdReason::Unresponsive => WcStatus::RespTimeoutErr,
            SrdReason::UnknownPeer => WcStatus::RemOpErr,
        }
    }
}

/// Contents of a packet's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SrdHeader {
    pub(crate) kind: SrdPacketKind,
    /// Result of the message, in an answer. In a request that is not tried again: the result if there is no
    /// receive request.
    pub(crate) reason: u8,
    /// Length in bytes of each part but the last.
    pub(crate) part_bytes: u16,
    /// Q_Key of the requester, for the answers.
    pub(crate) qkey: u32,
    /// Epoch: distinguishes a queue pair from an earlier one with its number.
    pub(crate) epoch: u64,
    /// Number of the message among those from one queue pair to another.
    pub(crate) message: u64,
    /// In a request, the number below which all messages have ended. In an answer, the bits of the parts that
    /// have arrived from `part` on.
    pub(crate) floor: u64,
    /// In a request, the index of the part. In an answer, the first part that has not arrived.
    pub(crate) part: u32,
    /// Length of the message in bytes.
    pub(crate) total: u32,
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    pub(crate) imm: [u8; 4],
}

/// Takes bytes from the front.
pub(crate) fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(first)
}

impl SrdHeader {
    /// Reads the header at the beginning of a payload, and returns what follows; `None` if there is no such
    /// header.
    pub(crate) fn parse(payload: &[u8]) -> Option<(SrdHeader, &[u8])> {
        let mut rest = payload;
        if *take::<4>(&mut rest)? != MAGIC {
            return None;
        }
        let [kind, reason, high, low] = *take::<4>(&mut rest)?;
        let kind = *SrdPacketKind::ALL.get(usize::from(kind).checked_sub(1)?)?;
        let header = SrdHeader {
            kind,
            reason,
            part_bytes: u16::from_be_bytes([high, low]),
            qkey: u32::from_be_bytes(*take(&mut rest)?),
            epoch: u64::from_be_bytes(*take(&mut rest)?),
            message: u64::from_be_bytes(*take(&mut rest)?),
            floor: u64::from_be_bytes(*take(&mut rest)?),
            part: u32::from_be_bytes(*take(&mut rest)?),
            total: u32::from_be_bytes(*take(&mut rest)?),
            address: u64::from_be_bytes(*take(&mut rest)?),
            rkey: u32::from_be_bytes(*take(&mut rest)?),
            imm: *take(&mut rest)?,
        };
        Some((header, rest))
    }

    /// Returns the bytes on the wire.
    pub(crate) fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut start = 0;
        let [high, low] = self.part_bytes.to_be_bytes();
        for field in [
            &MAGIC[..],
            &[self.kind as u8, self.reason, high, low],
            &self.qkey.to_be_bytes(),
            &self.epoch.to_be_bytes(),
            &self.message.to_be_bytes(),
            &self.floor.to_be_bytes(),
            &self.part.to_be_bytes(),
            &self.total.to_be_bytes(),
            &self.address.to_be_bytes(),
            &self.rkey.to_be_bytes(),
            &self.imm,
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
        parts_of(self.total, self.part_bytes)
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
    let (header, _) = SrdHeader::parse(payload)?;
    Some(NumberedPart {
        service: "SRD",
        kind: header.kind.name(),
        message: header.message,
        // An answer may say that the last part has arrived.
        part: header.part.min(header.parts() - 1),
        parts: header.parts(),
        length_bytes: header.total,
        stream: None,
    })
}

/// Returns the number of parts of a message: an empty one has one.
pub(crate) fn parts_of(total: u32, part_bytes: u16) -> u32 {
    total.div_ceil(u32::from(part_bytes.max(1))).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_comes_back_from_its_bytes_and_half_of_one_does_not() {
        let header = SrdHeader {
            kind: SrdPacketKind::WriteImm,
            reason: 3,
            part_bytes: 968,
            qkey: 0x1111_1111,
            epoch: 0x0102_0304_0506_0708,
            message: 77,
            floor: 70,
            part: 9,
            total: 8928,
            address: 0xffee_ddcc_bbaa_9988,
            rkey: 0x42,
            imm: [1, 2, 3, 4],
        };
        let bytes = header.bytes();
        assert_eq!(SrdHeader::parse(&bytes), Some((header, &[][..])));
        assert_eq!((header.parts(), header.offset(), header.length()), (10, 8712, Some(216)));
        for length in 0..bytes.len() {
            assert_eq!(SrdHeader::parse(&bytes[..length]), None, "{length}");
        }
        for wrong in [0, 10, 255] {
            let mut bytes = bytes;
            bytes[4] = wrong;
            assert_eq!(SrdHeader::parse(&bytes), None, "kind {wrong}");
        }
        assert_eq!(SrdHeader { part: 10, ..header }.length(), None);
        assert_eq!(SrdHeader { part_bytes: 0, ..header }.length(), None);
        assert_eq!(SrdHeader { part: 0, total: 0, ..header }.length(), Some(0));
    }

    proptest! {
        /// A header that is parsed is written again unchanged, and its part lies inside of its message.
        #[test]
        fn what_was_parsed_is_written_again(
            mut bytes in vec(any::<u8>(), HEADER_BYTES..200),
            kind in 1..=9u8,
        ) {
            bytes[..4].copy_from_slice(&MAGIC);
            bytes[4] = kind;
            let (header, behind) = SrdHeader::parse(&bytes).unwrap();
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
            if let Some((header, _)) = SrdHeader::parse(&bytes) {
                let _ = (header.length(), header.offset(), SrdReason::of(header.reason).status());
            }
            if let Some(part) = described(&bytes) {
                prop_assert!(part.part < part.parts);
            }
        }
    }
}
