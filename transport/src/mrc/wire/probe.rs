//! Headers of data packets, reliability probes, EV probes and port status updates.
//!
//! Headers of data packets: METH and TSETH. RETH, ImmDt and AETH are those of RoCEv2.

use super::{ControlHeaderType, NextHeader};

/// Message extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meth {
    /// Number among the WRITEs with immediate, which consume receive requests; 0 for other WRITEs.
    pub rqmsn: u16,
    /// Number of the message, equal in all its packets.
    pub msn: u16,
}

impl Meth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 4;

    /// Parses the first 4 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Meth> {
        let &[r0, r1, m0, m1] = bytes.first_chunk()?;
        Some(Meth { rqmsn: u16::from_be_bytes([r0, r1]), msn: u16::from_be_bytes([m0, m1]) })
    }

    /// Returns the 4 bytes of the header.
    pub fn bytes(&self) -> [u8; Meth::LEN] {
        let ([r0, r1], [m0, m1]) = (self.rqmsn.to_be_bytes(), self.msn.to_be_bytes());
        [r0, r1, m0, m1]
    }
}

/// Unit of time stamps in nanoseconds.
pub const TIMESTAMP_UNIT_NS: u64 = 128;

/// Time stamp extended transport header. Probes and endpoint requests contain one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tseth {
    /// Time of transmission, in units of [`TIMESTAMP_UNIT_NS`] modulo 2^16.
    pub timestamp: u16,
    /// `tsr`: the unit is specific to the sender.
    pub has_own_unit: bool,
}

impl Tseth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 4;
    /// Type of this header, in the low 4 bits of its last byte.
    const FTYPE: u8 = 1;

    /// Returns the time stamp of a packet that is sent now.
    pub const fn at(now_ns: u64) -> Tseth {
        Tseth { timestamp: (now_ns / TIMESTAMP_UNIT_NS) as u16, has_own_unit: false }
    }

    /// Parses the first 4 bytes; `None` if there are fewer. The type is not checked, as BTH and opcode imply
    /// it.
    pub fn parse(bytes: &[u8]) -> Option<Tseth> {
        let &[t0, t1, unit, _] = bytes.first_chunk()?;
        Some(Tseth { timestamp: u16::from_be_bytes([t0, t1]), has_own_unit: unit & 0x80 != 0 })
    }

    /// Returns the 4 bytes of the header.
    pub fn bytes(&self) -> [u8; Tseth::LEN] {
        let [t0, t1] = self.timestamp.to_be_bytes();
        [t0, t1, u8::from(self.has_own_unit) << 7, Tseth::FTYPE]
    }
}

/// Returns the time since a time stamp of this side that the peer echoed. The result is correct below 8.4 ms.
pub const fn since_timestamp_ns(now_ns: u64, timestamp: u16) -> u64 {
    let units = Tseth::at(now_ns).timestamp.wrapping_sub(timestamp);
    units as u64 * TIMESTAMP_UNIT_NS
}

/// Probe extended transport header, which asks for a SACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peth {
    /// Vendor-specific value.
    pub vendor_info: u8,
    /// Number of the probe, which the SACK echoes.
    pub probe_id: u16,
    /// Low 16 bits of the number of the queue pair that sends the probe; informational.
    pub spdcid: u16,
    /// Low 16 bits of the number of the queue pair that receives the probe; informational.
    pub dpdcid: u16,
    /// Time of transmission.
    pub tseth: Tseth,
}

impl Peth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 16;

    /// Parses the first 16 bytes.
    ///
    /// # Errors
    /// There are fewer bytes, or the header is another one.
    pub fn parse(bytes: &[u8]) -> Result<Peth, NextHeader> {
        let Some(&[a, flags, _, vendor_info, i0, i1, _, _, s0, s1, d0, d1, ref stamp @ ..]) =
            bytes.first_chunk::<{ Peth::LEN }>()
        else {
            return Err(NextHeader::Short);
        };
        ControlHeaderType::check(a, flags)?;
        Ok(Peth {
            vendor_info,
            probe_id: u16::from_be_bytes([i0, i1]),
            spdcid: u16::from_be_bytes([s0, s1]),
            dpdcid: u16::from_be_bytes([d0, d1]),
            tseth: Tseth::parse(stamp).unwrap_or_default(),
        })
    }

    /// Returns the 16 bytes of the header.
    pub fn bytes(&self) -> [u8; Peth::LEN] {
        let [i0, i1] = self.probe_id.to_be_bytes();
        let ([s0, s1], [d0, d1]) = (self.spdcid.to_be_bytes(), self.dpdcid.to_be_bytes());
        let [t0, t1, t2, t3] = self.tseth.bytes();
        [0, 0, 0, self.vendor_info, i0, i1, 0, 0, s0, s1, d0, d1, t0, t1, t2, t3]
    }
}

