//! Private data of connections and headers of datagrams.
//!
//! Headers of datagram rsockets. A datagram between queue pairs carries the address of its source socket. As
//! long as the peer's queue pair is not known, datagrams go over UDP, and their header has the sender's queue
//! pair.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::TABLE_ENTRIES;
use super::ring::RemoteBuffer;

const VERSION: u8 = 1;
/// Flag: the sender is a big-endian host, and reads its tables as such.
const BIG_ENDIAN: u8 = 1;
/// Flag: the byte with the number of mappings is valid.
const HAS_MAPS: u8 = 2;

/// Contents of one side's private data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionData {
    /// True if the sender reads its tables as big-endian.
    pub(crate) big_endian: bool,
    /// Number of messages that may be sent at the beginning.
    pub(crate) credits: u16,
    /// Number of entries of the sender's table of mappings, which follows the other table.
    pub(crate) maps: u16,
    /// Table of the sender's buffers; its length is in entries.
    pub(crate) table: RemoteBuffer,
    /// First buffer for data.
    pub(crate) first: RemoteBuffer,
}

/// Reason why private data is not that of an rsocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionDataError {
    /// The data is too short.
    Short(usize),
    /// The protocol version is not known here.
    Version(u8),
    /// The table has too few entries.
    Table(u32),
}

impl std::fmt::Display for ConnectionDataError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectionDataError::Short(length) => {
                write!(
                    f,
                    "{length} bytes of private data are too few for rsockets, which send {}",
                    ConnectionData::LEN
                )
            }
            ConnectionDataError::Version(version) => {
                write!(f, "the peer speaks version {version} of rsockets, and only {VERSION} is known here")
            }
            ConnectionDataError::Table(entries) => {
                write!(f, "the peer's table has {entries} entries, and rsockets need {TABLE_ENTRIES}")
            }
        }
    }
}

impl ConnectionData {
    /// Length in bytes. What follows in the private data is padding.
    pub(crate) const LEN: usize = 40;

    /// Returns the bytes.
    pub(crate) fn emit(&self) -> [u8; ConnectionData::LEN] {
        let mut bytes = [0; ConnectionData::LEN];
        let flags = HAS_MAPS | if self.big_endian { BIG_ENDIAN } else { 0 };
        let [c0, c1] = self.credits.to_be_bytes();
        let (head, buffers) = bytes.split_at_mut(8);
        let (table, first) = buffers.split_at_mut(RemoteBuffer::LEN);
        head.copy_from_slice(&[VERSION, flags, c0, c1, 0, 0, 0, scale(self.maps)]);
        table.copy_from_slice(&self.table.emit(true));
        first.copy_from_slice(&self.first.emit(true));
        bytes
    }

    /// Reads the other side's private data.
    ///
    /// # Errors
    /// Fails if it is too short, of another version, or has a table that is too small.
    pub(crate) fn parse(bytes: &[u8]) -> Result<ConnectionData, ConnectionDataError> {
        let short = ConnectionDataError::Short(bytes.len());
        let (head, rest) = bytes.split_first_chunk::<8>().ok_or(short)?;
        let (table, rest) = rest.split_first_chunk::<{ RemoteBuffer::LEN }>().ok_or(short)?;
        let (first, _) = rest.split_first_chunk::<{ RemoteBuffer::LEN }>().ok_or(short)?;
        let [version, flags, c0, c1, _, _, _, maps] = *head;
        if version != VERSION {
            return Err(ConnectionDataError::Version(version));
        }
        let table = RemoteBuffer::parse(table, true);
        if (table.length as usize) < TABLE_ENTRIES {
            return Err(ConnectionDataError::Table(table.length));
        }
        Ok(ConnectionData {
            big_endian: flags & BIG_ENDIAN != 0,
            credits: u16::from_be_bytes([c0, c1]),
            maps: if flags & HAS_MAPS != 0 { unscale(maps) } else { 0 },
            table,
            first: RemoteBuffer::parse(first, true),
        })
    }
}

/// Converts a number of mappings to one byte: up to 128 as it is, beyond in units of 256.
const fn scale(count: u16) -> u8 {
    if count <= 128 {
        count as u8
    } else {
        let units = count >> 8;
        0x80 | if units > 0x7f { 0x7f } else { units as u8 }
    }
}

