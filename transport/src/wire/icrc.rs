//! The invariant CRC: covers all that routers leave alone, from the IP header to the pad.
//!
//! The CRC is that of Ethernet and zlib over eight bytes of ones, the IP header, the UDP header, the
//! BTH and the rest, where fields that change on the way (TOS, TTL, checksums; traffic class, flow
//! label, hop limit; the BTH's congestion byte) are taken as ones. It travels least significant byte
//! first.
//!
//! **The IPv4 identification is covered, and a UDP socket does not see it.** [`verify`] therefore
//! recovers it: a CRC is affine, so the difference between the received CRC and the one computed
//! with an assumed identification is W·x^(8k), W being the difference of the 32-bit window of
//! identification, flags and fragment offset, k the number of bytes from there to the end. Divided by
//! x^(8k) it must leave flags and fragment offset as assumed (don't-fragment set, as rdma_rxe,
//! hardware and we send); the other half of the window is the sender's identification. A random
//! wrong ICRC slips through with probability 2^-16 instead of 2^-32; every wrong single bit is still
//! found. IPv6 has no such field and is always exact.
//!
//! **FLUSH requests of rdma_rxe** (Linux 6.12) carry an ICRC that covers BTH, FETH and RETH twice:
//! first as above, then once more unmasked, where the payload would come. That is what an opcode
//! table without a payload offset for FLUSH amounts to, and rdma_rxe checks received packets by the
//! same table. Found by comparison with captured packets (`tests/golden/6.12/rc-flush*.pcap`): it
//! explains all of them. [`verify`] and [`verify_with_header`] accept both forms for FLUSH;
//! [`seal`] writes the specification's, [`seal_flush_for_rxe`] rdma_rxe's. rdma_rxe drops a FLUSH with the
//! specification's ICRC (measured with Linux 6.12), and no other RoCE device with FLUSH is known:
//! [`seal_for_peers`] is what a device sends.

use core::net::IpAddr;

use crc32fast::Hasher;

use super::encapsulation::{in_ipv6, udp_length};
use super::{Bth, Opcode, Operation, Service};
use crate::path::Flow;

/// Bytes of the ICRC.
pub const ICRC_BYTES: usize = 4;

/// Outcome of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Right for the predicted identification or for 0, or over IPv6.
    Exact,
    /// Right for this identification, which nobody predicted.
    Recovered {
        /// IPv4 identification of the sender.
        ip_id: u16,
    },
    /// Wrong: drop the packet.
    Bad,
}

/// ICRC of `body` (BTH to pad) in a packet of this flow, don't-fragment set; `ip_id` counts for
/// IPv4 only. Addresses of mixed families are taken as IPv6, v4-mapped.
pub fn compute(flow: &Flow, ip_id: u16, body: &[u8]) -> u32 {
    let mut pseudo = [0xff; PSEUDO_V6_BYTES + Bth::LEN];
    let udp_length = udp_length(body.len() + ICRC_BYTES);
    let udp_at = match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            pseudo[0] = 0x45;
            pseudo[2..4].copy_from_slice(&udp_length.saturating_add(20).to_be_bytes());
            pseudo[4..6].copy_from_slice(&ip_id.to_be_bytes());
            pseudo[6..8].copy_from_slice(&DONT_FRAGMENT);
            pseudo[9] = UDP;
            pseudo[12..16].copy_from_slice(&source.octets());
            pseudo[16..20].copy_from_slice(&destination.octets());
            20
        }
        (source, destination) => {
            pseudo[0] = 0x6f;
            pseudo[4..6].copy_from_slice(&udp_length.to_be_bytes());
            pseudo[6] = UDP;
            pseudo[8..24].copy_from_slice(&in_ipv6(source).octets());
            pseudo[24..40].copy_from_slice(&in_ipv6(destination).octets());
            40
        }
    };
    pseudo[udp_at..udp_at + 2].copy_from_slice(&flow.source_port.to_be_bytes());
    pseudo[udp_at + 2..udp_at + 4].copy_from_slice(&flow.destination_port.to_be_bytes());
    pseudo[udp_at + 4..udp_at + 6].copy_from_slice(&udp_length.to_be_bytes());
    let mut crc = Hasher::new_with_initial(AFTER_LRH);
    let bth_at = udp_at + 8;
    match body.split_first_chunk::<{ Bth::LEN }>() {
        Some((bth, rest)) => {
            let end = bth_at + Bth::LEN;
            pseudo[bth_at..end].copy_from_slice(bth);
            pseudo[bth_at + CONGESTION_BYTE] = 0xff;
            crc.update(&pseudo[..end]);
            crc.update(rest);
        }
        // Not a packet; still a defined value.
        None => {
            crc.update(&pseudo[..bth_at]);
            crc.update(body);
        }
    }
    crc.finalize()
}

