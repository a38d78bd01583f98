//! Headers of datagram rsockets. A datagram between queue pairs carries the address of its source socket. As
//! long as the peer's queue pair is not known, datagrams go over UDP, and their header has the sender's queue
//! pair.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

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
