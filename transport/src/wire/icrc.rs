//! The invariant CRC: made, checked, and checked without knowing the IPv4 identification.
//!
//! The ICRC is the CRC-32 of Ethernet over eight 0xFF bytes (the absent LRH), the IP and UDP headers
//! and the BTH with their mutable fields set to ones, and the rest of the packet. It covers the IPv4
//! identification, which a UDP socket does not show to its reader. CRCs are linear, so the difference
//! between the ICRC that arrived and the one computed for identification 0 is the identification times
//! a power of x; [`verify`] divides by that power and accepts if what is left fits 16 bits.

use core::net::IpAddr;

use crc32fast::Hasher;

use crate::path::Flow;

const POLYNOMIAL: u32 = 0xedb8_8320;
/// CRC-32 of eight 0xFF bytes, in the form in which a hasher is resumed.
const LRH_CRC: u32 = 0x2144_df1c;
const ICRC_LEN: usize = 4;
/// BTH and ICRC: nothing shorter is a packet.
const SHORTEST: usize = 16;
/// Don't Fragment, in IPv4's flags and fragment offset.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];

/// What the check of an ICRC found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Right for a predicted identification (or IPv6, which has none).
    Exact,
    /// Right for this identification, solved from the packet.
    Recovered {
        /// The sender's IP identification.
        ip_id: u16,
    },
    /// Wrong.
    Bad,
}

impl Verdict {
    /// Whether the packet may be used.
    pub const fn is_good(self) -> bool {
        !matches!(self, Verdict::Bad)
    }
}

/// CRC of the masked headers and of everything up to `body`'s end. `body` is BTH … pad.
#[inline]
fn crc(flow: &Flow, ip_id: u16, body: &[u8]) -> u32 {
    let udp_bytes = (8 + body.len() + ICRC_LEN) as u16;
    // IP (40 at most), UDP and BTH, so that short packets take one step.
    let mut head = [0u8; 40 + 8 + 12];
    let ip_bytes = match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            head[0] = 0x45;
            head[1] = 0xff;
            head[2..4].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
            head[4..6].copy_from_slice(&ip_id.to_be_bytes());
            head[6..8].copy_from_slice(&DONT_FRAGMENT);
            head[8] = 0xff;
            head[9] = 17;
            head[10] = 0xff;
            head[11] = 0xff;
            head[12..16].copy_from_slice(&source.octets());
            head[16..20].copy_from_slice(&destination.octets());
            20
        }
        (source, destination) => {
            head[0] = 0x6f;
            head[1..4].fill(0xff);
            head[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
            head[6] = 17;
            head[7] = 0xff;
            head[8..24].copy_from_slice(&v6_octets(source));
            head[24..40].copy_from_slice(&v6_octets(destination));
            40
        }
    };
    let udp = &mut head[ip_bytes..];
    udp[0..2].copy_from_slice(&flow.source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&flow.destination_port.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    udp[6] = 0xff;
    udp[7] = 0xff;
    let (bth, rest) = body.split_at(body.len().min(12));
    udp[8..8 + bth.len()].copy_from_slice(bth);
    udp[8 + 4] = 0xff;
    let mut hasher = Hasher::new_with_initial(LRH_CRC);
    hasher.update(&head[..ip_bytes + 8 + bth.len()]);
    hasher.update(rest);
    hasher.finalize()
}

fn v6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The ICRC of a packet without its ICRC (BTH … pad), sent with this IPv4 identification and Don't
/// Fragment set. IPv6 has no identification.
pub fn compute(flow: &Flow, ip_id: u16, body: &[u8]) -> u32 {
    crc(flow, ip_id, body)
}

/// Writes the ICRC into the last 4 bytes of a packet. Anything shorter than 16 bytes is left alone.
#[inline]
pub fn seal(flow: &Flow, ip_id: u16, packet: &mut [u8]) {
    if packet.len() < SHORTEST {
        return;
    }
    let (body, tail) = packet.split_at_mut(packet.len() - ICRC_LEN);
    tail.copy_from_slice(&crc(flow, ip_id, body).to_le_bytes());
}

/// Checks a packet's ICRC: with the predicted identification, with 0, and then by solving for it
/// (Don't Fragment assumed). A solved identification leaves 16 of the 32 bits to detect errors.
#[inline]
pub fn verify(flow: &Flow, predicted_id: u16, packet: &[u8]) -> Verdict {
    if packet.len() < SHORTEST {
        return Verdict::Bad;
    }
    let (body, tail) = packet.split_at(packet.len() - ICRC_LEN);
    let Ok(tail) = <[u8; 4]>::try_from(tail) else { return Verdict::Bad };
    let difference = crc(flow, predicted_id, body) ^ u32::from_le_bytes(tail);
    if difference == 0 {
        return Verdict::Exact;
    }
    if !flow.source.is_ipv4() {
        return Verdict::Bad;
    }
    // The window of four bytes that differs starts 20 bytes before the UDP payload's length of
    // CRC'd stream ends: the rest of IP (16) and UDP (8), and the payload without its ICRC.
    let window = divide(difference, packet.len() + 20);
    if window & 0xffff_0000 != 0 {
        return Verdict::Bad;
    }
    let ip_id = (window as u16).swap_bytes() ^ predicted_id;
    if ip_id == 0 { Verdict::Exact } else { Verdict::Recovered { ip_id } }
}

