//! The length of a packet on a wire.

/// Length of the Ethernet header and FCS, in bytes.
const ETHERNET_BYTES: usize = 14 + 4;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;

/// Returns the length of the IP and UDP headers in front of a packet, in bytes.
pub(crate) const fn ip_overhead_bytes(ipv4: bool) -> usize {
    UDP_BYTES + if ipv4 { IPV4_BYTES } else { IPV6_BYTES }
}

/// Returns how many bytes a packet (BTH to ICRC) takes on a link, from the Ethernet header to the FCS;
/// without preamble and gap.
pub const fn wire_bytes(ipv4: bool, packet_bytes: usize) -> usize {
    ETHERNET_BYTES + ip_overhead_bytes(ipv4) + packet_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_its_headers_around_it() {
        assert_eq!([wire_bytes(true, 1_000), wire_bytes(false, 1_000)], [1_046, 1_066]);
        assert_eq!([ip_overhead_bytes(true), ip_overhead_bytes(false)], [28, 48]);
    }
}