/// Computes the ICRC and writes it to the last four bytes of `packet` (BTH to ICRC). Does nothing to
/// fewer than 16 bytes, which are no packet.
pub fn seal(flow: &Flow, ip_id: u16, packet: &mut [u8]) {
    seal_with(packet, |body| compute(flow, ip_id, body));
}

/// As [`seal`], in the form that rdma_rxe writes and expects for FLUSH requests (see the module's
/// documentation).
pub fn seal_flush_for_rxe(flow: &Flow, ip_id: u16, packet: &mut [u8]) {
    seal_with(packet, |body| continue_over(compute(flow, ip_id, body), body));
}

/// Seals in the form that peers accept: as [`seal_flush_for_rxe`] for FLUSH requests, as [`seal`] for all others.
pub fn seal_for_peers(flow: &Flow, ip_id: u16, packet: &mut [u8]) {
    if packet.first() == Some(&FLUSH.byte()) {
        seal_flush_for_rxe(flow, ip_id, packet);
    } else {
        seal(flow, ip_id, packet);
    }
}

/// Verifies a packet (BTH to ICRC) whose IPv4 identification is unknown: right for `predicted_id`,
/// for 0, or for any other with don't-fragment set. `predicted_id` is ignored for IPv6.
pub fn verify(flow: &Flow, predicted_id: u16, packet: &[u8]) -> Verdict {
    let Some((body, received)) = split(packet) else { return Verdict::Bad };
    let computed = compute(flow, predicted_id, body);
    if computed == received {
        return Verdict::Exact;
    }
    let is_ipv4 = flow.source.is_ipv4() && flow.destination.is_ipv4();
    let window_bytes = packet.len() + WINDOW_TO_UDP_PAYLOAD;
    let standard = recover(is_ipv4, predicted_id, computed ^ received, window_bytes);
    if standard != Verdict::Bad || body.first() != Some(&FLUSH.byte()) {
        return standard;
    }
    let computed = continue_over(computed, body);
    if computed == received {
        return Verdict::Exact;
    }
    recover(is_ipv4, predicted_id, computed ^ received, window_bytes + body.len())
}

/// Verifies a packet (BTH to ICRC) with the IP header (IPv4 with options or IPv6) and UDP header it
/// came with, as a capture has them. False also for headers that are none.
pub fn verify_with_header(ip_header: &[u8], udp_header: &[u8], packet: &[u8]) -> bool {
    let (Some((body, received)), Some(udp)) = (split(packet), udp_header.first_chunk::<8>()) else {
        return false;
    };
    let mut masked_ip = [0; MAX_IP_HEADER_BYTES];
    let Some(ip) = masked_ip.get_mut(..ip_header.len()) else { return false };
    ip.copy_from_slice(ip_header);
    match ip {
        [version, tos, _, _, _, _, _, _, ttl, _, checksum_high, checksum_low, _, _, _, _, _, _, _, _, ..]
            if *version >> 4 == 4 =>
        {
            [*tos, *ttl, *checksum_high, *checksum_low] = [0xff; 4];
        }
        [version, class, label_high, label_low, _, _, _, hop_limit, rest @ ..]
            if *version >> 4 == 6 && rest.len() == 32 =>
        {
            *version |= 0x0f;
            [*class, *label_high, *label_low, *hop_limit] = [0xff; 4];
        }
        _ => return false,
    }
    let &[s0, s1, d0, d1, l0, l1, _, _] = udp;
    let mut crc = Hasher::new_with_initial(AFTER_LRH);
    crc.update(ip);
    crc.update(&[s0, s1, d0, d1, l0, l1, 0xff, 0xff]);
    if let Some((bth, rest)) = body.split_first_chunk::<{ Bth::LEN }>() {
        let mut bth = *bth;
        bth[CONGESTION_BYTE] = 0xff;
        crc.update(&bth);
        crc.update(rest);
    }
    let computed = crc.finalize();
    computed == received || body.first() == Some(&FLUSH.byte()) && continue_over(computed, body) == received
}

