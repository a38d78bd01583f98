//! The layers below a RoCE packet: UDP, IP and the link. Captures, the simulated fabric and the GRH area need
//! them; a UDP socket does all this by itself.

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use etherparse::{
    EtherPayloadSlice, EtherType, Ethernet2Slice, IpNumber, IpSlice, Ipv4Header, Ipv6FlowLabel, Ipv6Header,
    LenSource, LinuxSllProtocolType, LinuxSllSlice, SingleVlanSlice, UdpHeader, UdpSlice, ether_type,
};

use crate::path::{Flow, Path};

/// Kind of header that the frames of a capture begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// Ethernet II, VLAN tags allowed.
    Ethernet,
    /// IPv4 or IPv6, without a link header.
    RawIp,
    /// Linux "cooked" capture, version 1.
    LinuxSll,
    /// Linux "cooked" capture, version 2.
    LinuxSll2,
}

impl LinkType {
    /// Returns the link type with this number in pcap and pcapng files; `None` for other types.
    pub const fn from_pcap(number: u32) -> Option<LinkType> {
        match number {
            1 => Some(LinkType::Ethernet),
            // Some systems write 12 and 14 for 101; 228 and 229 stand for one IP family each.
            12 | 14 | 101 | 228 | 229 => Some(LinkType::RawIp),
            113 => Some(LinkType::LinuxSll),
            276 => Some(LinkType::LinuxSll2),
            _ => None,
        }
    }
}

/// A UDP datagram inside a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Addresses and ports.
    pub flow: Flow,
    /// The IP header as received, 20 bytes or more (IPv4), or 40 (IPv6).
    pub ip_header: &'a [u8],
    /// The UDP header as received, 8 bytes.
    pub udp_header: &'a [u8],
    /// Payload of the datagram; its length is that of the UDP header, even if more bytes follow in the frame.
    pub payload: &'a [u8],
    /// TOS byte or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv4 identification; `None` for IPv6.
    pub ip_id: Option<u16>,
    /// IPv4 don't-fragment; true for IPv6, where no router fragments.
    pub dont_fragment: bool,
}

/// Finds the UDP datagram in a frame. Bytes after it (Ethernet's minimum size) are ignored;
/// checksums are not checked (captures on a sending host often lack them).
///
/// # Errors
/// Fails if the frame is cut off or malformed, or carries something other than one whole UDP datagram
/// directly on IP.
pub fn decapsulate(link: LinkType, frame: &[u8]) -> Result<Datagram<'_>, EncapsulationError> {
    let ip = ip_packet(link, frame)?;
    let slice = IpSlice::from_slice(ip).map_err(|_| EncapsulationError::BadIp)?;
    if slice.is_fragmenting_payload() {
        return Err(EncapsulationError::Fragment);
    }
    let fields = match slice {
        IpSlice::Ipv4(ref v4) => {
            let header = v4.header();
            IpFields {
                header_bytes: usize::from(header.ihl()) * 4,
                protocol: header.protocol(),
                traffic_class: header.dcp().value() << 2 | header.ecn().value(),
                hop_limit: header.ttl(),
                ip_id: Some(header.identification()),
                dont_fragment: header.dont_fragment(),
            }
        }
        IpSlice::Ipv6(ref v6) => {
            let header = v6.header();
            IpFields {
                header_bytes: Ipv6Header::LEN,
                protocol: header.next_header(),
                traffic_class: header.traffic_class(),
                hop_limit: header.hop_limit(),
                ip_id: None,
                dont_fragment: true,
            }
        }
    };
    // The first header's protocol counts: the ICRC is not defined over IPv6 extension headers.
    if fields.protocol != IpNumber::UDP {
        return Err(EncapsulationError::NotUdp);
    }
    let (ip_header, _) = ip.split_at_checked(fields.header_bytes).ok_or(EncapsulationError::BadIp)?;
    let udp = UdpSlice::from_slice(slice.payload().payload).map_err(|_| EncapsulationError::BadUdp)?;
    Ok(Datagram {
        flow: Flow {
            source: slice.source_addr(),
            destination: slice.destination_addr(),
            source_port: udp.source_port(),
            destination_port: udp.destination_port(),
        },
        ip_header,
        udp_header: udp.header_slice(),
        //= statement:6
        //| Bytes behind the length that UDP gives are ignored.
        payload: udp.payload(),
        traffic_class: fields.traffic_class,
        hop_limit: fields.hop_limit,
        ip_id: fields.ip_id,
        dont_fragment: fields.dont_fragment,
    })
}

