//! The numbered statements about the ICRC, the algebra's known values, and the forms of FLUSH.

use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::window::{divide_by_x, inverse_power, multiply};
use super::*;
use crate::wire::vectors::{self, Vector};

fn v4_flow() -> Flow {
    Flow {
        source: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)),
        destination: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)),
        source_port: 0xd123,
        destination_port: 4791,
    }
}

/// Builds a packet with some opcode byte, filled by a small generator, sealed with `ip_id`.
fn sealed(flow: &Flow, ip_id: u16, length_bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491u32.wrapping_add(length_bytes as u32);
    let mut packet: Vec<u8> = (0..length_bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect();
    packet[0] = 0x04;
    seal(flow, ip_id, &mut packet);
    packet
}

/// Reports whether the ICRC leaves out a bit of the IP packet.
fn is_masked(vector: &Vector, byte: usize, bit: u8) -> bool {
    let udp_at = vector.ip_header().len();
    if byte >= udp_at {
        return matches!(byte - udp_at, 6 | 7 | 12);
    }
    match vector.bytes[0] >> 4 {
        4 => matches!(byte, 1 | 8 | 10 | 11),
        _ => byte == 0 && bit < 4 || matches!(byte, 1..=3 | 7),
    }
}

#[test]
fn statement_01_masked_bits_do_not_change_the_icrc() {
    for vector in vectors::all() {
        assert!(vector.verify_with_header(), "{}", vector.name);
        let icrc_at = vector.bytes.len() - ICRC_BYTES;
        let mut masked_bits = 0;
        for byte in 0..icrc_at {
            for bit in 0..8 {
                let mut changed = vector.clone();
                changed.bytes[byte] ^= 1 << bit;
                let masked = is_masked(&vector, byte, bit);
                masked_bits += u32::from(masked);
                assert_eq!(
                    changed.verify_with_header(),
                    masked,
                    "{}: byte {byte} bit {bit}, masked: {masked}",
                    vector.name
                );
            }
        }
        // These are TOS, TTL, two checksums, BTH byte 4; or class and label, hop limit, UDP checksum, BTH
        // byte 4.
        assert_eq!(masked_bits, if vector.is_ipv4() { 56 } else { 60 }, "{}", vector.name);
    }
}

#[test]
fn statement_02_the_icrc_is_little_endian_and_all_vectors_verify() {
    let expected = [
        ("V1", IcrcVerdict::Exact),
        ("V2", IcrcVerdict::Recovered { ip_id: 0x1234 }),
        ("V3", IcrcVerdict::Exact),
        ("V4", IcrcVerdict::Exact),
        ("V5", IcrcVerdict::Exact),
        ("V6", IcrcVerdict::Recovered { ip_id: 0x0478 }),
        ("V7", IcrcVerdict::Exact),
        ("V8", IcrcVerdict::Recovered { ip_id: 0x718c }),
    ];
    for (vector, (name, verdict)) in vectors::all().into_iter().zip(expected) {
        assert_eq!(vector.name, name);
        let (flow, packet) = (vector.flow(), vector.packet());
        // Scapy's own IPv4 packet has don't-fragment set, like all others here.
        assert_eq!(verify(&flow, 0, packet), verdict, "{name}");
        if let IcrcVerdict::Recovered { ip_id } = verdict {
            assert_eq!(verify(&flow, ip_id, packet), IcrcVerdict::Exact, "{name}, predicted");
            let mut sealed = packet.to_vec();
            sealed[packet.len() - 4..].fill(0);
            seal(&flow, ip_id, &mut sealed);
            assert_eq!(sealed, packet, "{name}");
        }
        let mut reversed = vector.clone();
        let at = reversed.bytes.len() - ICRC_BYTES;
        reversed.bytes[at..].reverse();
        assert!(!reversed.verify_with_header(), "{name} reversed");
        assert_eq!(verify(&flow, 0, reversed.packet()), IcrcVerdict::Bad, "{name} reversed");
    }
}

#[test]
fn statement_03_any_identification_is_accepted() {
    let flow = v4_flow();
    for length_bytes in (16..=4172).step_by(4).chain([8192, 9216]) {
        let ip_id = (length_bytes as u16).wrapping_mul(40_503);
        let packet = sealed(&flow, ip_id, length_bytes);
        let expected = if ip_id == 0 { IcrcVerdict::Exact } else { IcrcVerdict::Recovered { ip_id } };
        assert_eq!(verify(&flow, 0, &packet), expected, "{length_bytes} bytes");
        assert_eq!(verify(&flow, ip_id, &packet), IcrcVerdict::Exact, "{length_bytes} bytes, predicted");
        assert_eq!(verify(&flow, 0xbeef, &packet), expected, "{length_bytes} bytes, predicted wrongly");
    }
    let packet = sealed(&flow, 0, 64);
    assert_eq!(verify(&flow, 7, &packet), IcrcVerdict::Exact, "0 needs no prediction");
    for ip_id in 0..=u16::MAX {
        let packet = sealed(&flow, ip_id, 28);
        let expected = if ip_id == 0 { IcrcVerdict::Exact } else { IcrcVerdict::Recovered { ip_id } };
        assert_eq!(verify(&flow, 0, &packet), expected);
    }
}

#[test]
fn statement_03_every_flipped_bit_of_9216_bytes_is_rejected() {
    let flow = v4_flow();
    let mut packet = sealed(&flow, 0x1234, 9216);
    for byte in (0..packet.len()).filter(|&byte| byte != CONGESTION_BYTE) {
        for bit in 0..8 {
            packet[byte] ^= 1 << bit;
            assert_eq!(verify(&flow, 0, &packet), IcrcVerdict::Bad, "byte {byte} bit {bit}");
            packet[byte] ^= 1 << bit;
        }
    }
    assert_eq!(verify(&flow, 0, &packet), IcrcVerdict::Recovered { ip_id: 0x1234 });
}

#[test]
fn dont_fragment_is_assumed_and_addresses_and_ports_are_covered() {
    let flow = v4_flow();
    let packet = sealed(&flow, 5, 64);
    let others = [
        Flow { source: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 3)), ..flow },
        Flow { destination: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 3)), ..flow },
        Flow { source_port: 0xd122, ..flow },
        Flow { destination_port: 4790, ..flow },
    ];
    for other in others {
        assert_eq!(verify(&other, 5, &packet), IcrcVerdict::Bad, "{other:?}");
    }
    // The packet is V2 as it would be without don't-fragment.
    let without = 0xfd59_1c7e ^ 0x574c_8273 ^ 0x9ace_95ea_u32;
    let vector = &vectors::all()[1];
    let mut packet = vector.packet().to_vec();
    let at = packet.len() - ICRC_BYTES;
    packet[at..].copy_from_slice(&without.to_le_bytes());
    assert_eq!(verify(&vector.flow(), 0, &packet), IcrcVerdict::Bad);
}

