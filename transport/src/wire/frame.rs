//! Ethernet frames of raw packet queue pairs: the fields that flow rules match.

use etherparse::{
    EtherType, Ethernet2Slice, IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice, SingleVlanSlice, ether_type,
};

/// Length in bytes of an Ethernet header without a VLAN tag.
pub const FRAME_HEADER_BYTES: usize = 14;

/// The fields of a frame's headers that flow rules match, each header's fields in network order, laid out as
/// in `<infiniband/verbs.h>` (`struct ibv_flow_*_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameFields {
    /// Ethernet: destination and source (6 bytes each), the type behind a VLAN tag, the tag's control
    /// information or 0.
    pub ethernet: [u8; 16],
    /// IPv4: source and destination (4 bytes each), protocol, TOS, TTL, flags.
    pub ipv4: Option<[u8; 12]>,
    /// IPv6: source and destination (16 bytes each), flow label (4 bytes), next header, traffic class, hop
    /// limit.
    pub ipv6: Option<[u8; 39]>,
    /// Destination and source port of a TCP segment.
    pub tcp: Option<[u8; 4]>,
    /// Destination and source port of a UDP datagram.
    pub udp: Option<[u8; 4]>,
}

impl FrameFields {
    /// Reads the fields of a frame, from the destination address on. A header that is cut off or malformed
    /// counts as absent, and so does what follows it. `None` means that the frame is shorter than an Ethernet
    /// header.
    pub fn of(frame: &[u8]) -> Option<FrameFields> {
        let ethernet = Ethernet2Slice::from_slice_without_fcs(frame).ok()?;
        let mut fields = FrameFields::default();
        let (mut carried, mut tag) = (ethernet.payload(), 0);
        if matches!(carried.ether_type, ether_type::VLAN_TAGGED_FRAME | ether_type::PROVIDER_BRIDGING)
            && let Ok(vlan) = SingleVlanSlice::from_slice(carried.payload)
        {
            tag = u16::from(vlan.priority_code_point().value()) << 13
                | u16::from(vlan.drop_eligible_indicator()) << 12
                | vlan.vlan_identifier().value();
            carried = vlan.payload();
        }
        fields.ethernet = joined([
            &ethernet.destination(),
            &ethernet.source(),
            &carried.ether_type.0.to_be_bytes(),
            &tag.to_be_bytes(),
        ]);
        fields.read_ip(carried.ether_type, carried.payload);
        Some(fields)
    }

    fn read_ip(&mut self, kind: EtherType, packet: &[u8]) {
        let (protocol, header_bytes, is_first) = match kind {
            ether_type::IPV4 => {
                let Ok(header) = Ipv4HeaderSlice::from_slice(packet) else { return };
                let tos = header.dcp().value() << 2 | header.ecn().value();
                let flags = u8::from(header.dont_fragment()) << 1 | u8::from(header.more_fragments());
                let rest = [header.protocol().0, tos, header.ttl(), flags];
                self.ipv4 = Some(joined([&header.source(), &header.destination(), &rest]));
                let is_first = header.fragments_offset().value() == 0;
                (header.protocol(), header.slice().len(), is_first)
            }
            ether_type::IPV6 => {
                let Ok(header) = Ipv6HeaderSlice::from_slice(packet) else { return };
                let rest = [header.next_header().0, header.traffic_class(), header.hop_limit()];
                let label = header.flow_label().value().to_be_bytes();
                self.ipv6 = Some(joined([&header.source(), &header.destination(), &label, &rest]));
                (header.next_header(), header.slice().len(), true)
            }
            _ => return,
        };
        // TCP and UDP headers begin alike. Only the first fragment has the ports.
        let carried = packet.get(header_bytes..).unwrap_or_default();
        let Some(&[s1, s0, d1, d0]) = carried.first_chunk().filter(|_| is_first) else { return };
        match protocol {
            IpNumber::TCP => self.tcp = Some([d1, d0, s1, s0]),
            IpNumber::UDP => self.udp = Some([d1, d0, s1, s0]),
            _ => {}
        }
    }
}

/// Joins the parts one after the other.
fn joined<const BYTES: usize, const PARTS: usize>(parts: [&[u8]; PARTS]) -> [u8; BYTES] {
    let mut all = [0; BYTES];
    let bytes = parts.into_iter().flatten();
    all.iter_mut().zip(bytes).for_each(|(out, byte)| *out = *byte);
    all
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const V4: [u8; 20] = [0x45, 0x03, 0, 28, 0, 7, 0x40, 0, 63, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];

    fn frame(ether_type: u16, rest: &[&[u8]]) -> Vec<u8> {
        let mut frame = Vec::from([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        frame.extend(ether_type.to_be_bytes());
        rest.iter().for_each(|part| frame.extend(*part));
        frame
    }

    #[test]
    fn the_fields_of_udp_over_ipv4_behind_a_vlan_tag_are_found() {
        let udp = [0x30, 0x39, 0x12, 0xb7, 0, 8, 0, 0];
        let found = FrameFields::of(&frame(0x8100, &[&[0xa0, 5, 8, 0], &V4, &udp])).unwrap();
        assert_eq!(found.ethernet, [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0xa0, 5]);
        assert_eq!(found.ipv4, Some([10, 0, 0, 1, 10, 0, 0, 2, 17, 3, 63, 2]));
        assert_eq!((found.udp, found.tcp, found.ipv6), (Some([0x12, 0xb7, 0x30, 0x39]), None, None));
    }

    #[test]
    fn the_fields_of_tcp_over_ipv6_are_found() {
        let mut v6 = [0; 40];
        v6[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0, 20, 6, 9]);
        (v6[23], v6[39]) = (1, 2);
        let found = FrameFields::of(&frame(0x86dd, &[&v6, &[0, 80, 1, 0, 9]])).unwrap();
        let ipv6 = found.ipv6.unwrap();
        assert_eq!((ipv6[15], ipv6[31], &ipv6[32..]), (1, 2, &[0, 1, 0x23, 0x45, 6, 0xab, 9][..]));
        assert_eq!(found.tcp, Some([1, 0, 0, 80]));
    }

    #[test]
    fn a_later_fragment_has_no_ports() {
        let mut later = V4;
        later[7] = 1;
        let found = FrameFields::of(&frame(0x800, &[&later, &[1, 2, 3, 4]])).unwrap();
        assert!(found.ipv4.is_some() && found.udp.is_none());
    }

    /// Reads every frame cut at any length, and with each byte inverted: only fields that are there are
    /// returned.
    #[test]
    fn what_is_cut_off_or_wrong_is_not_there() {
        let whole = frame(0x8100, &[&[0, 5, 8, 0], &V4, &[0, 1, 0, 2, 0, 8, 0, 0]]);
        for length in 0..whole.len() {
            let found = FrameFields::of(&whole[..length]);
            assert_eq!(found.is_some(), length >= FRAME_HEADER_BYTES, "{length}");
            assert_eq!(found.is_some_and(|found| found.ipv4.is_some()), length >= 38, "{length}");
            assert_eq!(found.is_some_and(|found| found.udp.is_some()), length >= 42, "{length}");
        }
        for index in 0..whole.len() {
            let mut wrong = whole.clone();
            wrong[index] ^= 0xff;
            assert!(FrameFields::of(&wrong).is_some());
        }
    }
}
