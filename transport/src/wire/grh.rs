//! The 40 bytes before the payload of every received datagram.

use core::net::IpAddr;

use etherparse::{Ipv4Header, Ipv6Header};

use super::encapsulation::{ip_header, udp_length};

/// Bytes of the GRH area in a datagram's receive buffer.
pub const GRH_BYTES: usize = 40;

/// Returns the GRH area for a datagram with these IP fields: the IPv6 header, or 20 zero bytes and the IPv4
/// header with identification 0, don't-fragment and a correct checksum (readers recognise IPv4 by that
/// checksum). `udp_payload_bytes` counts BTH to ICRC; `flow_label` is for IPv6 only.
pub fn grh(
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    flow_label: u32,
    udp_payload_bytes: usize,
) -> [u8; GRH_BYTES] {
    let header = ip_header(
        source,
        destination,
        traffic_class,
        hop_limit,
        flow_label,
        0,
        udp_length(udp_payload_bytes),
    );
    let mut area = [0; GRH_BYTES];
    let (_, v4) = area.split_at_mut(Ipv6Header::LEN - Ipv4Header::MIN_LEN);
    match header {
        //= statement:40
        //| The IPv4 header of a datagram stands in bytes 20 to 39 of the receive buffer.
        super::encapsulation::IpHeader::V4(bytes) => v4.copy_from_slice(&bytes),
        super::encapsulation::IpHeader::V6(bytes) => area = bytes,
    }
    area
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn ipv4_header_is_at_byte_20_with_a_right_checksum() {
        let area = grh(
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
            0,
            64,
            0xf_ffff,
            280,
        );
        assert_eq!(area[..20], [0; 20]);
        // This is the IP header of a 308-byte datagram between these addresses (a MAD on QP1).
        let expected = [
            0x45, 0x00, 0x01, 0x34, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb5, 0xb5, 192, 0, 2, 1, 192, 0, 2,
            2,
        ];
        assert_eq!(area[20..], expected);
    }

    #[test]
    fn ipv6_header_fills_the_area() {
        let area = grh(
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
            0x68,
            32,
            0x1_2345,
            20,
        );
        assert_eq!(area[..8], [0x66, 0x81, 0x23, 0x45, 0x00, 0x1c, 0x11, 0x20]);
        assert_eq!(area[8..12], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!((area[23], area[39]), (1, 2));
    }
}