/// CRC after the eight bytes of ones that stand for the absent local route header.
const AFTER_LRH: u32 = !0xdebb_20e3;
const PSEUDO_V6_BYTES: usize = 40 + 8;
const MAX_IP_HEADER_BYTES: usize = 60;
const DONT_FRAGMENT: [u8; 2] = [0x40, 0x00];
const UDP: u8 = 17;
/// Byte of the BTH with FECN and BECN.
const CONGESTION_BYTE: usize = 4;
/// The window ends the stream's last `packet length + this` bytes: 16 of the IPv4 header from the
/// identification on, 8 of UDP, and the packet without the 4 of its ICRC.
const WINDOW_TO_UDP_PAYLOAD: usize = 20;
const FLUSH: Opcode = Opcode::new(Service::Rc, Operation::Flush);

fn seal_with(packet: &mut [u8], icrc: impl FnOnce(&[u8]) -> u32) {
    if packet.len() < Bth::LEN + ICRC_BYTES {
        return;
    }
    if let Some((body, out)) = packet.split_last_chunk_mut::<ICRC_BYTES>() {
        *out = icrc(body).to_le_bytes();
    }
}

/// Body and ICRC of a packet; `None` if too short to be one.
fn split(packet: &[u8]) -> Option<(&[u8], u32)> {
    if packet.len() < Bth::LEN + ICRC_BYTES {
        return None;
    }
    packet.split_last_chunk().map(|(body, icrc)| (body, u32::from_le_bytes(*icrc)))
}

/// The CRC of a stream and then `bytes`, from the CRC of the stream.
fn continue_over(crc: u32, bytes: &[u8]) -> u32 {
    let mut crc = Hasher::new_with_initial(crc);
    crc.update(bytes);
    crc.finalize()
}

/// Explains a difference between computed and received CRC by another identification, if one can.
fn recover(is_ipv4: bool, assumed_id: u16, difference: u32, window_bytes: usize) -> Verdict {
    if !is_ipv4 {
        return Verdict::Bad;
    }
    let Some(inverse) = inverse_power(window_bytes) else { return Verdict::Bad };
    let window = multiply(difference, inverse);
    if window & 0xffff_0000 != 0 {
        return Verdict::Bad;
    }
    match assumed_id ^ (window as u16).swap_bytes() {
        0 => Verdict::Exact,
        ip_id => Verdict::Recovered { ip_id },
    }
}

// Polynomials over GF(2) modulo the CRC's, reflected: bit 31 is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// x^(−8·4·i) for every i: a window that begins `4·i` bytes before the end of the stream. Enough for
/// UDP payloads of 9216 bytes, in 9.2 KB.
static INVERSE_POWERS: [u32; (9216 + WINDOW_TO_UDP_PAYLOAD) / 4 + 1] = {
    let mut table = [0x8000_0000; (9216 + WINDOW_TO_UDP_PAYLOAD) / 4 + 1];
    let mut index = 1;
    while index < table.len() {
        let mut power = table[index - 1];
        let mut step = 0;
        while step < 32 {
            power = divide_by_x(power);
            step += 1;
        }
        table[index] = power;
        index += 1;
    }
    table
};

/// x^(−8k); `None` for a k that no packet has: not a multiple of 4, or too long.
fn inverse_power(k: usize) -> Option<u32> {
    if !k.is_multiple_of(4) {
        return None;
    }
    INVERSE_POWERS.get(k / 4).copied()
}

const fn divide_by_x(a: u32) -> u32 {
    if a & 0x8000_0000 != 0 { (a ^ POLYNOMIAL) << 1 | 1 } else { a << 1 }
}

