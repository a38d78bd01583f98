//! Properties of all packets: parse and emit are inverses, and no bytes cause a panic.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::icrc::{self, IcrcVerdict};
use super::*;
use crate::path::{Flow, Path};

/// Creates a configuration with a fixed seed, so that a failure is the same everywhere. A failure prints the
/// smallest failing input.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x000c_0de1_2b70_0001),
        ..ProptestConfig::default()
    }
}

fn known_opcode() -> impl Strategy<Value = &'static OpcodeInfo> {
    let known: Vec<_> = (0..=255u8).filter_map(|byte| Opcode::from_byte(byte).info()).collect();
    proptest::sample::select(known)
}

fn some_bth(opcode: Opcode) -> impl Strategy<Value = Bth> {
    let flags = any::<(bool, bool, bool, bool, bool)>();
    (flags, any::<u16>(), any::<u32>(), any::<u32>()).prop_map(move |(flags, pkey, destination, psn)| {
        let (solicited, migrated, fecn, becn, ack_request) = flags;
        Bth {
            solicited,
            migrated,
            pkey,
            fecn,
            becn,
            ack_request,
            ..Bth::new(opcode, Qpn::new(destination), Psn::new(psn))
        }
    })
}

/// Generates legal headers and payload of an opcode.
fn legal_packet() -> impl Strategy<Value = (&'static OpcodeInfo, Headers, Vec<u8>)> {
    known_opcode().prop_flat_map(|info| {
        let payload_bytes = match info.payload {
            PayloadRule::None => 0..=0,
            PayloadRule::Eight => 8..=8,
            PayloadRule::Mtu => 256..=256,
            PayloadRule::OneToMtu => 1..=256,
            PayloadRule::ZeroToMtu => 0..=256,
        };
        let values = any::<[u64; 8]>();
        let payload = proptest::collection::vec(any::<u8>(), payload_bytes);
        (some_bth(info.opcode), values, payload)
            .prop_map(move |(bth, values, payload)| (info, with_headers(info, bth, values), payload))
    })
}

fn with_headers(info: &OpcodeInfo, bth: Bth, values: [u64; 8]) -> Headers {
    let [a, b, c, d, e, f, g, h] = values;
    let has = |header| info.headers.contains(header);
    Headers {
        bth: Bth { pad_count: 0, ..bth },
        xrceth: has(HeaderSet::XRCETH).then_some(XrcEth { srqn: a as u32 & 0xff_ffff }),
        deth: has(HeaderSet::DETH).then_some(Deth { qkey: b as u32, source: Qpn::new(a as u32) }),
        feth: has(HeaderSet::FETH).then_some(Feth { placement: c as u8 & 0x0f, selectivity: d as u8 & 3 }),
        reth: has(HeaderSet::RETH).then_some(Reth { address: d, rkey: e as u32, length: f as u32 }),
        atomic_eth: has(HeaderSet::ATOMIC_ETH).then_some(AtomicEth {
            address: d,
            rkey: e as u32,
            swap_or_add: f,
            compare: g,
        }),
        aeth: has(HeaderSet::AETH).then_some(Aeth { syndrome: g as u8, msn: h as u32 & 0xff_ffff }),
        atomic_ack_eth: has(HeaderSet::ATOMIC_ACK_ETH).then_some(AtomicAckEth { original: f }),
        imm: has(HeaderSet::IMM).then_some(ImmDt((h as u32).to_be_bytes())),
        ieth: has(HeaderSet::IETH).then_some(Ieth { rkey: h as u32 }),
    }
}

/// Generates a flow within one address family.
fn some_flow() -> impl Strategy<Value = Flow> {
    let ports = any::<(u16, u16)>();
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    (prop_oneof![v4, v6], ports).prop_map(|((source, destination), ports)| Flow {
        source,
        destination,
        source_port: ports.0,
        destination_port: ports.1,
    })
}

/// Generates bytes that pass the first checks more often than noise would.
fn near_packet() -> impl Strategy<Value = Vec<u8>> {
    (known_opcode(), proptest::collection::vec(any::<u8>(), 0..120), any::<bool>()).prop_map(
        |(info, mut bytes, plausible)| {
            if plausible && let [opcode, flags, ..] = &mut bytes[..] {
                *opcode = info.opcode.byte();
                *flags &= 0xf0;
                bytes.truncate(bytes.len() & !3);
            }
            bytes
        },
    )
}

/// Generates frames whose first bytes look like some link and IP header.
fn near_frame() -> impl Strategy<Value = Vec<u8>> {
    let starts = [
        vec![],
        vec![0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17],
        vec![0x46, 0, 0, 44],
        vec![0x60, 0, 0, 0, 0, 24, 17, 64],
        vec![0x60, 0, 0, 0, 0, 24, 44, 64],
        vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x81, 0, 0, 1, 0x08, 0, 0x45, 0, 0, 40],
        vec![0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 17, 1],
        vec![8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 0x45, 0, 0, 40],
    ];
    (proptest::sample::select(starts.to_vec()), proptest::collection::vec(any::<u8>(), 0..120)).prop_map(
        |(mut start, rest)| {
            start.extend(rest);
            start
        },
    )
}

