//! The invariant CRC, which covers all fields that routers leave unchanged, from the IP header to the pad.
//!
//! The CRC is that of Ethernet and zlib over eight bytes of ones, the IP header, the UDP header, the BTH and
//! the rest, where fields that change on the way (TOS, TTL, checksums; traffic class, flow label, hop limit;
//! the BTH's congestion byte) are replaced by ones. It is sent least significant byte first.
//!
//! **The ICRC covers the IPv4 identification, which a UDP socket does not see.** [`verify`] therefore
//! recovers it: a CRC is affine, so the difference between the received CRC and the one computed with an
//! assumed identification is W·x^(8k), W being the difference of the 32-bit window of identification, flags
//! and fragment offset, k the number of bytes from there to the end. The quotient by x^(8k) must leave flags
//! and fragment offset as assumed (don't-fragment set, as rdma_rxe, hardware and this device send); the other
//! half of the window is the sender's identification. A random wrong ICRC is accepted with probability 2^-16
//! instead of 2^-32; every wrong single bit is still found. IPv6 has no such field and is always exact.
//!
//! **FLUSH requests of rdma_rxe** (Linux 6.12) carry an ICRC that covers BTH, FETH and RETH twice: first as
//! above, then once more unmasked, where the payload would be. An opcode table without a payload offset for
//! FLUSH has that effect, and rdma_rxe checks received packets by the same table. This was found by
//! comparison with captured packets (`tests/golden/6.12/rc-flush*.pcap`): it explains all of them. [`verify`]
//! and [`verify_with_header`] accept both forms for FLUSH; [`seal`] writes the specification's,
//! [`seal_flush_for_rxe`] rdma_rxe's. rdma_rxe drops a FLUSH with the specification's ICRC (measured with
//! Linux 6.12), and no other RoCE device with FLUSH is known; a device sends what [`seal_for_peers`] writes.

#[cfg(any(test, kani))]
mod proofs;
mod window;

use core::net::IpAddr;

use crc32fast::Hasher;

use super::encapsulation::{in_ipv6, udp_length};
use super::{Bth, Opcode, Operation, Service};
use crate::path::Flow;
pub use window::IcrcVerdict;
use window::{WINDOW_TO_UDP_PAYLOAD, recover};

/// Length of the ICRC in bytes.
pub const ICRC_BYTES: usize = 4;

/// Computes the ICRC of `body` (BTH to pad) in a packet of this flow, don't-fragment set; `ip_id` counts for
/// IPv4 only. If the address families differ, both are taken as IPv6, v4-mapped.
#[expect(clippy::indexing_slicing, reason = "constant offsets into an array; once per packet")]
pub fn compute(flow: &Flow, ip_id: u16, body: &[u8]) -> u32 {
    let mut pseudo = [0xff; PSEUDO_V6_BYTES + Bth::LEN];
    let udp_length = udp_length(body.len() + ICRC_BYTES);
    let udp_at = match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            pseudo[0] = 0x45;
            pseudo[2..4].copy_from_slice(&udp_length.saturating_add(20).to_be_bytes());
            pseudo[4..6].copy_from_slice(&ip_id.to_be_bytes());
            //= linux:rxe_net.c#prepare4
            //| The IPv4 header of a RoCEv2 packet has the flag DF.
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
            //= statement:1
            //| The ICRC does not cover byte 4 of the BTH.
            pseudo[bth_at + CONGESTION_BYTE] = 0xff;
            crc.update(&pseudo[..end]);
            crc.update(rest);
        }
        // The body is no packet; the value is defined nevertheless.
        None => {
            crc.update(&pseudo[..bth_at]);
            crc.update(body);
        }
    }
    crc.finalize()
}

/// Computes the ICRC and writes it to the last four bytes of `packet` (BTH to ICRC). Leaves fewer than 16
/// bytes, which are no packet, unchanged.
pub fn seal(flow: &Flow, ip_id: u16, packet: &mut [u8]) {
    seal_with(packet, |body| compute(flow, ip_id, body));
}

/// Seals a packet as [`seal`] does, in the form that rdma_rxe writes and expects for FLUSH requests (see the
/// module's documentation).
pub fn seal_flush_for_rxe(flow: &Flow, ip_id: u16, packet: &mut [u8]) {
    seal_with(packet, |body| continue_over(compute(flow, ip_id, body), body));
}

