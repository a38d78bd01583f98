//! A packet of MRC, from the BTH to the ICRC: its headers as a value, and the bytes of that value.

use core::fmt;

use super::{
    CcState, Eeth, Erth, Meth, MrcBth, MrcHeaderSet, MrcOpcode, Neth, NextHeader, Peth, Seth, Tseth,
};
use crate::wire::{Aeth, ICRC_BYTES, ImmDt, Reth};

/// Headers of a data packet, after the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteHeaders {
    /// Message that the packet belongs to.
    pub meth: Meth,
    /// Time of transmission.
    pub tseth: Option<Tseth>,
    /// Address of the data of this packet, with its key. The length is that of the whole message.
    pub reth: Reth,
    /// Immediate data, only in packets whose opcode has it.
    pub imm: Option<ImmDt>,
}

/// The headers after the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // each variant is documented by its type
pub enum MrcBody {
    Write(WriteHeaders),
    Acknowledge(Aeth),
    EndpointRequest(Erth),
    EndpointResponse(Eeth),
    Sack(Seth, CcState),
    Nack(Neth),
    Probe(Peth),
}

/// The headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MrcHeaders {
    pub bth: MrcBth,
    pub body: MrcBody,
}

/// The reason why bytes are no packet of MRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MrcPacketError {
    /// The first byte is no opcode of MRC.
    Opcode(u8),
    /// The bytes end within a header.
    Short,
    /// A version, type or next header does not exist.
    UnknownHeader,
    /// The padding is longer than the bytes after the headers, or the length is no multiple of 4.
    Padding,
    /// Bytes follow the headers of a packet that carries no data.
    Payload,
}

impl fmt::Display for MrcPacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MrcPacketError::Opcode(byte) => write!(f, "{byte:#04x} is no opcode of MRC"),
            MrcPacketError::Short => f.write_str("packet is cut off within its headers"),
            MrcPacketError::UnknownHeader => f.write_str("packet has a header of a later version"),
            MrcPacketError::Padding => f.write_str("pad and length do not fit"),
            MrcPacketError::Payload => f.write_str("packet carries data that its opcode has not"),
        }
    }
}

impl core::error::Error for MrcPacketError {}

impl From<NextHeader> for MrcPacketError {
    fn from(reason: NextHeader) -> MrcPacketError {
        match reason {
            NextHeader::Short => MrcPacketError::Short,
            NextHeader::Unknown => MrcPacketError::UnknownHeader,
        }
    }
}

/// A packet whose headers were parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MrcPacket<'a> {
    /// Headers of the packet.
    pub headers: MrcHeaders,
    /// Data of the packet.
    pub payload: &'a [u8],
}

/// The remaining headers of a packet whose data a switch has cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimmedPacket {
    /// BTH of the packet.
    pub bth: MrcBth,
    /// Time of transmission, if its header remains.
    pub tseth: Option<Tseth>,
}

/// Parses a header at the front of the bytes and moves past it.
macro_rules! take {
    ($bytes:ident, $header:ident) => {{
        let header = $header::parse($bytes).ok_or(MrcPacketError::Short)?;
        $bytes = $bytes.get($header::LEN..).unwrap_or_default();
        header
    }};
    ($bytes:ident, $header:ident, checked) => {{
        let header = $header::parse($bytes)?;
        $bytes = $bytes.get($header::LEN..).unwrap_or_default();
        header
    }};
}

fn bth_of(bytes: &[u8]) -> Result<MrcBth, MrcPacketError> {
    let first = *bytes.first().ok_or(MrcPacketError::Short)?;
    MrcOpcode::from_byte(first).ok_or(MrcPacketError::Opcode(first))?;
    let bth = MrcBth::parse(bytes).ok_or(MrcPacketError::Short)?;
    if bth.version == 0 { Ok(bth) } else { Err(MrcPacketError::UnknownHeader) }
}

