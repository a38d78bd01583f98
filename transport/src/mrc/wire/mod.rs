//! Packets of MRC. Each header is a plain value that is parsed from bytes and serialized to bytes.

mod bth;
mod packet;
mod probe;
#[cfg(any(test, kani))]
mod proofs;
mod sack;

pub use bth::{MRC_OPCODES, MrcBth, MrcHeaderSet, MrcOpcode, MrcOpcodeInfo};
pub use packet::{MrcBody, MrcHeaders, MrcPacket, MrcPacketError, TrimmedPacket, WriteHeaders};
pub use probe::{Eeth, EndpointOperation, Erth, Meth, Peth, TIMESTAMP_UNIT_NS, Tseth, since_timestamp_ns};
pub use sack::{CcState, NackReason, Neth, PathMark, SackTrigger, Seth};

/// The reason why a control header cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHeader {
    /// The bytes end within the header.
    Short,
    /// The header's type or operation does not exist.
    Unknown,
}

/// The first 9 bits of each control header: its type and that of the next header, both 0.
struct ControlHeaderType;

impl ControlHeaderType {
    const fn check(first: u8, second: u8) -> Result<(), NextHeader> {
        if first == 0 && second & 0x80 == 0 { Ok(()) } else { Err(NextHeader::Unknown) }
    }
}