/// Builds the IP packet that carries `payload` (BTH to ICRC) on `path`: don't-fragment, the given
/// identification (IPv4), a correct IPv4 header checksum, UDP checksum 0. Lengths saturate at the maximum of
/// the IP fields; no RoCE packet is that long.
pub fn encapsulate(path: &Path, ip_id: u16, payload: &[u8]) -> Vec<u8> {
    let length = udp_length(payload.len());
    let udp = UdpHeader {
        source_port: path.flow.source_port,
        destination_port: path.flow.destination_port,
        length,
        //= linux:rxe_net.c#prepare_udp_hdr
        //| The UDP checksum of a sent packet is 0.
        checksum: 0,
    };
    let header = ip_header(
        path.flow.source,
        path.flow.destination,
        path.traffic_class,
        path.hop_limit,
        path.flow_label,
        ip_id,
        length,
    );
    let mut packet = Vec::with_capacity(Ipv6Header::LEN + UdpHeader::LEN + payload.len());
    match header {
        IpHeader::V4(bytes) => packet.extend_from_slice(&bytes),
        IpHeader::V6(bytes) => packet.extend_from_slice(&bytes),
    }
    packet.extend_from_slice(&udp.to_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// Reason why a frame contains no usable datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EncapsulationError {
    /// The link header is cut off or malformed.
    BadLink,
    /// The link carries something other than IP.
    NotIp,
    /// The IP header is malformed, or the packet is shorter than it says.
    BadIp,
    /// IP carries something other than UDP, or extension headers come first.
    NotUdp,
    /// The packet is a fragment of a datagram.
    Fragment,
    /// The UDP header is malformed, or the datagram is shorter than it says.
    BadUdp,
}

impl fmt::Display for EncapsulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EncapsulationError::BadLink => "link header is cut off or malformed",
            EncapsulationError::NotIp => "frame carries no IP packet",
            EncapsulationError::BadIp => "IP packet is cut off or malformed",
            EncapsulationError::NotUdp => "IP packet carries no UDP datagram",
            EncapsulationError::Fragment => "IP packet is a fragment",
            EncapsulationError::BadUdp => "UDP datagram is cut off or malformed",
        })
    }
}

impl core::error::Error for EncapsulationError {}

/// Fields that the two IP versions have at different offsets.
struct IpFields {
    header_bytes: usize,
    protocol: IpNumber,
    traffic_class: u8,
    hop_limit: u8,
    ip_id: Option<u16>,
    dont_fragment: bool,
}

/// Strips the link header and VLAN tags.
fn ip_packet(link: LinkType, frame: &[u8]) -> Result<&[u8], EncapsulationError> {
    let mut carried = match link {
        LinkType::RawIp => return Ok(frame),
        LinkType::Ethernet => {
            Ethernet2Slice::from_slice_without_fcs(frame).map_err(|_| EncapsulationError::BadLink)?.payload()
        }
        LinkType::LinuxSll => {
            let sll = LinuxSllSlice::from_slice(frame).map_err(|_| EncapsulationError::BadLink)?.payload();
            match sll.protocol_type {
                LinuxSllProtocolType::EtherType(ether_type) => ether_payload(ether_type, sll.payload),
                _ => return Err(EncapsulationError::NotIp),
            }
        }
        LinkType::LinuxSll2 => {
            // The header has EtherType, reserved bytes, interface index, hardware type, packet type, address
            // length and eight bytes of address.
            let (header, rest) = frame.split_first_chunk::<20>().ok_or(EncapsulationError::BadLink)?;
            ether_payload(EtherType(u16::from_be_bytes([header[0], header[1]])), rest)
        }
    };
    for _ in 0..=MAX_VLAN_TAGS {
        match carried.ether_type {
            ether_type::IPV4 | ether_type::IPV6 => return Ok(carried.payload),
            ether_type::VLAN_TAGGED_FRAME
            | ether_type::PROVIDER_BRIDGING
            | ether_type::VLAN_DOUBLE_TAGGED_FRAME => {
                carried = SingleVlanSlice::from_slice(carried.payload)
                    .map_err(|_| EncapsulationError::BadLink)?
                    .payload();
            }
            _ => return Err(EncapsulationError::NotIp),
        }
    }
    Err(EncapsulationError::BadLink)
}

/// Largest number of VLAN tags that are stripped from one frame.
const MAX_VLAN_TAGS: usize = 3;

fn ether_payload(ether_type: EtherType, payload: &[u8]) -> EtherPayloadSlice<'_> {
    EtherPayloadSlice { ether_type, len_source: LenSource::Slice, payload }
}

/// The bytes of an IP header.
pub(super) enum IpHeader {
    V4([u8; Ipv4Header::MIN_LEN]),
    V6([u8; Ipv6Header::LEN]),
}

/// Returns the UDP length field for this many payload bytes.
pub(super) fn udp_length(payload_bytes: usize) -> u16 {
    u16::try_from(payload_bytes.saturating_add(UdpHeader::LEN)).unwrap_or(u16::MAX)
}

