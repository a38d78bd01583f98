//! Proofs about the layers below UDP: adding and removing them, and the fields of frames.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::path::{Flow, Path};
use crate::proofs::{Values, check};
use crate::wire::encapsulation::udp_length;
use crate::wire::{FRAME_HEADER_BYTES, FrameFields, GRH_BYTES, LinkType, decapsulate, encapsulate, grh};

const MAX_PAYLOAD: usize = 6;
const MAX_FRAME: usize = 76;

fn v4(from: &mut Values) -> IpAddr {
    Ipv4Addr::from_bits(from.u32()).into()
}

fn v6(from: &mut Values) -> IpAddr {
    Ipv6Addr::from_bits(u128::from(from.u64()) << 64 | u128::from(from.u64())).into()
}

fn path(source: IpAddr, destination: IpAddr, from: &mut Values) -> Path {
    let flow = Flow { source, destination, source_port: from.u16(), destination_port: from.u16() };
    Path { flow, traffic_class: from.u8(), hop_limit: from.u8(), flow_label: from.u32() }
}

/// Checks that decapsulating an encapsulated payload returns the same payload and fields.
fn comes_out(path: &Path, from: &mut Values) {
    let ip_id = from.u16();
    let payload: [u8; MAX_PAYLOAD] = from.bytes();
    let payload = &payload[..from.up_to(MAX_PAYLOAD as u64) as usize];
    let built = encapsulate(path, ip_id, payload);
    let found = decapsulate(LinkType::RawIp, &built);
    assert!(found.is_ok());
    let Ok(found) = found else { return };
    assert_eq!((found.flow, found.payload), (path.flow, payload));
    assert_eq!((found.traffic_class, found.hop_limit), (path.traffic_class, path.hop_limit));
    assert_eq!(found.ip_id, path.flow.source.is_ipv4().then_some(ip_id));
    assert!(found.dont_fragment);
    assert_eq!(found.ip_header.len() + found.udp_header.len() + payload.len(), built.len());
}

/// Decapsulating undoes encapsulating over IPv4.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(50))]
#[cfg_attr(not(kani), test)]
fn decapsulating_undoes_encapsulating_over_ipv4() {
    check(|from| {
        let (source, destination) = (v4(from), v4(from));
        comes_out(&path(source, destination, from), from);
    });
}

/// Decapsulating undoes encapsulating over IPv6.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(50))]
#[cfg_attr(not(kani), test)]
fn decapsulating_undoes_encapsulating_over_ipv6() {
    check(|from| {
        let (source, destination) = (v6(from), v6(from));
        comes_out(&path(source, destination, from), from);
    });
}

/// Link types with the offset at which IP begins in a frame of each, and the offset of its type.
const LINKS: [(LinkType, usize, usize); 5] = [
    (LinkType::RawIp, 0, 50),
    (LinkType::Ethernet, 14, 12),
    (LinkType::Ethernet, 18, 16),
    (LinkType::LinuxSll, 16, 14),
    (LinkType::LinuxSll2, 20, 0),
];

/// Returns any frame, and a link; frames that contain UDP are more frequent than by chance.
fn frame(from: &mut Values) -> ([u8; MAX_FRAME], usize, LinkType) {
    let mut frame: [u8; MAX_FRAME] = from.bytes();
    let length = from.up_to(MAX_FRAME as u64) as usize;
    let (link, ip, kind) = from.one_of(&LINKS);
    if from.bool() {
        return (frame, length, link);
    }
    if ip == 18 {
        [frame[12], frame[13]] = from.one_of(&[0x8100_u16, 0x88a8]).to_be_bytes();
    }
    let bytes = length.saturating_sub(ip) as u8;
    // The bytes are, for IPv4 with or without an option: length, fragment and protocol; for IPv6: length and
    // protocol.
    let udp = if from.bool() {
        let words = from.between(5, 6) as u8;
        [frame[kind], frame[kind + 1]] = [8, 0];
        [frame[ip], frame[ip + 2], frame[ip + 3]] = [0x40 | words, 0, bytes];
        [frame[ip + 6], frame[ip + 7], frame[ip + 9]] = [frame[ip + 6] & 0x60, 0, 17];
        4 * words
    } else {
        [frame[kind], frame[kind + 1]] = [0x86, 0xdd];
        [frame[ip], frame[ip + 4], frame[ip + 5], frame[ip + 6]] = [0x60, 0, bytes.saturating_sub(40), 17];
        40
    };
    let at = ip + usize::from(udp);
    [frame[at + 4], frame[at + 5]] = [0, bytes.saturating_sub(udp)];
    (frame, length, link)
}