const LINKS: [LinkType; 4] = [LinkType::Ethernet, LinkType::RawIp, LinkType::LinuxSll, LinkType::LinuxSll2];

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn parse_undoes_emit((info, headers, payload) in legal_packet(), flow in some_flow(), ip_id: u16) {
        let mut out = vec![0xee; 512];
        let written = headers.emit_packet(&payload, &mut out);
        prop_assert_eq!(headers.len(), info.header_bytes);
        prop_assert_eq!(written, (info.header_bytes + payload.len()).next_multiple_of(4));
        out.truncate(written + ICRC_BYTES);
        icrc::seal(&flow, ip_id, &mut out);
        let expected = match flow.source {
            IpAddr::V4(_) if ip_id != 0 => IcrcVerdict::Recovered { ip_id },
            _ => IcrcVerdict::Exact,
        };
        prop_assert_eq!(icrc::verify(&flow, 0, &out), expected);

        let packet = Packet::parse(&out).unwrap();
        let pad_count = (written - info.header_bytes - payload.len()) as u8;
        prop_assert_eq!(packet.headers(), Headers { bth: Bth { pad_count, ..headers.bth }, ..headers });
        prop_assert_eq!(packet.payload(), payload);
        prop_assert_eq!(packet.info(), info);
        let icrc = packet.icrc().to_le_bytes();
        prop_assert_eq!(&icrc[..], &out[written..]);
    }

    #[test]
    fn emit_undoes_parse_up_to_reserved_bits(bytes in near_packet()) {
        let Ok(packet) = Packet::parse(&bytes) else { return Ok(()) };
        let mut out = vec![0xee; bytes.len()];
        let written = packet.headers().emit_packet(packet.payload(), &mut out);
        prop_assert_eq!(written, bytes.len() - ICRC_BYTES);
        let again = Packet::parse(&out).unwrap();
        prop_assert_eq!(again.headers(), packet.headers());
        prop_assert_eq!(again.payload(), packet.payload());
    }

    #[test]
    fn decapsulate_undoes_encapsulate(
        flow in some_flow(),
        marks: (u8, u8, u32, u16),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (traffic_class, hop_limit, flow_label, ip_id) = marks;
        let path = Path { flow, traffic_class, hop_limit, flow_label };
        let built = encapsulate(&path, ip_id, &payload);
        let datagram = decapsulate(LinkType::RawIp, &built).unwrap();
        prop_assert_eq!(datagram.flow, flow);
        prop_assert_eq!(datagram.payload, payload);
        prop_assert_eq!((datagram.traffic_class, datagram.hop_limit), (traffic_class, hop_limit));
        prop_assert_eq!(datagram.ip_id, flow.source.is_ipv4().then_some(ip_id));
        prop_assert!(datagram.dont_fragment);
    }

    #[test]
    fn sealed_packets_verify_with_the_headers_they_travel_in(
        flow in some_flow(),
        marks: (u8, u8, u32, u16),
        mut packet in proptest::collection::vec(any::<u8>(), 16..300),
    ) {
        let (traffic_class, hop_limit, flow_label, ip_id) = marks;
        icrc::seal(&flow, ip_id, &mut packet);
        let built = encapsulate(&Path { flow, traffic_class, hop_limit, flow_label }, ip_id, &packet);
        let datagram = decapsulate(LinkType::RawIp, &built).unwrap();
        prop_assert!(icrc::verify_with_header(datagram.ip_header, datagram.udp_header, datagram.payload));
        prop_assert_eq!(icrc::verify(&flow, ip_id, &packet), IcrcVerdict::Exact);
    }

    #[test]
    fn the_grh_area_is_the_header_the_packet_travels_in(
        flow in some_flow(), marks: (u8, u8, u32), bytes in 16usize..4200,
    ) {
        let (traffic_class, hop_limit, flow_label) = marks;
        let area = grh(flow.source, flow.destination, traffic_class, hop_limit, flow_label, bytes);
        let built = encapsulate(&Path { flow, traffic_class, hop_limit, flow_label }, 0, &vec![0; bytes]);
        let header = decapsulate(LinkType::RawIp, &built).unwrap().ip_header;
        prop_assert_eq!(&area[GRH_BYTES - header.len()..], header);
        prop_assert!(area[..GRH_BYTES - header.len()].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in near_packet(), frame in near_frame(), flow in some_flow(), ip_id: u16,
    ) {
        for bytes in [&bytes, &frame] {
            if let Ok(packet) = Packet::parse(bytes) {
                prop_assert!(packet.payload().len() <= bytes.len());
                prop_assert_eq!(packet.headers().len(), packet.info().header_bytes);
            }
            let _ = (Bth::parse(bytes), Reth::parse(bytes), Deth::parse(bytes), XrcEth::parse(bytes));
            let _ = (AtomicEth::parse(bytes), Aeth::parse(bytes), AtomicAckEth::parse(bytes));
            let _ = (ImmDt::parse(bytes), Ieth::parse(bytes), Feth::parse(bytes));
            icrc::compute(&flow, ip_id, bytes);
            icrc::verify(&flow, ip_id, bytes);
            let mut sealed = bytes.clone();
            icrc::seal(&flow, ip_id, &mut sealed);
            icrc::seal_flush_for_rxe(&flow, ip_id, &mut sealed);
            prop_assert_eq!(sealed.len(), bytes.len());
            for link in LINKS {
                if let Ok(datagram) = decapsulate(link, bytes) {
                    prop_assert!(datagram.payload.len() < bytes.len());
                    icrc::verify_with_header(datagram.ip_header, datagram.udp_header, datagram.payload);
                }
            }
            let (head, tail) = bytes.split_at(bytes.len() / 2);
            icrc::verify_with_header(head, tail, bytes);
        }
    }

    #[test]
    fn a_short_buffer_is_never_overrun((_, headers, payload) in legal_packet(), room in 0usize..400) {
        let mut out = vec![0xee; room];
        let needed = (headers.len() + payload.len()).next_multiple_of(4);
        let written = headers.emit_packet(&payload, &mut out);
        prop_assert_eq!(written, if room < needed { 0 } else { needed });
        prop_assert!(out[written..].iter().all(|&byte| byte == 0xee));
    }
}
