//! The 24 bytes at the start of every MAD, and the checked view of a whole MAD.

use core::fmt;

use super::field::CmBody;

/// Length of a MAD in bytes.
pub const MAD_BYTES: usize = 256;
/// Length of a MAD's header in bytes.
pub const MAD_HEADER_BYTES: usize = 24;

/// Management classes of MADs.
pub mod class {
    /// Subnet management by LID: belongs to queue pair 0.
    pub const SUBNET_LID: u8 = 0x01;
    /// Subnet management by directed route: belongs to queue pair 0.
    pub const SUBNET_DIRECTED: u8 = 0x81;
    /// Subnet administration: path and multicast records. RoCE has no subnet administrator.
    pub const SUBNET_ADMINISTRATION: u8 = 0x03;
    /// Performance counters.
    pub const PERFORMANCE: u8 = 0x04;
    /// Communication management.
    pub const COMMUNICATION: u8 = 0x07;
}

/// Methods of MADs.
pub mod method {
    /// Read an attribute.
    pub const GET: u8 = 0x01;
    /// Change an attribute.
    pub const SET: u8 = 0x02;
    /// Send a message that is no access to an attribute: the method of all CM messages.
    pub const SEND: u8 = 0x03;
    /// The answer to GET and SET.
    pub const GET_RESPONSE: u8 = 0x81;
}

/// Attributes of communication management.
pub mod attribute {
    /// ClassPortInfo, of every class.
    pub const CLASS_PORT_INFO: u16 = 0x0001;
    /// Request.
    pub const REQ: u16 = 0x0010;
    /// Message receipt acknowledgement.
    pub const MRA: u16 = 0x0011;
    /// Reject.
    pub const REJ: u16 = 0x0012;
    /// Reply.
    pub const REP: u16 = 0x0013;
    /// Ready to use.
    pub const RTU: u16 = 0x0014;
    /// Disconnect request.
    pub const DREQ: u16 = 0x0015;
    /// Disconnect reply.
    pub const DREP: u16 = 0x0016;
    /// Service id resolution request.
    pub const SIDR_REQ: u16 = 0x0017;
    /// Service id resolution reply.
    pub const SIDR_REP: u16 = 0x0018;
    /// Load alternate path: see [`Lap`](crate::mad::Lap).
    pub const LAP: u16 = 0x0019;
    /// Alternate path response: see [`Apr`](crate::mad::Apr).
    pub const APR: u16 = 0x001a;
}

/// The header of a MAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MadHeader {
    /// Version of the MAD format: 1.
    pub base_version: u8,
    /// Management class; see [`class`].
    pub class: u8,
    /// Version of the class: 2 for communication management.
    pub class_version: u8,
    /// Method; see [`method`].
    pub method: u8,
    /// Status; 0 is no error.
    pub status: u16,
    /// Field whose meaning depends on the class.
    pub class_specific: u16,
    /// Transaction id: chosen by the side that begins, repeated by the side that answers.
    pub transaction: u64,
    /// Attribute; see [`attribute`].
    pub attribute: u16,
    /// Field whose meaning depends on the attribute.
    pub modifier: u32,
}

impl MadHeader {
    /// Length on the wire in bytes.
    pub const LEN: usize = MAD_HEADER_BYTES;

    /// Creates the header of a CM message.
    pub const fn communication(attribute: u16, transaction: u64, modifier: u32) -> MadHeader {
        MadHeader {
            base_version: 1,
            class: class::COMMUNICATION,
            class_version: 2,
            method: method::SEND,
            status: 0,
            class_specific: 0,
            transaction,
            attribute,
            modifier,
        }
    }

    /// Reads the first 24 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<MadHeader> {
        let bytes: &[u8; MAD_HEADER_BYTES] = bytes.first_chunk()?;
        let [base_version, class, class_version, method, s0, s1, c0, c1, ..] = *bytes;
        let [.., a0, a1, _, _, m0, m1, m2, m3] = *bytes;
        let [_, _, _, _, _, _, _, _, t0, t1, t2, t3, t4, t5, t6, t7, ..] = *bytes;
        Some(MadHeader {
            base_version,
            class,
            class_version,
            method,
            status: u16::from_be_bytes([s0, s1]),
            class_specific: u16::from_be_bytes([c0, c1]),
            transaction: u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            attribute: u16::from_be_bytes([a0, a1]),
            modifier: u32::from_be_bytes([m0, m1, m2, m3]),
        })
    }

    /// Writes 24 bytes at the start of `out`; writes nothing if `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<MAD_HEADER_BYTES>() else { return };
        out[..4].copy_from_slice(&[self.base_version, self.class, self.class_version, self.method]);
        out[4..6].copy_from_slice(&self.status.to_be_bytes());
        out[6..8].copy_from_slice(&self.class_specific.to_be_bytes());
        out[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        out[16..18].copy_from_slice(&self.attribute.to_be_bytes());
        out[18..20].fill(0);
        out[20..].copy_from_slice(&self.modifier.to_be_bytes());
    }
}