/// Seals in the form that peers accept: as [`seal_flush_for_rxe`] for FLUSH requests, as [`seal`] for all
/// others.
pub fn seal_for_peers(flow: &Flow, ip_id: u16, packet: &mut [u8]) {
    if packet.first() == Some(&FLUSH.byte()) {
        seal_flush_for_rxe(flow, ip_id, packet);
    } else {
        seal(flow, ip_id, packet);
    }
}

/// Verifies a packet (BTH to ICRC) whose IPv4 identification is unknown: it may be `predicted_id`, 0, or any
/// other with don't-fragment set. `predicted_id` is ignored for IPv6.
pub fn verify(flow: &Flow, predicted_id: u16, packet: &[u8]) -> IcrcVerdict {
    let Some((body, received)) = split(packet) else { return IcrcVerdict::Bad };
    let computed = compute(flow, predicted_id, body);
    //= statement:3
    //| An IPv4 packet with any identification is accepted.
    if computed == received {
        return IcrcVerdict::Exact;
    }
    let is_ipv4 = flow.source.is_ipv4() && flow.destination.is_ipv4();
    let window_bytes = packet.len() + WINDOW_TO_UDP_PAYLOAD;
    let standard = recover(is_ipv4, predicted_id, computed ^ received, window_bytes);
    if standard != IcrcVerdict::Bad || body.first() != Some(&FLUSH.byte()) {
        return standard;
    }
    let computed = continue_over(computed, body);
    if computed == received {
        return IcrcVerdict::Exact;
    }
    recover(is_ipv4, predicted_id, computed ^ received, window_bytes + body.len())
}

/// Verifies a packet (BTH to ICRC) with the IP header (IPv4 with options or IPv6) and UDP header that a
/// capture has for it. Returns false also if these are no such headers.
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
            //= linux:rxe_icrc.c#rxe_icrc_hdr
            //| The ICRC takes TOS, TTL and the checksum of IPv4 as ones.
            [*tos, *ttl, *checksum_high, *checksum_low] = [0xff; 4];
        }
        [version, class, label_high, label_low, _, _, _, hop_limit, rest @ ..]
            if *version >> 4 == 6 && rest.len() == 32 =>
        {
            //= linux:rxe_icrc.c#rxe_icrc_hdr
            //| The ICRC takes traffic class, flow label and hop limit of IPv6 as ones.
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

/// CRC after the eight bytes of ones that replace the absent local route header.
//= linux:rxe_icrc.c#rxe_icrc_hdr
//| The CRC begins with eight bytes of ones, which stand for the header of the local route.
const AFTER_LRH: u32 = !0xdebb_20e3;
const PSEUDO_V6_BYTES: usize = 40 + 8;
const MAX_IP_HEADER_BYTES: usize = 60;
const DONT_FRAGMENT: [u8; 2] = [0x40, 0x00];
const UDP: u8 = 17;
/// Offset of the BTH's byte with FECN and BECN.
const CONGESTION_BYTE: usize = 4;
const FLUSH: Opcode = Opcode::new(Service::Rc, Operation::Flush);

fn seal_with(packet: &mut [u8], icrc: impl FnOnce(&[u8]) -> u32) {
    if packet.len() < Bth::LEN + ICRC_BYTES {
        return;
    }
    if let Some((body, out)) = packet.split_last_chunk_mut::<ICRC_BYTES>() {
        //= statement:2
        //| The ICRC is sent with its least significant byte first.
        *out = icrc(body).to_le_bytes();
    }
}

/// Splits a packet into body and ICRC; `None` if it is too short.
fn split(packet: &[u8]) -> Option<(&[u8], u32)> {
    if packet.len() < Bth::LEN + ICRC_BYTES {
        return None;
    }
    //= linux:rxe_icrc.c#rxe_icrc_check
    //| The last four bytes of a packet are its ICRC.
    packet.split_last_chunk().map(|(body, icrc)| (body, u32::from_le_bytes(*icrc)))
}

/// Continues the CRC of a stream over `bytes`.
fn continue_over(crc: u32, bytes: &[u8]) -> u32 {
    let mut crc = Hasher::new_with_initial(crc);
    crc.update(bytes);
    crc.finalize()
}

#[cfg(test)]
mod tests;
