//! Application of a fate to the bytes of a packet.

use std::collections::BTreeSet;

use pumice_platform::clock::Random;
use pumice_transport::mrc::wire::MrcOpcode;
use pumice_transport::path::Flow;
use pumice_transport::types::{Fate, Flips};
use pumice_transport::wire::{ICRC_BYTES, Packet, icrc};

/// Length of a BTH, in bytes.
const BTH_BYTES: usize = 12;

/// Flips bits of the packet that has the index `index` in its batch, then cuts the packet.
pub fn damage(flow: &Flow, index: u16, packet: &mut Vec<u8>, fate: &Fate) {
    if let Some(flips) = fate.flips {
        if flips.sealed {
            flip(payload_of(packet), flips);
            icrc::seal_for_peers(flow, index, packet);
        } else {
            flip(packet, flips);
        }
    }
    if let Some(mark) = fate.path_mark
        && set_path_mark(packet, mark)
    {
        icrc::seal_for_peers(flow, index, packet);
    }
    if let Some(kept_length) = fate.kept_bytes {
        packet.truncate(kept_length.into());
    }
}

/// Sets the mark of the path in a SACK of MRC. Returns false if the packet is none.
fn set_path_mark(packet: &mut [u8], mark: u8) -> bool {
    let is_sack = packet.first().copied().and_then(MrcOpcode::from_byte) == Some(MrcOpcode::Sack);
    let Some(flags) = packet.get_mut(BTH_BYTES + 1).filter(|_| is_sack) else { return false };
    *flags = *flags & !(3 << 5) | (mark & 3) << 5;
    true
}

/// Returns the length of a packet's payload; 0 if the packet cannot be parsed.
pub fn payload_bytes(packet: &[u8]) -> usize {
    Packet::parse(packet).map_or(0, |packet| packet.payload().len())
}

/// Returns the payload of a packet; empty if the packet cannot be parsed.
fn payload_of(packet: &mut [u8]) -> &mut [u8] {
    let end = match Packet::parse(packet) {
        Ok(parsed) => packet.len() - ICRC_BYTES - usize::from(parsed.bth().pad_count),
        Err(_) => return &mut [],
    };
    let start = end - payload_bytes(packet).min(end);
    packet.get_mut(start..end).unwrap_or_default()
}

/// Flips this number of different bits, or all.
fn flip(bytes: &mut [u8], flips: Flips) {
    let bits = bytes.len() as u64 * 8;
    let mut random = Random::new(flips.first);
    let mut flipped = BTreeSet::new();
    let mut next = flips.first;
    while flipped.len() < usize::from(flips.count).min(bytes.len() * 8) {
        let bit = next.checked_rem(bits).unwrap_or(0);
        if flipped.insert(bit)
            && let Some(byte) = bytes.get_mut((bit / 8) as usize)
        {
            *byte ^= 1 << (bit % 8);
            next = random.next_u64();
        } else {
            // For each bit that is flipped, the next one is not.
            next = bit + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use pumice_transport::wire::{Bth, Headers, IcrcVerdict, Opcode, Psn, Qpn};

    use super::*;

    fn fate(count: u16, first: u64, sealed: bool) -> Fate {
        Fate { flips: Some(Flips { count, first, sealed }), ..Fate::default() }
    }

    fn flow() -> Flow {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Flow { source: address, destination: address, source_port: 1, destination_port: 2 }
    }

    #[test]
    fn damage_flips_and_cuts() {
        let mut packet = vec![0u8; 4];
        damage(&flow(), 0, &mut packet, &fate(1, 32 + 9, false));
        assert_eq!(packet, [0, 2, 0, 0]);
        damage(&flow(), 0, &mut packet, &Fate { kept_bytes: Some(2), ..Fate::default() });
        assert_eq!(packet, [0, 2]);
        damage(&flow(), 0, &mut Vec::new(), &fate(1, 3, false));
        for count in 1..40 {
            let mut packet = vec![0u8; 4];
            damage(&flow(), 0, &mut packet, &fate(count, 5, false));
            assert_eq!(packet.iter().map(|byte| byte.count_ones()).sum::<u32>(), u32::from(count).min(32));
        }
    }

    #[test]
    fn silent_damage_is_in_the_payload_and_has_a_right_icrc() {
        let headers = Headers::new(Bth::new(Opcode::from_byte(0x04), Qpn::new(7), Psn::new(1)));
        let mut packet = vec![0; headers.len() + 8 + ICRC_BYTES];
        headers.emit(&mut packet);
        icrc::seal(&flow(), 3, &mut packet);
        let before = packet.clone();
        damage(&flow(), 3, &mut packet, &fate(2, 1000, true));
        assert_eq!(icrc::verify(&flow(), 3, &packet), IcrcVerdict::Exact);
        assert_eq!(packet[..headers.len()], before[..headers.len()]);
        let payload = &packet[headers.len()..headers.len() + 8];
        assert_eq!(payload.iter().map(|byte| byte.count_ones()).sum::<u32>(), 2);
    }

    #[test]
    fn the_mark_of_a_sack_is_another_one_and_its_icrc_is_right() {
        let sack = || {
            let mut packet = vec![0; 12 + 28 + 8 + ICRC_BYTES];
            (packet[0], packet[13]) = (0xdc, 2);
            packet
        };
        let fate = Fate { path_mark: Some(2), ..Fate::default() };
        let mut packet = sack();
        damage(&flow(), 0, &mut packet, &fate);
        assert_eq!((packet[13], icrc::verify(&flow(), 0, &packet)), (2 << 5 | 2, IcrcVerdict::Exact));
        let mut other = sack();
        other[0] = 0xdd;
        let before = other.clone();
        damage(&flow(), 0, &mut other, &fate);
        assert_eq!(other, before, "a NACK has no mark");
    }
}