impl<'a> MrcPacket<'a> {
    /// Parses a packet, from BTH to ICRC. The ICRC is not checked.
    ///
    /// # Errors
    /// The bytes are no packet of MRC.
    pub fn parse(bytes: &'a [u8]) -> Result<MrcPacket<'a>, MrcPacketError> {
        let bth = bth_of(bytes)?;
        let (packet, _) = bytes.split_last_chunk::<ICRC_BYTES>().ok_or(MrcPacketError::Short)?;
        let mut rest = packet.get(MrcBth::LEN..).ok_or(MrcPacketError::Short)?;
        let headers = bth.opcode.info().headers;
        let body = match headers {
            MrcHeaderSet::Write | MrcHeaderSet::WriteImm => {
                let meth = take!(rest, Meth);
                let tseth = if bth.has_timestamp { Some(take!(rest, Tseth)) } else { None };
                let reth = take!(rest, Reth);
                let imm = if headers == MrcHeaderSet::WriteImm { Some(take!(rest, ImmDt)) } else { None };
                MrcBody::Write(WriteHeaders { meth, tseth, reth, imm })
            }
            MrcHeaderSet::Aeth => MrcBody::Acknowledge(take!(rest, Aeth)),
            MrcHeaderSet::Erth => MrcBody::EndpointRequest(take!(rest, Erth, checked)),
            MrcHeaderSet::Eeth => MrcBody::EndpointResponse(take!(rest, Eeth, checked)),
            MrcHeaderSet::Seth => {
                let seth = take!(rest, Seth, checked);
                MrcBody::Sack(seth, take!(rest, CcState))
            }
            MrcHeaderSet::Neth => MrcBody::Nack(take!(rest, Neth, checked)),
            MrcHeaderSet::Peth => MrcBody::Probe(take!(rest, Peth, checked)),
        };
        let pad_count = usize::from(bth.pad_count);
        let length = rest.len().checked_sub(pad_count).ok_or(MrcPacketError::Padding)?;
        if rest.len() % 4 != 0 {
            return Err(MrcPacketError::Padding);
        }
        if !bth.opcode.is_write() && !rest.is_empty() {
            return Err(MrcPacketError::Payload);
        }
        let payload = rest.get(..length).unwrap_or_default();
        Ok(MrcPacket { headers: MrcHeaders { bth, body }, payload })
    }
}

impl TrimmedPacket {
    /// Parses what remains of a WRITE, at least a BTH. The ICRC is missing or wrong and is not checked.
    ///
    /// # Errors
    /// The BTH is missing, or the packet was no data packet.
    pub fn parse(bytes: &[u8]) -> Result<TrimmedPacket, MrcPacketError> {
        let bth = bth_of(bytes)?;
        if !bth.opcode.is_write() {
            return Err(MrcPacketError::Payload);
        }
        let stamp = bytes.get(MrcBth::LEN + Meth::LEN..).filter(|_| bth.has_timestamp);
        Ok(TrimmedPacket { bth, tseth: stamp.and_then(Tseth::parse) })
    }
}

impl MrcHeaders {
    /// Returns the length in bytes of all headers of a data packet.
    pub const fn write_len(has_timestamp: bool, has_imm: bool) -> usize {
        let stamp = if has_timestamp { Tseth::LEN } else { 0 };
        let imm = if has_imm { ImmDt::LEN } else { 0 };
        MrcBth::LEN + Meth::LEN + stamp + Reth::LEN + imm
    }

    /// Returns the length in bytes of all headers, BTH included.
    #[allow(clippy::len_without_is_empty)] // there is always a BTH
    pub const fn len(&self) -> usize {
        match &self.body {
            MrcBody::Write(write) => MrcHeaders::write_len(write.tseth.is_some(), write.imm.is_some()),
            MrcBody::Acknowledge(_) => MrcBth::LEN + Aeth::LEN,
            MrcBody::EndpointRequest(_) => MrcBth::LEN + Erth::LEN,
            MrcBody::EndpointResponse(_) => MrcBth::LEN + Eeth::LEN,
            MrcBody::Sack(..) => MrcBth::LEN + Seth::LEN + CcState::LEN,
            MrcBody::Nack(_) => MrcBth::LEN + Neth::LEN,
            MrcBody::Probe(_) => MrcBth::LEN + Peth::LEN,
        }
    }

    /// Returns the length in bytes of the whole packet: headers, data of `payload_bytes`, padding and ICRC.
    pub const fn packet_len(&self, payload_bytes: usize) -> usize {
        self.len() + payload_bytes.next_multiple_of(4) + ICRC_BYTES
    }

    /// Writes the headers and the padding of a packet with `payload_bytes` bytes of data to the start of
    /// `out`. Returns the part of `out` for the data, which the caller fills; `None` if `out` is too short,
    /// and then nothing is written. The pad count and the time stamp flag are derived from the other values.
    pub fn emit<'a>(&self, payload_bytes: usize, out: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let header_bytes = self.len();
        let pad_count = payload_bytes.wrapping_neg() & 3;
        let whole = out.get_mut(..header_bytes + payload_bytes + pad_count)?;
        let (head, behind) = whole.split_at_mut_checked(header_bytes)?;
        let has_timestamp = matches!(&self.body, MrcBody::Write(write) if write.tseth.is_some());
        let bth = MrcBth { pad_count: pad_count as u8, has_timestamp, ..self.bth };
        let mut at = HeaderWriter { rest: head };
        at.put(&bth.bytes());
        match &self.body {
            MrcBody::Write(write) => {
                at.put(&write.meth.bytes());
                if let Some(tseth) = &write.tseth {
                    at.put(&tseth.bytes());
                }
                let mut reth = [0; Reth::LEN];
                write.reth.emit(&mut reth);
                at.put(&reth);
                if let Some(ImmDt(imm)) = &write.imm {
                    at.put(imm);
                }
            }
            MrcBody::Acknowledge(aeth) => {
                let mut bytes = [0; Aeth::LEN];
                aeth.emit(&mut bytes);
                at.put(&bytes);
            }
            MrcBody::EndpointRequest(erth) => at.put(&erth.bytes()),
            MrcBody::EndpointResponse(eeth) => at.put(&eeth.bytes()),
            MrcBody::Sack(seth, state) => {
                at.put(&seth.bytes());
                at.put(&state.bytes());
            }
            MrcBody::Nack(neth) => at.put(&neth.bytes()),
            MrcBody::Probe(peth) => at.put(&peth.bytes()),
        }
        let (payload, pad) = behind.split_at_mut_checked(payload_bytes)?;
        pad.fill(0);
        Some(payload)
    }
}

/// A cursor over the bytes that the next headers are written to.
struct HeaderWriter<'a> {
    rest: &'a mut [u8],
}

impl HeaderWriter<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let rest = core::mem::take(&mut self.rest);
        if let Some((room, behind)) = rest.split_at_mut_checked(bytes.len()) {
            room.copy_from_slice(bytes);
            self.rest = behind;
        }
    }
}