/// Returns the IP header of a UDP datagram; if the families differ, the IPv4 address is written v4-mapped.
pub(super) fn ip_header(
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    flow_label: u32,
    ip_id: u16,
    udp_length: u16,
) -> IpHeader {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (source, destination) else {
        let header = Ipv6Header {
            traffic_class,
            flow_label: Ipv6FlowLabel::try_new(flow_label & Ipv6FlowLabel::MAX_U32).unwrap_or_default(),
            payload_length: udp_length,
            next_header: IpNumber::UDP,
            hop_limit,
            source: in_ipv6(source).octets(),
            destination: in_ipv6(destination).octets(),
        };
        return IpHeader::V6(header.to_bytes());
    };
    let mut header = Ipv4Header {
        dscp: (traffic_class >> 2).try_into().unwrap_or_default(),
        ecn: (traffic_class & 3).try_into().unwrap_or_default(),
        total_len: udp_length.saturating_add(Ipv4Header::MIN_LEN_U16),
        identification: ip_id,
        dont_fragment: true,
        time_to_live: hop_limit,
        protocol: IpNumber::UDP,
        source: source.octets(),
        destination: destination.octets(),
        ..Ipv4Header::default()
    };
    header.header_checksum = header.calc_header_checksum();
    // A header without options is exactly 20 bytes long.
    IpHeader::V4(header.to_bytes().first_chunk().copied().unwrap_or_default())
}