/// Converts a byte to a number of mappings.
const fn unscale(byte: u8) -> u16 {
    if byte <= 128 { byte as u16 } else { ((byte & 0x7f) as u16) << 8 }
}

/// Returns the nearest number that one byte can represent.
pub(crate) const fn representable(count: u16) -> u16 {
    unscale(scale(count))
}

/// Tag of datagrams over UDP.
const TAG: u32 = 0x5555_5555;
/// Mask of a queue pair number: 24 bits.
const QPN: u32 = 0xff_ffff;
const DATA: u8 = 0;
const ANSWER: u8 = 7;

/// Source socket of a datagram between queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source(pub(crate) SocketAddr);

impl Source {
    const V4: u8 = 8;
    const V6: u8 = 24;

    /// Returns the header.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let [p0, p1] = self.0.port().to_be_bytes();
        match self.0 {
            SocketAddr::V4(v4) => [&[4, Source::V4, p0, p1][..], &v4.ip().octets()].concat(),
            SocketAddr::V6(v6) => {
                let flow = v6.flowinfo().to_be_bytes();
                [&[6, Source::V6, p0, p1][..], &flow, &v6.ip().octets()].concat()
            }
        }
    }

    /// Reads the source, and returns the data behind the header; `None` if there is no such header.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Source, &[u8])> {
        let (&[version, length, p0, p1], rest) = bytes.split_first_chunk::<4>()?;
        let port = u16::from_be_bytes([p0, p1]);
        match (version, length) {
            (4, Source::V4) => {
                let (ip, data) = rest.split_first_chunk::<4>()?;
                Some((Source((Ipv4Addr::from(*ip), port).into()), data))
            }
            (6, Source::V6) => {
                let (_flow, rest) = rest.split_first_chunk::<4>()?;
                let (ip, data) = rest.split_first_chunk::<16>()?;
                Some((Source((Ipv6Addr::from(*ip), port).into()), data))
            }
            _ => None,
        }
    }
}

/// Header of a datagram over UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UdpHeader {
    /// True if it is only an answer; otherwise data follows.
    pub(crate) is_answer: bool,
    /// Queue pair and address of the sender.
    pub(crate) qpn: u32,
    pub(crate) ip: IpAddr,
}

impl UdpHeader {
    const V4: u8 = 16;
    const V6: u8 = 28;