#[test]
fn inverse_powers_have_the_known_values() {
    let known = [
        (0, 0x8000_0000u32),
        (1, 0x6567_cb95),
        (4, 0x5b35_8fd3),
        (8, 0x2e9b_b40b),
        (36, 0xd50c_bcf7),
        (44, 0x3c79_0f42),
        (48, 0x9d76_4201),
        (64, 0x5139_de12),
        (68, 0xbb26_d682),
        (72, 0x1a28_419b),
        (1044, 0xcbea_2f63),
        (1068, 0x23f8_4e08),
        (4116, 0x2f28_60bf),
        (4156, 0x6186_9a0a),
        (4172, 0xd5c2_8414),
    ];
    for (k, value) in known {
        let walked = (0..8 * k).fold(0x8000_0000, |power, _| divide_by_x(power));
        assert_eq!(walked, value, "x^(-8*{k})");
        if k % 4 == 0 {
            assert_eq!(inverse_power(k), Some(value), "x^(-8*{k})");
        }
    }
    assert_eq!(inverse_power(1), None);
    assert_eq!(inverse_power(9236), Some((0..8 * 9236).fold(0x8000_0000, |a, _| divide_by_x(a))));
    assert_eq!(inverse_power(9240), None);
}

#[test]
fn the_algebra_recovers_the_windows_of_v2_and_v8() {
    let vectors = vectors::all();
    let difference = |vector: &Vector| {
        let (body, received) = split(vector.packet()).unwrap();
        let computed = compute(&vector.flow(), 0, body);
        (computed, received, computed ^ received)
    };
    assert_eq!(difference(&vectors[1]), (0x9ace_95ea, 0xfd59_1c7e, 0x6797_8994));
    assert_eq!(multiply(0x6797_8994, inverse_power(68).unwrap()), 0x0000_3412);
    // With don't-fragment assumed clear, its bit would be in the window.
    assert_eq!(multiply(0xaa15_9e0d, inverse_power(68).unwrap()), 0x0040_3412);
    assert_eq!(difference(&vectors[7]).2, 0x6853_ac2d);
    assert_eq!(multiply(0x6853_ac2d, inverse_power(52).unwrap()), 0x0000_8c71);
}