/// No frame makes the reader of frames panic, and the datagram that it finds lies inside the frame.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(78))]
#[cfg_attr(not(kani), test)]
fn the_datagram_of_any_frame_lies_inside_it() {
    check(|from| {
        let (frame, length, link) = frame(from);
        let frame = &frame[..length];
        let Ok(found) = decapsulate(link, frame) else { return };
        let inside = |part: &[u8]| {
            let (whole, part) = (frame.as_ptr_range(), part.as_ptr_range());
            whole.start <= part.start && part.end <= whole.end
        };
        assert!(inside(found.ip_header) && inside(found.udp_header) && inside(found.payload));
        // The parts lie one behind the other.
        assert_eq!(found.ip_header.as_ptr_range().end, found.udp_header.as_ptr());
        assert_eq!(found.udp_header.as_ptr_range().end, found.payload.as_ptr());
        assert_eq!(found.udp_header.len(), 8);
        let is_v4 = found.flow.source.is_ipv4();
        assert_eq!((is_v4, is_v4), (found.flow.destination.is_ipv4(), found.ip_id.is_some()));
        let expected = if is_v4 { 20..=60 } else { 40..=40 };
        assert!(expected.contains(&found.ip_header.len()));
    });
}

/// No frame makes the reader of fields panic, and a frame has fields of at most one protocol of each layer.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(78))]
#[cfg_attr(not(kani), test)]
fn a_frame_has_one_protocol_of_each_layer() {
    check(|from| {
        let (frame, length, _) = frame(from);
        let fields = FrameFields::of(&frame[..length]);
        assert_eq!(fields.is_some(), length >= FRAME_HEADER_BYTES);
        let Some(fields) = fields else { return };
        assert_eq!(fields.ethernet[..12], frame[..12]);
        assert!(fields.ipv4.is_none() || fields.ipv6.is_none());
        assert!(fields.tcp.is_none() || fields.udp.is_none());
        let has_ip = fields.ipv4.is_some() || fields.ipv6.is_some();
        assert!(has_ip || (fields.tcp.is_none() && fields.udp.is_none()));
    });
}

/// The UDP length is that of the payload and the header, and saturates at the field's maximum.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn udp_lengths_saturate() {
    check(|from| {
        let bytes = if from.bool() { from.up_to(0x1_0008) } else { from.u64() };
        let length = udp_length(bytes as usize);
        assert!(length >= 8);
        assert_eq!(u64::from(length), bytes.saturating_add(8).min(0xffff));
    });
}

/// The GRH area of an IPv4 datagram has twenty zeros and a header whose words sum up to the right checksum.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(22))]
#[cfg_attr(not(kani), test)]
fn the_checksum_of_a_grh_area_is_right() {
    check(|from| {
        let (source, destination) = (v4(from), v4(from));
        let (class, hops, bytes) = (from.u8(), from.u8(), from.up_to(70_000));
        let area: [u8; GRH_BYTES] = grh(source, destination, class, hops, from.u32(), bytes as usize);
        assert_eq!(area[..20], [0; 20]);
        let mut sum = 0_u32;
        for index in 0..10 {
            sum += u32::from(u16::from_be_bytes([area[20 + 2 * index], area[21 + 2 * index]]));
        }
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(area[24..28], [0, 0, 0x40, 0], "identification and don't-fragment");
        assert_eq!((area[20], area[21], area[28], area[29]), (0x45, class, hops, 17));
    });
}
