//! What lies below a RoCE packet: UDP, IP and the link. For captures, the simulated fabric and the
//! GRH area; a UDP socket does all this by itself.

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use etherparse::{
    EtherPayloadSlice, EtherType, Ethernet2Slice, IpNumber, IpSlice, Ipv4Header, Ipv6FlowLabel, Ipv6Header,
    LenSource, LinuxSllProtocolType, LinuxSllSlice, SingleVlanSlice, UdpHeader, UdpSlice, ether_type,
};

use crate::path::{Flow, Path};

/// What the frames of a capture begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// Ethernet II, VLAN tags allowed.
    Ethernet,
    /// IPv4 or IPv6 at once.
    RawIp,
    /// Linux "cooked" capture, version 1.
    LinuxSll,
    /// Linux "cooked" capture, version 2.
    LinuxSll2,
}

impl LinkType {
    /// The link type with this number in pcap and pcapng files; `None` if it is not one of these.
    pub const fn from_pcap(number: u32) -> Option<LinkType> {
        match number {
            1 => Some(LinkType::Ethernet),
            // 12 and 14 are what some systems write for 101; 228 and 229 are one family each.
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
    /// What UDP carries; its length is the UDP header's, whatever follows in the frame.
    pub payload: &'a [u8],
    /// TOS byte or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv4 identification; `None` for IPv6.
    pub ip_id: Option<u16>,
    /// IPv4 don't-fragment; true for IPv6, where nobody fragments on the way.
    pub dont_fragment: bool,
}

/// Finds the UDP datagram in a frame. Bytes after it (Ethernet's minimum size) are ignored;
/// checksums are not checked (captures on a sending host often lack them).
///
/// # Errors
/// The frame is cut off or malformed, or carries something other than one whole UDP datagram
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
    // Asked of the first header: the ICRC is not defined over IPv6 extension headers.
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
        payload: udp.payload(),
        traffic_class: fields.traffic_class,
        hop_limit: fields.hop_limit,
        ip_id: fields.ip_id,
        dont_fragment: fields.dont_fragment,
    })
}

/// Builds the IP packet that carries `payload` (BTH to ICRC) on `path`: don't-fragment, the given
/// identification (IPv4), a right IPv4 header checksum, UDP checksum 0. Lengths saturate at what
/// IP can say; no RoCE packet comes near.
pub fn encapsulate(path: &Path, ip_id: u16, payload: &[u8]) -> Vec<u8> {
    let length = udp_length(payload.len());
    let udp = UdpHeader {
        source_port: path.flow.source_port,
        destination_port: path.flow.destination_port,
        length,
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

/// Why a frame holds no usable datagram.
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
    /// A fragment of a datagram.
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

/// Fields that the two IP versions keep in different places.
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
            // EtherType, reserved, interface index, hardware type, packet type, address length and
            // eight bytes of address.
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

/// VLAN tags that are stripped from one frame at most.
const MAX_VLAN_TAGS: usize = 3;

fn ether_payload(ether_type: EtherType, payload: &[u8]) -> EtherPayloadSlice<'_> {
    EtherPayloadSlice { ether_type, len_source: LenSource::Slice, payload }
}

/// An IP header in bytes.
pub(super) enum IpHeader {
    V4([u8; Ipv4Header::MIN_LEN]),
    V6([u8; Ipv6Header::LEN]),
}

/// UDP length field for this many payload bytes.
pub(super) fn udp_length(payload_bytes: usize) -> u16 {
    u16::try_from(payload_bytes.saturating_add(UdpHeader::LEN)).unwrap_or(u16::MAX)
}

/// The IP header of a UDP datagram; of mixed families the IPv4 address is written v4-mapped.
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
    // Without options the header is exactly 20 bytes long.
    IpHeader::V4(header.to_bytes().first_chunk().copied().unwrap_or_default())
}

/// The address itself, or v4-mapped.
pub(super) fn in_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
