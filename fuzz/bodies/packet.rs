//! Any bytes as a UDP payload and as a captured frame: nothing panics, and what was parsed survives being
//! emitted and parsed again.

use pumice_transport::wire::{LinkType, Packet, decapsulate, icrc};

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let mut packets = round_trip(bytes);
    for link in [LinkType::Ethernet, LinkType::RawIp, LinkType::LinuxSll, LinkType::LinuxSll2] {
        let Ok(datagram) = decapsulate(link, bytes) else { continue };
        packets += round_trip(datagram.payload);
        let _ = icrc::verify(&datagram.flow, 0, datagram.payload);
        let _ = icrc::verify_with_header(datagram.ip_header, datagram.udp_header, datagram.payload);
    }
    packets
}

fn round_trip(bytes: &[u8]) -> usize {
    let Ok(packet) = Packet::parse(bytes) else { return 0 };
    assert!(packet.payload().len() <= bytes.len());
    let headers = packet.headers();
    let mut emitted = vec![0; bytes.len() + 3];
    let length = headers.emit_packet(packet.payload(), &mut emitted);
    // Room for the ICRC, which parsing does not look at.
    emitted.resize(length + 4, 0);
    let again = Packet::parse(&emitted).expect("what was emitted from a packet is a packet");
    assert_eq!(again.headers(), headers);
    assert_eq!(again.payload(), packet.payload());
    1
}