    /// Returns the header.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let op = if self.is_answer { ANSWER } else { DATA };
        let (version, length, ip) = match self.ip {
            IpAddr::V4(v4) => (4, UdpHeader::V4, v4.octets().to_vec()),
            IpAddr::V6(v6) => (6, UdpHeader::V6, v6.octets().to_vec()),
        };
        let tag = TAG.to_be_bytes();
        [&tag[..], &[version, op, length, 0], &(self.qpn & QPN).to_be_bytes(), &ip].concat()
    }

    /// Reads the header, and returns the data behind it; `None` if there is no such header.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(UdpHeader, &[u8])> {
        let (tag, rest) = bytes.split_first_chunk::<4>()?;
        let (&[version, op, length, _], rest) = rest.split_first_chunk::<4>()?;
        let (qpn, rest) = rest.split_first_chunk::<4>()?;
        if u32::from_be_bytes(*tag) != TAG || !matches!(op, DATA | ANSWER) {
            return None;
        }
        let (ip, data): (IpAddr, &[u8]) = match (version, length) {
            (4, UdpHeader::V4) => {
                let (ip, data) = rest.split_first_chunk::<4>()?;
                (Ipv4Addr::from(*ip).into(), data)
            }
            (6, UdpHeader::V6) => {
                let (ip, data) = rest.split_first_chunk::<16>()?;
                (Ipv6Addr::from(*ip).into(), data)
            }
            _ => return None,
        };
        Some((UdpHeader { is_answer: op == ANSWER, qpn: u32::from_be_bytes(*qpn) & QPN, ip }, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ConnectionData {
        ConnectionData {
            big_endian: false,
            credits: 384,
            maps: 16,
            table: RemoteBuffer { address: 0x7f00_1122_3344_5566, key: 0x0a0b_0c0d, length: 2 },
            first: RemoteBuffer { address: 0x7f00_0000_1000, key: 0x0102_0304, length: 65536 },
        }
    }

    #[test]
    fn connection_data_has_forty_bytes() {
        let bytes = sample().emit();
        assert_eq!(
            bytes,
            [
                1, 2, 0x01, 0x80, 0, 0, 0, 16, // version, flags, credits, mappings
                0x7f, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 10, 11, 12, 13, 0, 0, 0, 2, //
                0, 0, 0x7f, 0, 0, 0, 0x10, 0, 1, 2, 3, 4, 0, 1, 0, 0,
            ]
        );
        let mut padded = bytes.to_vec();
        padded.resize(56, 0);
        assert_eq!(ConnectionData::parse(&padded), Ok(sample()));
        assert_eq!(
            ConnectionData::parse(&ConnectionData { big_endian: true, ..sample() }.emit())
                .map(|g| g.big_endian),
            Ok(true)
        );
    }

    #[test]
    fn other_private_data_is_refused() {
        let bytes = sample().emit();
        for length in 0..ConnectionData::LEN {
            assert_eq!(ConnectionData::parse(&bytes[..length]), Err(ConnectionDataError::Short(length)));
        }
        let mut other = bytes;
        other[0] = 2;
        assert_eq!(ConnectionData::parse(&other), Err(ConnectionDataError::Version(2)));
        let mut other = bytes;
        other[23] = 1;
        assert_eq!(ConnectionData::parse(&other), Err(ConnectionDataError::Table(1)));
        let mut other = bytes;
        other[1] = 0;
        assert_eq!(ConnectionData::parse(&other).map(|data| data.maps), Ok(0), "the flag was not set");
    }

    #[test]
    fn counts_of_mappings_are_rounded_down_to_what_a_byte_can_represent() {
        for (count, rounded) in
            [(0, 0), (1, 1), (127, 127), (128, 128), (256, 256), (700, 512), (u16::MAX, 0x7f00)]
        {
            assert_eq!(representable(count), rounded, "{count}");
            assert_eq!(representable(rounded), rounded);
        }
        // The numbers 129 to 255 are less than one unit of 256, so they become none.
        assert_eq!(scale(129), 0x80);
        assert_eq!(unscale(0x80), 128);
    }

    #[test]
    fn sources_have_eight_bytes_or_twenty_four() {
        let v4 = Source("10.1.2.3:7174".parse().unwrap());
        assert_eq!(v4.emit(), [4, 8, 0x1c, 0x06, 10, 1, 2, 3]);
        let v6 = Source("[2001:db8::1]:7174".parse().unwrap());
        assert_eq!(v6.emit()[..8], [6, 24, 0x1c, 0x06, 0, 0, 0, 0]);
        for source in [v4, v6] {
            let mut bytes = source.emit();
            for length in 0..bytes.len() {
                assert_eq!(Source::parse(&bytes[..length]), None, "{length} bytes of {source:?}");
            }
            bytes.extend(b"data");
            assert_eq!(Source::parse(&bytes), Some((source, &b"data"[..])));
            bytes[0] = 5;
            assert_eq!(Source::parse(&bytes), None);
        }
    }

    #[test]
    fn udp_headers_have_sixteen_bytes_or_twenty_eight() {
        let v4 = UdpHeader { is_answer: false, qpn: 0x12_3456, ip: "10.1.2.3".parse().unwrap() };
        assert_eq!(v4.emit(), [0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0x12, 0x34, 0x56, 10, 1, 2, 3]);
        let v6 = UdpHeader { is_answer: true, qpn: 1, ip: "2001:db8::1".parse().unwrap() };
        assert_eq!(v6.emit()[4..12], [6, 7, 28, 0, 0, 0, 0, 1]);
        for header in [v4, v6] {
            let mut bytes = header.emit();
            for length in 0..bytes.len() {
                assert_eq!(UdpHeader::parse(&bytes[..length]), None);
            }
            bytes.extend(b"data");
            assert_eq!(UdpHeader::parse(&bytes), Some((header, &b"data"[..])));
            for (index, wrong) in [(0, 0), (4, 5), (5, 3), (6, 17)] {
                let mut other = bytes.clone();
                other[index] = wrong;
                assert_eq!(UdpHeader::parse(&other), None);
            }
        }
    }
}
