//! A whole packet, BTH to ICRC: the checked view and the value of its headers.

use core::fmt;

use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, HeaderSet, Ieth, ImmDt, OpcodeInfo, Operation,
    PayloadRule, Reth, XrcEth,
};

/// Bytes of the ICRC.
const ICRC_LEN: usize = 4;
/// Zero bytes that follow the BTH of a CNP.
const CNP_RESERVED_LEN: usize = 16;

/// Why bytes are not a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketError {
    /// Shorter than BTH and ICRC, or than the headers that the opcode has.
    TooShort,
    /// The transport version is not 0.
    BadVersion,
    /// The opcode does not exist on RoCE.
    UnknownOpcode,
    /// More pad bytes than bytes.
    BadPad,
    /// The payload is not of the length that the opcode has.
    BadLength,
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PacketError::TooShort => "shorter than its headers",
            PacketError::BadVersion => "the transport version is not 0",
            PacketError::UnknownOpcode => "the opcode does not exist on RoCE",
            PacketError::BadPad => "more pad bytes than bytes",
            PacketError::BadLength => "the payload length does not fit the opcode",
        })
    }
}

impl core::error::Error for PacketError {}

/// A view of one packet: the UDP payload, BTH to ICRC. Lengths and opcode are checked; what depends
/// on the queue pair (path MTU, sequence) and the ICRC are not.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    bth: Bth,
    info: &'static OpcodeInfo,
    bytes: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks a UDP payload.
    ///
    /// # Errors
    /// Version, opcode, length or pad count is wrong.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, PacketError> {
        let body_bytes =
            bytes.len().checked_sub(ICRC_LEN).filter(|n| *n >= Bth::LEN).ok_or(PacketError::TooShort)?;
        let bth = Bth::parse(bytes).ok_or(PacketError::TooShort)?;
        if bth.version != 0 {
            return Err(PacketError::BadVersion);
        }
        let info = bth.opcode.info().ok_or(PacketError::UnknownOpcode)?;
        let padded = bytes.get(info.header_bytes..body_bytes).ok_or(PacketError::TooShort)?;
        let payload_bytes =
            padded.len().checked_sub(usize::from(bth.pad_count)).ok_or(PacketError::BadPad)?;
        let payload = padded.get(..payload_bytes).ok_or(PacketError::BadPad)?;
        let legal = match info.payload {
            PayloadRule::None => padded.is_empty(),
            PayloadRule::Eight => padded.len() == 8 && bth.pad_count == 0,
            PayloadRule::Mtu | PayloadRule::OneToMtu | PayloadRule::ZeroToMtu => true,
        };
        if !legal {
            return Err(PacketError::BadLength);
        }
        Ok(Packet { bth, info, bytes, payload })
    }

    /// Base transport header.
    pub fn bth(&self) -> &Bth {
        &self.bth
    }

    /// What the opcode means.
    pub fn info(&self) -> &'static OpcodeInfo {
        self.info
    }

    /// Operation of the opcode.
    pub fn operation(&self) -> Operation {
        self.info.operation
    }

    /// Payload without pad.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The whole UDP payload.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The ICRC as it stands in the packet (little-endian).
    pub fn icrc(&self) -> u32 {
        self.bytes.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// The bytes of an extension header, if the opcode has it.
    fn extension(&self, wanted: HeaderSet) -> Option<&'a [u8]> {
        if !self.info.headers.contains(wanted) {
            return None;
        }
        // Headers come in the order of their bits.
        let before = self.info.headers.bits() & (wanted.bits() - 1);
        let offset = Bth::LEN + HeaderSet::from_bits_truncate(before).bytes();
        self.bytes.get(offset..)
    }

    /// XRCETH, on XRC requests.
    pub fn xrceth(&self) -> Option<XrcEth> {
        self.extension(HeaderSet::XRCETH).and_then(XrcEth::parse)
    }

    /// DETH, on datagrams.
    pub fn deth(&self) -> Option<Deth> {
        self.extension(HeaderSet::DETH).and_then(Deth::parse)
    }

    /// FETH, on FLUSH.
    pub fn feth(&self) -> Option<Feth> {
        self.extension(HeaderSet::FETH).and_then(Feth::parse)
    }

    /// RETH, on WRITE First and Only, READ, FLUSH and ATOMIC WRITE.
    pub fn reth(&self) -> Option<Reth> {
        self.extension(HeaderSet::RETH).and_then(Reth::parse)
    }

    /// AtomicETH, on CmpSwap and FetchAdd.
    pub fn atomic_eth(&self) -> Option<AtomicEth> {
        self.extension(HeaderSet::ATOMIC_ETH).and_then(AtomicEth::parse)
    }

    /// AETH, on responses except READ Middle.
    pub fn aeth(&self) -> Option<Aeth> {
        self.extension(HeaderSet::AETH).and_then(Aeth::parse)
    }

    /// AtomicAckETH, on atomic responses.
    pub fn atomic_ack_eth(&self) -> Option<AtomicAckEth> {
        self.extension(HeaderSet::ATOMIC_ACK_ETH).and_then(AtomicAckEth::parse)
    }

    /// Immediate data.
    pub fn imm(&self) -> Option<ImmDt> {
        self.extension(HeaderSet::IMM).and_then(ImmDt::parse)
    }

    /// IETH, on SEND with invalidate.
    pub fn ieth(&self) -> Option<Ieth> {
        self.extension(HeaderSet::IETH).and_then(Ieth::parse)
    }

    /// The value of all headers.
    pub fn headers(&self) -> Headers {
        Headers {
            bth: self.bth,
            xrceth: self.xrceth(),
            deth: self.deth(),
            feth: self.feth(),
            reth: self.reth(),
            atomic_eth: self.atomic_eth(),
            aeth: self.aeth(),
            atomic_ack_eth: self.atomic_ack_eth(),
            imm: self.imm(),
            ieth: self.ieth(),
        }
    }
}

