//! Headers of data packets: METH and TSETH. RETH, ImmDt and AETH are those of RoCEv2.

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
