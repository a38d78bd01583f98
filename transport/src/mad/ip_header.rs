//! The IP addressing header of RDMA-CM: the first 36 bytes of private data in REQ and SIDR_REQ.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of the header in bytes.
pub const IP_HEADER_BYTES: usize = 36;

/// The addresses of both sides of a connection: the version is 0.0, the IP version that of the addresses. The
/// destination port is in the service id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpHeader {
    /// Port of the active side.
    pub source_port: u16,
    /// Address of the active side.
    pub source: IpAddr,
    /// Address of the passive side, of the same family.
    pub destination: IpAddr,
}

/// Reason why private data does not begin with the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpHeaderError {
    /// There are fewer than 36 bytes.
    Truncated,
    /// The version is not 0.0.
    Version(u8),
    /// The IP version is not 4 or 6.
    IpVersion(u8),
}

impl IpHeader {
    /// Length on the wire in bytes.
    pub const LEN: usize = IP_HEADER_BYTES;

    /// Reads the first 36 bytes of private data. Reserved bits are ignored.
    ///
    /// # Errors
    /// Fails as [`IpHeaderError`] lists.
    pub fn parse(bytes: &[u8]) -> Result<IpHeader, IpHeaderError> {
        let bytes: &[u8; IP_HEADER_BYTES] = bytes.first_chunk().ok_or(IpHeaderError::Truncated)?;
        let [version, ip_version, p0, p1, addresses @ ..] = bytes;
        if *version != 0 {
            return Err(IpHeaderError::Version(*version));
        }
        let (source, destination) = addresses.split_at(16);
        let address = |bytes: &[u8]| -> Result<IpAddr, IpHeaderError> {
            let octets: [u8; 16] = bytes.try_into().map_err(|_| IpHeaderError::Truncated)?;
            let [.., a, b, c, d] = octets;
            //= linux:cma.c#cma_save_ip_info
            //| The addresses of a request are of IPv4 or of IPv6, as its header says.
            match ip_version >> 4 {
                4 => Ok(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
                6 => Ok(IpAddr::V6(Ipv6Addr::from(octets))),
                other => Err(IpHeaderError::IpVersion(other)),
            }
        };
        let (source, destination) = (address(source)?, address(destination)?);
        Ok(IpHeader { source_port: u16::from_be_bytes([*p0, *p1]), source, destination })
    }

    /// Splits private data into the header that it begins with, and the data behind it. Without a header all
    /// is data: a peer that names both ends by GID (AF_IB) writes no header.
    pub fn split(private_data: &[u8]) -> (Option<IpHeader>, &[u8]) {
        match (IpHeader::parse(private_data), private_data.get(IP_HEADER_BYTES..)) {
            (Ok(header), Some(data)) => (Some(header), data),
            _ => (None, private_data),
        }
    }

    /// Returns the header's bytes. If the destination's family is not the source's, it is written in the
    /// source's family: an IPv4 address as its last four bytes.
    pub fn emit(&self) -> [u8; IP_HEADER_BYTES] {
        let mut out = [0; IP_HEADER_BYTES];
        //= linux:cma.c#cma_format_hdr
        //| The version of IP stands in the upper four bits of the second byte.
        out[1] = if self.source.is_ipv4() { 4 << 4 } else { 6 << 4 };
        out[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        let in_16_bytes = |address| match address {
            IpAddr::V4(v4) => {
                let mut bytes = [0; 16];
                bytes[12..].copy_from_slice(&v4.octets());
                bytes
            }
            IpAddr::V6(v6) => v6.octets(),
        };
        out[4..20].copy_from_slice(&in_16_bytes(self.source));
        out[20..36].copy_from_slice(&in_16_bytes(self.destination));
        out
    }
}

impl fmt::Display for IpHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IpHeaderError::Truncated => write!(f, "the IP addressing header has 36 bytes"),
            IpHeaderError::Version(version) => write!(f, "addressing version {version:#04x} is unknown"),
            IpHeaderError::IpVersion(version) => write!(f, "IP version {version} is neither 4 nor 6"),
        }
    }
}

impl core::error::Error for IpHeaderError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_for_ipv4() {
        // The header of udaddy against Linux 6.12.
        let mut bytes = [0; 36];
        bytes[1..4].copy_from_slice(&[0x40, 0xdf, 0xa6]);
        bytes[16..20].copy_from_slice(&[10, 9, 0, 2]);
        bytes[32..].copy_from_slice(&[10, 9, 0, 1]);
        let header = IpHeader {
            source_port: 0xdfa6,
            source: IpAddr::from([10, 9, 0, 2]),
            destination: IpAddr::from([10, 9, 0, 1]),
        };
        assert_eq!(header.emit(), bytes);
        assert_eq!(IpHeader::parse(&bytes), Ok(header));
        let said = [&bytes[..], b"said"].concat();
        assert_eq!(IpHeader::split(&said), (Some(header), &b"said"[..]));
        assert_eq!(IpHeader::split(&said[..35]), (None, &said[..35]));
        assert_eq!(IpHeader::split(&[0; 92]), (None, &[0; 92][..]));
    }

    #[test]
    fn ipv6_addresses_fill_their_fields() {
        let header = IpHeader {
            source_port: 1,
            source: "fe80::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
        };
        let bytes = header.emit();
        assert_eq!(bytes[..6], [0, 0x60, 0, 1, 0xfe, 0x80]);
        assert_eq!((bytes[19], bytes[20], bytes[35]), (1, 0x20, 2));
        assert_eq!(IpHeader::parse(&bytes), Ok(header));
    }

    #[test]
    fn strange_versions_are_refused() {
        let mut bytes = [0; 36];
        assert_eq!(IpHeader::parse(&bytes), Err(IpHeaderError::IpVersion(0)));
        bytes[1] = 0x54;
        assert_eq!(IpHeader::parse(&bytes), Err(IpHeaderError::IpVersion(5)));
        bytes[0] = 0x10;
        assert_eq!(IpHeader::parse(&bytes), Err(IpHeaderError::Version(0x10)));
        assert_eq!(IpHeader::parse(&bytes[..35]), Err(IpHeaderError::Truncated));
    }
}