#[test]
fn flush_is_accepted_in_both_forms_and_nothing_else_is() {
    let flow = v4_flow();
    let mut packet = sealed(&flow, 0, 36);
    packet[0] = FLUSH.byte();
    seal(&flow, 9, &mut packet);
    assert_eq!(verify(&flow, 9, &packet), IcrcVerdict::Exact);
    seal_flush_for_rxe(&flow, 9, &mut packet);
    assert_eq!(verify(&flow, 9, &packet), IcrcVerdict::Exact);
    assert_eq!(verify(&flow, 0, &packet), IcrcVerdict::Recovered { ip_id: 9 });
    packet[20] ^= 1;
    assert_eq!(verify(&flow, 9, &packet), IcrcVerdict::Bad);
    packet[0] = 0x04;
    seal_flush_for_rxe(&flow, 9, &mut packet);
    assert_eq!(verify(&flow, 9, &packet), IcrcVerdict::Bad, "only FLUSH has a second form");
}

#[test]
fn peers_get_flush_in_the_form_of_rxe_and_all_else_in_the_standard_one() {
    let flow = v4_flow();
    for (opcode, for_rxe) in [(FLUSH.byte(), true), (0x04, false), (0x1d, false)] {
        let mut packet = sealed(&flow, 0, 36);
        packet[0] = opcode;
        let mut expected = packet.clone();
        seal_for_peers(&flow, 9, &mut packet);
        if for_rxe {
            seal_flush_for_rxe(&flow, 9, &mut expected);
        } else {
            seal(&flow, 9, &mut expected);
        }
        assert_eq!(packet, expected, "opcode {opcode:#x}");
    }
}

#[test]
fn what_is_no_packet_is_bad_and_not_touched() {
    let flow = v4_flow();
    for length_bytes in 0..16 {
        let mut bytes = vec![0x55; length_bytes];
        seal(&flow, 0, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0x55));
        assert_eq!(verify(&flow, 0, &bytes), IcrcVerdict::Bad);
        assert!(!verify_with_header(&[0x45; 20], &[0; 8], &bytes));
    }
    let vector = &vectors::all()[0];
    assert!(!verify_with_header(&[], vector.udp_header(), vector.packet()));
    assert!(!verify_with_header(&vector.ip_header()[..19], vector.udp_header(), vector.packet()));
    assert!(!verify_with_header(&[0x45; 61], vector.udp_header(), vector.packet()));
    assert!(!verify_with_header(vector.ip_header(), &[0; 7], vector.packet()));
}