/// The operation of an endpoint request. The numbers of the API are reversed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EndpointOperation {
    /// Reports which ports of the sender can be used.
    PortStatusUpdate = 0,
    /// Tests a path.
    EvProbe = 1,
}

impl EndpointOperation {
    /// Returns the operation of two bits.
    pub const fn from_bits(bits: u8) -> Option<EndpointOperation> {
        match bits & 3 {
            0 => Some(EndpointOperation::PortStatusUpdate),
            1 => Some(EndpointOperation::EvProbe),
            _ => None,
        }
    }
}

/// Endpoint request extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erth {
    /// Operation of the request.
    pub operation: EndpointOperation,
    /// Vendor-specific value.
    pub vendor_info: u8,
    /// Ports of the sender that can be used, in a port status update: see [`crate::mrc::entropy::Planes`].
    pub port_status_mask: u32,
    /// Time of transmission.
    pub tseth: Tseth,
}

impl Erth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 16;

    /// Parses the first 16 bytes.
    ///
    /// # Errors
    /// There are fewer bytes, the header is another one, or the operation is unknown.
    pub fn parse(bytes: &[u8]) -> Result<Erth, NextHeader> {
        let Some(&[a, flags, _, vendor_info, m0, m1, m2, m3, _, _, _, _, ref stamp @ ..]) =
            bytes.first_chunk::<{ Erth::LEN }>()
        else {
            return Err(NextHeader::Short);
        };
        ControlHeaderType::check(a, flags)?;
        Ok(Erth {
            operation: EndpointOperation::from_bits(flags).ok_or(NextHeader::Unknown)?,
            vendor_info,
            port_status_mask: u32::from_be_bytes([m0, m1, m2, m3]),
            tseth: Tseth::parse(stamp).unwrap_or_default(),
        })
    }

    /// Returns the 16 bytes of the header.
    pub fn bytes(&self) -> [u8; Erth::LEN] {
        let [m0, m1, m2, m3] = self.port_status_mask.to_be_bytes();
        let [t0, t1, t2, t3] = self.tseth.bytes();
        [0, self.operation as u8, 0, self.vendor_info, m0, m1, m2, m3, 0, 0, 0, 0, t0, t1, t2, t3]
    }
}

/// Endpoint response extended transport header. The matching request is found by its number, not by the
/// operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eeth {
    /// Operation of the request, two bits.
    pub operation_bits: u8,
    /// Time stamp of the request.
    pub timestamp: u16,
}

impl Eeth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 36;
    const TIMESTAMP: usize = 28;

    /// Parses the first 36 bytes.
    ///
    /// # Errors
    /// There are fewer bytes, or the header is another one.
    pub fn parse(bytes: &[u8]) -> Result<Eeth, NextHeader> {
        let bytes = bytes.first_chunk::<{ Eeth::LEN }>().ok_or(NextHeader::Short)?;
        let &[a, flags, ..] = bytes;
        ControlHeaderType::check(a, flags)?;
        let stamp = bytes.get(Eeth::TIMESTAMP..).and_then(|rest| rest.first_chunk()).copied();
        Ok(Eeth {
            operation_bits: (flags >> 2) & 3,
            timestamp: u16::from_be_bytes(stamp.unwrap_or_default()),
        })
    }

    /// Returns the 36 bytes of the header.
    pub fn bytes(&self) -> [u8; Eeth::LEN] {
        let mut bytes = [0; Eeth::LEN];
        bytes[1] = (self.operation_bits & 3) << 2;
        let stamp = self.timestamp.to_be_bytes();
        [bytes[Eeth::TIMESTAMP], bytes[Eeth::TIMESTAMP + 1]] = stamp;
        bytes
    }
}