/// Product of two polynomials; without branches on the operands.
const fn multiply(mut a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= a & (b >> bit & 1).wrapping_neg();
        a = a >> 1 ^ POLYNOMIAL & (a & 1).wrapping_neg();
    }
    product
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;

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

    /// A packet with some opcode byte, filled from a small generator, sealed with `ip_id`.
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

    /// Whether the ICRC leaves out a bit of the IP packet.
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
            // TOS, TTL, two checksums, BTH byte 4; or class and label, hop limit, UDP checksum, BTH byte 4.
            assert_eq!(masked_bits, if vector.is_ipv4() { 56 } else { 60 }, "{}", vector.name);
        }
    }

    #[test]
    fn statement_02_the_icrc_is_little_endian_and_all_vectors_verify() {
        let expected = [
            ("V1", Verdict::Exact),
            ("V2", Verdict::Recovered { ip_id: 0x1234 }),
            ("V3", Verdict::Exact),
            ("V4", Verdict::Exact),
            ("V5", Verdict::Exact),
            ("V6", Verdict::Recovered { ip_id: 0x0478 }),
            ("V7", Verdict::Exact),
            ("V8", Verdict::Recovered { ip_id: 0x718c }),
        ];
        for (vector, (name, verdict)) in vectors::all().into_iter().zip(expected) {
            assert_eq!(vector.name, name);
            let (flow, packet) = (vector.flow(), vector.packet());
            // Scapy's own IPv4 packet has don't-fragment set, like all others here.
            assert_eq!(verify(&flow, 0, packet), verdict, "{name}");
            if let Verdict::Recovered { ip_id } = verdict {
                assert_eq!(verify(&flow, ip_id, packet), Verdict::Exact, "{name}, predicted");
                let mut sealed = packet.to_vec();
                sealed[packet.len() - 4..].fill(0);
                seal(&flow, ip_id, &mut sealed);
                assert_eq!(sealed, packet, "{name}");
            }
            let mut reversed = vector.clone();
            let at = reversed.bytes.len() - ICRC_BYTES;
            reversed.bytes[at..].reverse();
            assert!(!reversed.verify_with_header(), "{name} reversed");
            assert_eq!(verify(&flow, 0, reversed.packet()), Verdict::Bad, "{name} reversed");
        }
    }

    #[test]
    fn statement_03_any_identification_is_accepted() {
        let flow = v4_flow();
        for length_bytes in (16..=4172).step_by(4).chain([8192, 9216]) {
            let ip_id = (length_bytes as u16).wrapping_mul(40_503);
            let packet = sealed(&flow, ip_id, length_bytes);
            let expected = if ip_id == 0 { Verdict::Exact } else { Verdict::Recovered { ip_id } };
            assert_eq!(verify(&flow, 0, &packet), expected, "{length_bytes} bytes");
            assert_eq!(verify(&flow, ip_id, &packet), Verdict::Exact, "{length_bytes} bytes, predicted");
            assert_eq!(verify(&flow, 0xbeef, &packet), expected, "{length_bytes} bytes, predicted wrongly");
        }
        let packet = sealed(&flow, 0, 64);
        assert_eq!(verify(&flow, 7, &packet), Verdict::Exact, "0 needs no prediction");
        for ip_id in 0..=u16::MAX {
            let packet = sealed(&flow, ip_id, 28);
            let expected = if ip_id == 0 { Verdict::Exact } else { Verdict::Recovered { ip_id } };
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
                assert_eq!(verify(&flow, 0, &packet), Verdict::Bad, "byte {byte} bit {bit}");
                packet[byte] ^= 1 << bit;
            }
        }
        assert_eq!(verify(&flow, 0, &packet), Verdict::Recovered { ip_id: 0x1234 });
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
            assert_eq!(verify(&other, 5, &packet), Verdict::Bad, "{other:?}");
        }
        // V2 as it would be without don't-fragment.
        let without = 0xfd59_1c7e ^ 0x574c_8273 ^ 0x9ace_95ea_u32;
        let vector = &vectors::all()[1];
        let mut packet = vector.packet().to_vec();
        let at = packet.len() - ICRC_BYTES;
        packet[at..].copy_from_slice(&without.to_le_bytes());
        assert_eq!(verify(&vector.flow(), 0, &packet), Verdict::Bad);
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
        // Had don't-fragment been assumed clear, its bit would be in the window.
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
        assert_eq!(verify(&flow, 9, &packet), Verdict::Exact);
        seal_flush_for_rxe(&flow, 9, &mut packet);
        assert_eq!(verify(&flow, 9, &packet), Verdict::Exact);
        assert_eq!(verify(&flow, 0, &packet), Verdict::Recovered { ip_id: 9 });
        packet[20] ^= 1;
        assert_eq!(verify(&flow, 9, &packet), Verdict::Bad);
        packet[0] = 0x04;
        seal_flush_for_rxe(&flow, 9, &mut packet);
        assert_eq!(verify(&flow, 9, &packet), Verdict::Bad, "only FLUSH has a second form");
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
            assert_eq!(verify(&flow, 0, &bytes), Verdict::Bad);
            assert!(!verify_with_header(&[0x45; 20], &[0; 8], &bytes));
        }
        let vector = &vectors::all()[0];
        assert!(!verify_with_header(&[], vector.udp_header(), vector.packet()));
        assert!(!verify_with_header(&vector.ip_header()[..19], vector.udp_header(), vector.packet()));
        assert!(!verify_with_header(&[0x45; 61], vector.udp_header(), vector.packet()));
        assert!(!verify_with_header(vector.ip_header(), &[0; 7], vector.packet()));
    }
}
