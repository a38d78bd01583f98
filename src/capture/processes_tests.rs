use pumice_device::trace::{MessageStories, SetbackKind, Timeline};
use pumice_transport::types::WcStatus;

use super::*;
use crate::capture::plan::DatagramInfo;

fn golden(name: &str) -> Vec<u8> {
    let file = format!("{}/tests/golden/6.12/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(file).expect("a capture")
}

fn of(bytes: &[u8]) -> Result<Vec<TimelineProcess>, (String, String)> {
    processes(vec![("a capture".to_owned(), bytes)])
}

#[test]
fn queue_pairs_know_their_peers_though_packets_name_one_only() {
    let all = of(&golden("rc-send")).expect("a capture");
    let [one, other] = all.as_slice() else { panic!("{all:?}") };
    let (qp, peer) = (&one.queue_pairs[0], &other.queue_pairs[0]);
    assert_eq!((one.queue_pairs.len(), other.queue_pairs.len()), (1, 1), "{all:?}");
    assert_eq!(qp.peer, Some((other.header.addresses[0], peer.qpn)));
    assert_eq!(peer.peer, Some((one.header.addresses[0], qp.qpn)));
    assert_eq!((qp.service.as_str(), qp.packets.len()), ("RC", peer.packets.len()));
    let messages = qp.messages.iter().chain(&peer.messages);
    assert!(messages.clone().count() > 0);
    for message in messages {
        assert!(message.acknowledged_ns > message.first_packet_ns, "{message:?}");
        assert_eq!(message.packets, message.packets_sent, "{message:?}");
    }
}

#[test]
fn naks_and_repetitions_are_reported() {
    let all = of(&golden("rc-rnr")).expect("a capture");
    let naks: usize = all.iter().flat_map(|one| &one.queue_pairs).map(|qp| qp.rnr_naks_ns.len()).sum();
    let again = all.iter().flat_map(|one| &one.queue_pairs).flat_map(|qp| &qp.messages);
    assert!(naks > 0 && again.clone().any(|message| message.transmissions > 1));
    let setbacks = again.flat_map(|message| &message.setbacks);
    let waits = setbacks.filter(|setback| matches!(setback.kind, SetbackKind::ReceiverNotReady { .. }));
    assert_eq!(waits.count(), naks, "one message, and each NAK is about it");
    let all = of(&golden("rc-nak-access-write")).expect("a capture");
    let mut messages = all.iter().flat_map(|one| &one.queue_pairs).flat_map(|qp| &qp.messages);
    let refused = WcStatus::RemAccessErr as u8;
    assert!(messages.any(|message| message.end.is_some_and(|end| end.status == refused)));
}

#[test]
fn no_damage_makes_the_reader_panic() {
    for name in ["rc-send", "rc-rnr", "cm-rping"] {
        let original = golden(name);
        for offset in (0..original.len()).step_by(11) {
            let mut bytes = original.clone();
            bytes[offset] ^= [0x01, 0x80, 0xff][offset % 3];
            let Ok(all) = of(&bytes) else { continue };
            let nothing: [(String, &[u8]); 0] = [];
            let timeline = Timeline::read_with(nothing, all).expect("no trace that could be wrong");
            assert!(MessageStories::of(&timeline, 3).slowest.len() <= 3);
        }
    }
}

#[test]
fn captures_of_too_many_addresses_are_refused() {
    let mut original = golden("rc-send");
    // The first packet, repeated from ever new addresses. Before it are 16 bytes of its record header, 14 of
    // Ethernet and 12 of IP.
    let length = 16 + u32::from_le_bytes([original[32], original[33], original[34], original[35]]) as usize;
    let mut packet = original[24..24 + length].to_vec();
    original.truncate(24);
    for number in 0..=MAX_ADDRESSES as u16 {
        let [high, low] = number.to_be_bytes();
        packet[16 + 14 + 12..][..4].copy_from_slice(&[10, 1, high, low]);
        original.extend_from_slice(&packet);
    }
    let (_, why) = of(&original).expect_err("too many");
    assert_eq!(why, "there are packets of more than 1024 addresses: filter it");
}

#[test]
fn datagrams_of_srd_and_dc_are_of_these_services_and_no_messages() {
    let mut builder = QueuePairBuilder::default();
    for (number, numbered) in [(0, None), (1, Some("SRD")), (2, Some("DC"))] {
        let datagram = DatagramInfo { from_qpn: 7, numbered, digest: number, message: None };
        let one = Sighting {
            capture: 0,
            time_ns: number,
            source: std::net::IpAddr::from([10, 0, 0, 1]),
            destination: std::net::IpAddr::from([10, 0, 0, 2]),
            qpn: 9,
            psn: 0,
            info: pumice_transport::wire::Opcode::from_byte(0x64).info().expect("an opcode"),
            payload_bytes: 8,
            memory: None,
            answer: None,
            is_damaged: false,
            is_lost: false,
            is_planned: false,
            is_outbound: Some(true),
            datagram: Some(datagram),
        };
        assert_eq!(service(&one), numbered.unwrap_or("UD"));
        builder.take(number, SeenDirection::Sent, &one, Some(7));
    }
    assert_eq!((builder.qp.packets.len(), builder.messages.finish().len()), (3, 1));
}
