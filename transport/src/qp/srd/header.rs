//! The header of SRD between two pumice devices, in front of the payload of a datagram. Adapters have another
//! one, which is not public.

use crate::qp::NumberedPart;
use crate::types::WcStatus;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 60;
/// Longest SEND in bytes.
pub(crate) const MAX_SEND_BYTES: u32 = 8928;
/// Longest RDMA in bytes.
pub(crate) const MAX_RDMA_BYTES: u32 = 1 << 30;
const MAGIC: [u8; 4] = *b"SRD1";

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
    /// A part of what an RDMA READ asked for.
    Data = 6,
    /// An answer: which parts have arrived.
    Progress = 7,
    /// An answer: no receive request is posted.
    NotReady = 8,
    /// An answer: the message has been carried out, or refused.
    Done = 9,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::Send,
        Kind::SendImm,
        Kind::Write,
        Kind::WriteImm,
        Kind::Read,
        Kind::Data,
        Kind::Progress,
        Kind::NotReady,
        Kind::Done,
    ];

    /// It is for the side that receives messages.
    pub(crate) const fn is_request(self) -> bool {
        (self as u8) <= Kind::Read as u8
    }

    /// It takes a receive request.
    pub(crate) const fn takes_receive(self) -> bool {
        matches!(self, Kind::Send | Kind::SendImm | Kind::WriteImm)
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
            Kind::Data => "data of RDMA_READ",
            Kind::Progress => "answer: parts came",
            Kind::NotReady => "answer: no receive request",
            Kind::Done => "answer: ended",
        }
    }

    /// Its data goes into a receive request.
    pub(crate) const fn is_send(self) -> bool {
        matches!(self, Kind::Send | Kind::SendImm)
    }

    /// The packet has data behind the header.
    pub(crate) const fn carries_data(self) -> bool {
        (self as u8) <= Kind::WriteImm as u8 || matches!(self, Kind::Data)
    }
}

/// Why a message was not carried out: the numbers of EFA's completions, as `vendor_err` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// It was.
    None = 0,
    /// The queue pair went to ERR.
    Flushed = 1,
    /// Its buffers cannot be used.
    LocalKey = 5,
    /// It is too long.
    Length = 6,
    /// The remote memory cannot be used.
    RemoteKey = 7,
    /// The receive request at the peer cannot be used.
    RemoteAbort = 8,
    /// The peer's adapter has no such queue pair.
    NoQueuePair = 9,
    /// The peer has no receive request.
    NotReady = 10,
    /// It is longer than its receive request.
    RemoteLength = 11,
    /// The peer's answer makes no sense.
    BadAnswer = 12,
    /// The peer does not answer.
    Unresponsive = 13,
    /// The peer has no address handle of this adapter.
    UnknownPeer = 14,
}

impl Reason {
    /// The reason of this number; one that is not known is a bad answer.
    pub(crate) const fn of(number: u8) -> Reason {
        match number {
            0 => Reason::None,
            7 => Reason::RemoteKey,
            8 => Reason::RemoteAbort,
            10 => Reason::NotReady,
            11 => Reason::RemoteLength,
            14 => Reason::UnknownPeer,
            _ => Reason::BadAnswer,
        }
    }

    /// The status of the completion.
    pub(crate) const fn status(self) -> WcStatus {
        match self {
            Reason::None => WcStatus::Success,
            Reason::Flushed => WcStatus::WrFlushErr,
            Reason::LocalKey => WcStatus::LocProtErr,
            Reason::Length => WcStatus::LocLenErr,
            Reason::RemoteKey => WcStatus::RemAccessErr,
            Reason::RemoteAbort => WcStatus::RemAbortErr,
            Reason::NoQueuePair => WcStatus::RemInvRdReqErr,
            Reason::NotReady => WcStatus::RnrRetryExcErr,
            Reason::RemoteLength => WcStatus::RemInvReqErr,
            Reason::BadAnswer => WcStatus::BadRespErr,
            Reason::Unresponsive => WcStatus::RespTimeoutErr,
            Reason::UnknownPeer => WcStatus::RemOpErr,
        }
    }
}

/// What a packet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Of an answer: how the message ended. Of a request that is not tried again: what the message ends with
    /// if no receive request is there.
    pub(crate) reason: u8,
    /// Bytes of each part but the last.
    pub(crate) part_bytes: u16,
    /// Q_Key of who asks, for the answers.
    pub(crate) qkey: u32,
    /// Tells a queue pair from an earlier one of its number.
    pub(crate) epoch: u64,
    /// Number of the message among those from one queue pair to another.
    pub(crate) message: u64,
    /// Of a request: messages below have ended. Of an answer: the parts that have arrived from `part` on.
    pub(crate) floor: u64,
    /// Of a request: which part. Of an answer: the first part that has not arrived.
    pub(crate) part: u32,
    /// Bytes of the message.
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

impl Header {
    /// The header at the beginning of a payload, and what follows. `None`: it is none.
    pub(crate) fn parse(payload: &[u8]) -> Option<(Header, &[u8])> {
        let mut rest = payload;
        if *take::<4>(&mut rest)? != MAGIC {
            return None;
        }
        let [kind, reason, high, low] = *take::<4>(&mut rest)?;
        let kind = *Kind::ALL.get(usize::from(kind).checked_sub(1)?)?;
        let header = Header {
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

    /// As it travels.
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

    /// Where its part begins in the message.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.part) * u64::from(self.part_bytes)
    }

    /// Parts of its message.
    pub(crate) fn parts(&self) -> u32 {
        parts_of(self.total, self.part_bytes)
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
        service: "SRD",
        kind: header.kind.name(),
        message: header.message,
        // An answer may say that the last part has come.
        part: header.part.min(header.parts() - 1),
        parts: header.parts(),
        length_bytes: header.total,
        stream: None,
    })
}

/// Parts of a message: an empty one has one.
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
        let header = Header {
            kind: Kind::WriteImm,
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
        assert_eq!(Header::parse(&bytes), Some((header, &[][..])));
        assert_eq!((header.parts(), header.offset(), header.length()), (10, 8712, Some(216)));
        for length in 0..bytes.len() {
            assert_eq!(Header::parse(&bytes[..length]), None, "{length}");
        }
        for wrong in [0, 10, 255] {
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
            kind in 1..=9u8,
        ) {
            bytes[..4].copy_from_slice(&MAGIC);
            bytes[4] = kind;
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