/// Returns an IPv6 address as it is, and an IPv4 address v4-mapped.
pub(super) fn in_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::net::Ipv4Addr;

    use super::*;
    use crate::wire::{icrc, vectors};

    const MAC_ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

    fn framed(link_header: &[u8], ip: &[u8]) -> Vec<u8> {
        [link_header, ip].concat()
    }

    #[test]
    fn pcap_link_types() {
        assert_eq!(LinkType::from_pcap(1), Some(LinkType::Ethernet));
        assert_eq!(LinkType::from_pcap(101), Some(LinkType::RawIp));
        assert_eq!(LinkType::from_pcap(113), Some(LinkType::LinuxSll));
        assert_eq!(LinkType::from_pcap(276), Some(LinkType::LinuxSll2));
        assert_eq!(LinkType::from_pcap(127), None);
    }

    #[test]
    fn all_links_lead_to_the_same_datagram() {
        for vector in vectors::all() {
            let ethertype: [u8; 2] = if vector.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
            let ethernet = [&MAC_ADDRESSES[..], &ethertype].concat();
            let vlan = [&MAC_ADDRESSES[..], &[0x81, 0x00, 0x60, 0x05], &ethertype].concat();
            let double_vlan =
                [&MAC_ADDRESSES[..], &[0x88, 0xa8, 0, 7, 0x81, 0, 0x60, 0x05], &ethertype].concat();
            let sll = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &ethertype].concat();
            let sll2 = [&ethertype[..], &[0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]].concat();
            let frames = [
                (LinkType::RawIp, vec![]),
                (LinkType::Ethernet, ethernet),
                (LinkType::Ethernet, vlan),
                (LinkType::Ethernet, double_vlan),
                (LinkType::LinuxSll, sll),
                (LinkType::LinuxSll2, sll2),
            ];
            for (link, header) in frames {
                let frame = framed(&header, &vector.bytes);
                let datagram = decapsulate(link, &frame).unwrap_or_else(|error| {
                    panic!("{} on {link:?} with {} bytes of link header: {error}", vector.name, header.len())
                });
                assert_eq!(datagram.flow, vector.flow(), "{}", vector.name);
                assert_eq!(datagram.ip_header, vector.ip_header());
                assert_eq!(datagram.udp_header, vector.udp_header());
                assert_eq!(datagram.payload, vector.packet());
                assert!(datagram.dont_fragment);
                assert!(icrc::verify_with_header(datagram.ip_header, datagram.udp_header, datagram.payload));
            }
        }
    }

    #[test]
    fn fields_of_the_ip_headers() {
        let vectors = vectors::all();
        let v2 = decapsulate(LinkType::RawIp, &vectors[1].bytes).unwrap();
        assert_eq!((v2.traffic_class, v2.hop_limit, v2.ip_id), (2, 17, Some(0x1234)));
        let v3 = decapsulate(LinkType::RawIp, &vectors[2].bytes).unwrap();
        assert_eq!((v3.traffic_class, v3.hop_limit, v3.ip_id), (0x68, 64, None));
        let v8 = decapsulate(LinkType::RawIp, &vectors[7].bytes).unwrap();
        assert_eq!((v8.traffic_class, v8.flow.source_port, v8.ip_id), (0xc2, 0, Some(0x718c)));
    }

    #[test]
    fn statement_06_bytes_after_the_udp_length_are_ignored() {
        let path = Path {
            flow: Flow {
                source: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)),
                destination: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)),
                source_port: 0xc001,
                destination_port: 4791,
            },
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
        };
        let mut packet = [0x04, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1, 0, 0, 0, 0];
        icrc::seal(&path.flow, 0, &mut packet);
        let header = [&MAC_ADDRESSES[..], &[0x08, 0x00]].concat();
        let mut frame = framed(&header, &encapsulate(&path, 0, &packet));
        assert_eq!(frame.len(), 58);
        frame.resize(60, 0xa5); // with the frame check sequence: Ethernet's minimum of 64
        let datagram = decapsulate(LinkType::Ethernet, &frame).unwrap();
        assert_eq!(datagram.payload, packet);
        assert!(icrc::verify_with_header(datagram.ip_header, datagram.udp_header, datagram.payload));
        // The same inside IP: a UDP length that ends before IP's does.
        let mut ip = encapsulate(&path, 0, &packet);
        ip.extend_from_slice(&[0xa5; 4]);
        ip[3] += 4;
        assert_eq!(decapsulate(LinkType::RawIp, &ip).unwrap().payload, packet);
    }

    #[test]
    fn encapsulate_builds_the_vectors_again() {
        for vector in vectors::all() {
            let before = decapsulate(LinkType::RawIp, &vector.bytes).unwrap();
            let flow_label = if vector.is_ipv4() {
                0
            } else {
                u32::from_be_bytes(*vector.bytes.first_chunk().unwrap()) & 0xf_ffff
            };
            let path = Path {
                flow: before.flow,
                traffic_class: before.traffic_class,
                hop_limit: before.hop_limit,
                flow_label,
            };
            let built = encapsulate(&path, before.ip_id.unwrap_or(0), before.payload);
            let mut expected = vector.bytes.clone();
            let checksum_at = vector.ip_header().len() + 6;
            expected[checksum_at..checksum_at + 2].fill(0); // some of them have a UDP checksum
            assert_eq!(built, expected, "{}", vector.name);
        }
    }

    #[test]
    fn mixed_families_are_mapped() {
        let flow = Flow {
            source: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)),
            destination: IpAddr::V6(Ipv6Addr::LOCALHOST),
            source_port: 1,
            destination_port: 4791,
        };
        let path = Path { flow, traffic_class: 0, hop_limit: 1, flow_label: 0xffff_ffff };
        let mut packet = [0x55; 16];
        icrc::seal(&flow, 3, &mut packet);
        let built = encapsulate(&path, 3, &packet);
        assert_eq!(built[..4], [0x60, 0x0f, 0xff, 0xff], "the flow label is cut to 20 bits");
        assert_eq!(built[18..24], [0xff, 0xff, 10, 9, 0, 1]);
        let datagram = decapsulate(LinkType::RawIp, &built).unwrap();
        assert!(icrc::verify_with_header(datagram.ip_header, datagram.udp_header, datagram.payload));
        assert_eq!(icrc::verify(&flow, 0, &packet), icrc::IcrcVerdict::Exact);
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        let v1 = vectors::all()[0].bytes.clone();
        let with = |at: usize, value: u8| {
            let mut bytes = v1.clone();
            bytes[at] = value;
            bytes
        };
        let raw = [
            (vec![], EncapsulationError::BadIp),
            (v1[..19].to_vec(), EncapsulationError::BadIp),
            (v1[..v1.len() - 1].to_vec(), EncapsulationError::BadIp),
            (with(0, 0x55), EncapsulationError::BadIp),
            (with(9, 6), EncapsulationError::NotUdp),
            (with(6, 0x20), EncapsulationError::Fragment),
            (with(7, 1), EncapsulationError::Fragment),
            (with(25, 0xff), EncapsulationError::BadUdp),
            (with(25, 7), EncapsulationError::BadUdp),
        ];
        for (bytes, error) in raw {
            assert_eq!(decapsulate(LinkType::RawIp, &bytes), Err(error), "{bytes:02x?}");
        }
        let arp = framed(&[&MAC_ADDRESSES[..], &[0x08, 0x06]].concat(), &[0; 46]);
        assert_eq!(decapsulate(LinkType::Ethernet, &arp), Err(EncapsulationError::NotIp));
        assert_eq!(decapsulate(LinkType::Ethernet, &arp[..13]), Err(EncapsulationError::BadLink));
        let tags = [0x81, 0, 0, 1].repeat(5);
        let tagged = framed(&[&MAC_ADDRESSES[..], &tags, &[0x08, 0x00]].concat(), &v1);
        assert_eq!(decapsulate(LinkType::Ethernet, &tagged), Err(EncapsulationError::BadLink));
        assert_eq!(decapsulate(LinkType::LinuxSll, &[0; 15]), Err(EncapsulationError::BadLink));
        assert_eq!(decapsulate(LinkType::LinuxSll2, &[0; 19]), Err(EncapsulationError::BadLink));
    }
}
