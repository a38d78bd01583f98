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
//! **FLUSH requests of rdma_rxe** (Linux 6.12) carry an ICRC that covers BTH, FETH and RETH twice,
//! once with the congestion byte masked and once as they are: its opcode table gives FLUSH no payload
//! offset, so the "payload" begins at the BTH again. It expects the same of others. [`verify`]
//! accepts both forms for FLUSH; [`seal_flush_for_rxe`] writes rdma_rxe's.

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
    if k % 4 != 0 {
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
