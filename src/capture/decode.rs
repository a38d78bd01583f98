//! From a frame to what is shown of it.

use pumice_transport::path::ROCE_PORT;
use pumice_transport::wire::{Bth, Datagram, LinkType, Packet, Verdict, decapsulate, icrc};

use super::file::Frame;
use super::record::{Congestion, Flags, Icrc, Record};

/// What a frame is.
pub(crate) enum Decoded {
    /// A datagram to the RoCE port, well-formed or not.
    Roce(Box<Record>),
    /// The capture did not keep enough of the frame to tell.
    Cut,
    /// Something else.
    Other,
}

/// The shortest RoCE packet: BTH and ICRC.
const MIN_BYTES: usize = 16;

/// Decodes a frame.
pub(crate) fn decode(frame: &Frame<'_>) -> Decoded {
    let Some(link) = LinkType::from_pcap(frame.link_type) else { return Decoded::Other };
    let datagram = match decapsulate(link, frame.bytes) {
        Ok(datagram) => datagram,
        Err(_) if frame.cut => return Decoded::Cut,
        Err(_) => return Decoded::Other,
    };
    if datagram.flow.destination_port != ROCE_PORT {
        return Decoded::Other;
    }
    let mut record = Record {
        time_ns: u64::try_from(frame.time.as_nanos()).unwrap_or(u64::MAX),
        source: datagram.flow.source,
        destination: datagram.flow.destination,
        source_port: datagram.flow.source_port,
        congestion: Congestion::of(datagram.traffic_class),
        icrc: check_icrc(&datagram),
        ..Record::default()
    };
    if let Some(bth) = Bth::parse(datagram.payload) {
        record.opcode = bth.opcode.to_string();
        record.qpn = bth.destination.value();
        record.psn = bth.psn.value();
        record.pkey = bth.pkey;
        record.flags = Flags::of(&bth);
    }
    match Packet::parse(datagram.payload) {
        Ok(packet) => {
            record.headers = packet.headers().into();
            record.payload_bytes = packet.payload().len();
        }
        Err(error) => record.malformed = Some(error.to_string()),
    }
    Decoded::Roce(Box::new(record))
}

/// The capture has the whole IP header, so the check is exact. Where it fails, the identification for which
/// the ICRC would be right tells a sender that computed it for another one from a damaged packet.
fn check_icrc(datagram: &Datagram<'_>) -> Icrc {
    if datagram.payload.len() < MIN_BYTES {
        return Icrc::Missing;
    }
    if icrc::verify_with_header(datagram.ip_header, datagram.udp_header, datagram.payload) {
        return Icrc::Ok;
    }
    match icrc::verify(&datagram.flow, 0, datagram.payload) {
        Verdict::Recovered { ip_id } => Icrc::Bad { right_for_ip_id: Some(ip_id) },
        Verdict::Exact => Icrc::Bad { right_for_ip_id: Some(0) },
        Verdict::Bad => Icrc::Bad { right_for_ip_id: None },
    }
}