/// Checks a packet whose IP and UDP headers are known, e.g. from a capture.
pub fn verify_with_header(ip_header: &[u8], udp_header: &[u8], packet: &[u8]) -> bool {
    if packet.len() < SHORTEST || ip_header.len() < 20 || ip_header.len() > 60 || udp_header.len() != 8 {
        return false;
    }
    let (body, tail) = packet.split_at(packet.len() - ICRC_LEN);
    let mut ip = [0u8; 60];
    let ip = &mut ip[..ip_header.len()];
    ip.copy_from_slice(ip_header);
    if ip[0] >> 4 == 6 {
        ip[0] |= 0x0f;
        ip[1..4].fill(0xff);
        ip[7] = 0xff;
    } else {
        ip[1] = 0xff;
        ip[8] = 0xff;
        ip[10..12].fill(0xff);
    }
    let mut udp_bth = [0u8; 20];
    udp_bth[..8].copy_from_slice(udp_header);
    udp_bth[6..8].fill(0xff);
    udp_bth[8..].copy_from_slice(&body[..12]);
    udp_bth[12] = 0xff;
    let mut hasher = Hasher::new_with_initial(LRH_CRC);
    hasher.update(ip);
    hasher.update(&udp_bth);
    hasher.update(&body[12..]);
    hasher.finalize().to_le_bytes() == tail
}

/// Entries of the table: x^(−8k) for k = 0, 4, 8 … Covers every UDP payload of up to 9216 bytes.
const INVERSE_ENTRIES: usize = 9236 / 4 + 1;

/// x^(−32·i) modulo the polynomial, reflected.
static INVERSES: [u32; INVERSE_ENTRIES] = {
    let mut table = [0; INVERSE_ENTRIES];
    let mut value = 0x8000_0000;
    let mut i = 0;
    while i < INVERSE_ENTRIES {
        table[i] = value;
        let mut bit = 0;
        while bit < 32 {
            value = divide_by_x(value);
            bit += 1;
        }
        i += 1;
    }
    table
};

const fn divide_by_x(a: u32) -> u32 {
    if a & 0x8000_0000 != 0 { (a ^ POLYNOMIAL) << 1 | 1 } else { a << 1 }
}

const fn multiply(a: u32, b: u32) -> u32 {
    let mut power = a;
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= power & 0u32.wrapping_sub(b >> bit & 1);
        power = power >> 1 ^ POLYNOMIAL & 0u32.wrapping_sub(power & 1);
    }
    product
}

/// `difference` · x^(−8·bytes). Lengths that no RoCE packet has (not a multiple of 4, or beyond the
/// table) give something that is never accepted.
fn divide(difference: u32, bytes: usize) -> u32 {
    match INVERSES.get(bytes / 4) {
        Some(inverse) if bytes.is_multiple_of(4) => multiply(difference, *inverse),
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_inverses_has_the_known_values() {
        let known = [
            (0, 0x8000_0000),
            (4, 0x5b35_8fd3),
            (8, 0x2e9b_b40b),
            (68, 0xbb26_d682),
            (4116, 0x2f28_60bf),
            (4172, 0xd5c2_8414),
        ];
        for (k, value) in known {
            assert_eq!(INVERSES[k / 4], value, "k = {k}");
        }
    }

    fn bytes(hex: &str) -> alloc::vec::Vec<u8> {
        (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn a_known_packet_verifies_with_and_without_its_identification() {
        let packet = bytes(concat!(
            "4502004c1234400011113c5e0a0102030a040506f00d12b7003800000a00ffff0012345680fffffe00007f001122",
            "3344deadbeef00000010000102030405060708090a0b0c0d0e0f7e1c59fd"
        ));
        let flow = Flow {
            source: IpAddr::from([10, 1, 2, 3]),
            destination: IpAddr::from([10, 4, 5, 6]),
            source_port: 0xf00d,
            destination_port: 4791,
        };
        let payload = &packet[28..];
        assert!(verify_with_header(&packet[..20], &packet[20..28], payload));
        assert_eq!(verify(&flow, 0x1234, payload), Verdict::Exact);
        assert_eq!(verify(&flow, 0, payload), Verdict::Recovered { ip_id: 0x1234 });
        assert_eq!(verify(&flow, 7, payload), Verdict::Recovered { ip_id: 0x1234 });
        let mut broken = payload.to_vec();
        broken[30] ^= 1;
        assert_eq!(verify(&flow, 0, &broken), Verdict::Bad);
        let mut sealed = payload.to_vec();
        seal(&flow, 3, &mut sealed);
        assert_eq!(verify(&flow, 3, &sealed), Verdict::Exact);
    }
}