/// The headers of a packet as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// XRC requests.
    pub xrceth: Option<XrcEth>,
    /// Datagrams.
    pub deth: Option<Deth>,
    /// FLUSH.
    pub feth: Option<Feth>,
    /// One-sided requests.
    pub reth: Option<Reth>,
    /// Atomic requests.
    pub atomic_eth: Option<AtomicEth>,
    /// Responses.
    pub aeth: Option<Aeth>,
    /// Atomic responses.
    pub atomic_ack_eth: Option<AtomicAckEth>,
    /// Immediate data.
    pub imm: Option<ImmDt>,
    /// Key to invalidate.
    pub ieth: Option<Ieth>,
}

impl Headers {
    /// A BTH and nothing else.
    pub fn new(bth: Bth) -> Headers {
        Headers {
            bth,
            xrceth: None,
            deth: None,
            feth: None,
            reth: None,
            atomic_eth: None,
            aeth: None,
            atomic_ack_eth: None,
            imm: None,
            ieth: None,
        }
    }

    fn is_cnp(&self) -> bool {
        self.bth.opcode.byte() == Operation::Cnp as u8
    }

    /// Bytes of BTH and extension headers.
    #[allow(clippy::len_without_is_empty)] // never empty: the BTH is always there
    pub fn len(&self) -> usize {
        let mut length = Bth::LEN;
        let mut add = |present: bool, bytes: usize| {
            if present {
                length += bytes;
            }
        };
        add(self.xrceth.is_some(), XrcEth::LEN);
        add(self.deth.is_some(), Deth::LEN);
        add(self.feth.is_some(), Feth::LEN);
        add(self.reth.is_some(), Reth::LEN);
        add(self.atomic_eth.is_some(), AtomicEth::LEN);
        add(self.aeth.is_some(), Aeth::LEN);
        add(self.atomic_ack_eth.is_some(), AtomicAckEth::LEN);
        add(self.imm.is_some(), ImmDt::LEN);
        add(self.ieth.is_some(), Ieth::LEN);
        add(self.is_cnp(), CNP_RESERVED_LEN);
        length
    }

    /// Writes BTH and extension headers in wire order to the front of `out` and returns how many
    /// bytes that took; a header that finds no room is not written.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        self.bth.emit(out);
        let mut at = Bth::LEN;
        macro_rules! put {
            ($($header:ident: $kind:ident),*) => {$(
                if let Some(header) = &self.$header {
                    header.emit(out.get_mut(at..).unwrap_or_default());
                    at += $kind::LEN;
                }
            )*};
        }
        put!(xrceth: XrcEth, deth: Deth, feth: Feth, reth: Reth, atomic_eth: AtomicEth, aeth: Aeth,
             atomic_ack_eth: AtomicAckEth, imm: ImmDt, ieth: Ieth);
        if self.is_cnp() {
            if let Some(reserved) = out.get_mut(at..at + CNP_RESERVED_LEN) {
                reserved.fill(0);
            }
            at += CNP_RESERVED_LEN;
        }
        at
    }

    /// Writes headers, payload and zero pad (as many bytes as the BTH says) to the front of `out`
    /// and returns how many bytes that took; writes nothing and returns 0 if there is no room.
    pub fn emit_packet(&self, payload: &[u8], out: &mut [u8]) -> usize {
        let header_bytes = self.len();
        let payload_end = header_bytes + payload.len();
        let end = payload_end + usize::from(self.bth.pad_count);
        if out.len() < end {
            return 0;
        }
        self.emit(out);
        if let Some(body) = out.get_mut(header_bytes..payload_end) {
            body.copy_from_slice(payload);
        }
        if let Some(pad) = out.get_mut(payload_end..end) {
            pad.fill(0);
        }
        end
    }
}