/// A MAD of the right size and base version.
#[derive(Debug, Clone, Copy)]
pub struct Mad<'a> {
    bytes: &'a [u8; MAD_BYTES],
    header: MadHeader,
}

impl<'a> Mad<'a> {
    /// Checks size and base version of a MAD.
    ///
    /// # Errors
    /// Fails with [`MadError::Length`] or [`MadError::BaseVersion`].
    pub fn parse(bytes: &'a [u8]) -> Result<Mad<'a>, MadError> {
        let bytes: &[u8; MAD_BYTES] =
            bytes.try_into().map_err(|_| MadError::Length { length_bytes: bytes.len() })?;
        let header = MadHeader::parse(bytes).unwrap_or_default();
        if header.base_version != 1 {
            return Err(MadError::BaseVersion(header.base_version));
        }
        Ok(Mad { bytes, header })
    }

    /// Returns the header.
    pub const fn header(&self) -> &MadHeader {
        &self.header
    }

    /// Returns all bytes of the MAD.
    pub const fn bytes(&self) -> &'a [u8; MAD_BYTES] {
        self.bytes
    }

    /// Returns the bytes behind the header.
    pub(super) fn body(&self) -> CmBody {
        self.bytes.last_chunk().copied().unwrap_or([0; 232])
    }
}

/// Reason why bytes are no CM message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadError {
    /// The length is not 256 bytes.
    Length {
        /// Number of bytes.
        length_bytes: usize,
    },
    /// The base version is not 1.
    BaseVersion(u8),
    /// The class is not communication management.
    Class(u8),
    /// The version of the class is not 2.
    ClassVersion(u8),
    /// The class is communication management, but the method is not SEND.
    Method(u8),
    /// The attribute is no message of CM.
    Attribute(u16),
    /// The message is LAP or APR: alternate paths are loaded by the programs, not by communication
    /// management.
    AlternatePath,
}

impl fmt::Display for MadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MadError::Length { length_bytes } => write!(f, "a MAD has 256 bytes, not {length_bytes}"),
            MadError::BaseVersion(version) => write!(f, "base version {version} is unknown: it must be 1"),
            MadError::Class(class) => write!(f, "management class {class:#04x} is not served here"),
            MadError::ClassVersion(version) => write!(f, "CM version {version} is unknown: it must be 2"),
            MadError::Method(method) => write!(f, "CM messages are sent with method 3, not {method:#04x}"),
            MadError::Attribute(attribute) => write!(f, "there is no CM message {attribute:#06x}"),
            MadError::AlternatePath => write!(f, "LAP and APR load no alternate path here"),
        }
    }
}

impl core::error::Error for MadError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        // The REQ that rping sent against Linux 6.12.
        let bytes = [
            0x01, 0x07, 0x02, 0x03, 0, 0, 0, 0, 0, 0, 0, 4, 0x2b, 0xe8, 0x8a, 0xc0, 0, 0x10, 0, 0, 0, 0, 0, 0,
        ];
        let header = MadHeader::communication(attribute::REQ, 0x4_2be8_8ac0, 0);
        assert_eq!(MadHeader::parse(&bytes), Some(header));
        let mut out = [0xee; 25];
        header.emit(&mut out);
        assert_eq!(out[..24], bytes);
        assert_eq!(out[24], 0xee);
        assert_eq!(MadHeader::parse(&bytes[..23]), None);
    }

    #[test]
    fn the_view_wants_256_bytes_and_version_1() {
        let mut bytes = [0; 257];
        MadHeader::communication(attribute::RTU, 1, 2).emit(&mut bytes);
        assert!(Mad::parse(&bytes[..256]).is_ok());
        assert_eq!(Mad::parse(&bytes).unwrap_err(), MadError::Length { length_bytes: 257 });
        assert_eq!(Mad::parse(&bytes[..255]).unwrap_err(), MadError::Length { length_bytes: 255 });
        assert_eq!(Mad::parse(&[]).unwrap_err(), MadError::Length { length_bytes: 0 });
        bytes[0] = 2;
        assert_eq!(Mad::parse(&bytes[..256]).unwrap_err(), MadError::BaseVersion(2));
    }
}
