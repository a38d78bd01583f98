//! Changing the index of a packet in a batch.

use pumice_transport::path::Flow;
use pumice_transport::wire::icrc::{self, ICRC_BYTES};
use pumice_transport::wire::{Bth, Opcode, Operation, Service};

const FLUSH: Opcode = Opcode::new(Service::Rc, Operation::Flush);

/// Renumbers a packet: its ICRC, made for IP ID `from`, becomes the one for `to`. The ICRC's error, if any,
/// is carried over: cutting a batch neither breaks good packets nor repairs bad ones. IPv6 has no IP ID and
/// needs nothing; fewer than 16 bytes are no packet and left alone.
pub fn renumber(flow: &Flow, from: u16, to: u16, packet: &mut [u8]) {
    if from == to || !flow.source.is_ipv4() || packet.len() < Bth::LEN + ICRC_BYTES {
        return;
    }
    if packet.first() == Some(&FLUSH.byte()) && is_sealed_for_rxe(flow, from, packet) {
        icrc::seal_flush_for_rxe(flow, to, packet);
        return;
    }
    if let Some((body, icrc)) = packet.split_last_chunk_mut::<ICRC_BYTES>() {
        let change = icrc::compute(flow, from, body) ^ icrc::compute(flow, to, body);
        *icrc = (u32::from_le_bytes(*icrc) ^ change).to_le_bytes();
    }
}

/// Returns the packets of a batch with the ICRCs of another flow; errors are carried over.
pub fn moved(from: &Flow, to: &Flow, segment_bytes: usize, bytes: &[u8]) -> Vec<u8> {
    let mut moved = bytes.to_vec();
    for (index, packet) in moved.chunks_mut(segment_bytes.max(1)).enumerate() {
        if let Some((body, icrc)) = packet.split_last_chunk_mut::<ICRC_BYTES>() {
            let (before, after) =
                (icrc::compute(from, ip_id(index), body), icrc::compute(to, ip_id(index), body));
            *icrc = (u32::from_le_bytes(*icrc) ^ before ^ after).to_le_bytes();
        }
    }
    moved
}

/// Returns the packets of a batch that has no ICRC, with those that its packets would have by UDP.
pub fn sealed(flow: &Flow, segment_bytes: usize, bytes: &[u8]) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    for (index, packet) in sealed.chunks_mut(segment_bytes.max(1)).enumerate() {
        icrc::seal_for_peers(flow, ip_id(index), packet);
    }
    sealed
}

/// Reports whether a packet's ICRC was made for this IP ID.
pub fn is_made_for(flow: &Flow, ip_id: u16, packet: &[u8]) -> bool {
    let standard = packet
        .split_last_chunk::<ICRC_BYTES>()
        .is_some_and(|(body, icrc)| icrc::compute(flow, ip_id, body) == u32::from_le_bytes(*icrc));
    standard || packet.first() == Some(&FLUSH.byte()) && is_sealed_for_rxe(flow, ip_id, packet)
}

/// Reports whether a packet has the ICRC of rdma_rxe, which makes that of FLUSH requests its own way.
fn is_sealed_for_rxe(flow: &Flow, ip_id: u16, packet: &[u8]) -> bool {
    let mut trial = packet.to_vec();
    icrc::seal_flush_for_rxe(flow, ip_id, &mut trial);
    trial == packet
}

/// Returns the IP ID that the packet at this index of a batch will carry. Batches are far shorter than 65536
/// packets.
pub fn ip_id(index: usize) -> u16 {
    index as u16
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use pumice_transport::wire::IcrcVerdict;

    use super::*;

    fn flow(address: IpAddr) -> Flow {
        Flow { source: address, destination: address, source_port: 4791, destination_port: 4791 }
    }

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_right_icrc_moves_along() {
        let flow = flow(V4);
        for (from, to) in [(5, 2), (0, 7), (127, 0), (3, 3)] {
            let (mut moved, mut made) = ([3; 40], [3; 40]);
            icrc::seal(&flow, from, &mut moved);
            icrc::seal(&flow, to, &mut made);
            renumber(&flow, from, to, &mut moved);
            assert_eq!(moved, made, "{from} to {to}");
        }
        renumber(&flow, 5, 0, &mut [0; 3]);
    }

    #[test]
    fn a_wrong_icrc_stays_as_wrong_as_it_was() {
        let flow = flow(V4);
        // Made for the first index though it is the fourth; made for the fourth and damaged.
        let (mut misplaced, mut damaged) = ([3; 40], [3; 40]);
        icrc::seal(&flow, 0, &mut misplaced);
        icrc::seal(&flow, 3, &mut damaged);
        damaged[20] ^= 1;
        for packet in [&mut misplaced, &mut damaged] {
            let before = *packet;
            renumber(&flow, 3, 0, packet);
            assert!(!is_made_for(&flow, 0, packet));
            renumber(&flow, 0, 3, packet);
            assert_eq!(*packet, before);
        }
        renumber(&flow, 3, 0, &mut damaged);
        assert_eq!(icrc::verify(&flow, 0, &damaged), IcrcVerdict::Bad);
    }

    #[test]
    fn a_flush_for_rxe_keeps_its_form() {
        let flow = flow(V4);
        let (mut moved, mut made) = ([FLUSH.byte(); 40], [FLUSH.byte(); 40]);
        icrc::seal_flush_for_rxe(&flow, 4, &mut moved);
        icrc::seal_flush_for_rxe(&flow, 1, &mut made);
        assert!(is_made_for(&flow, 4, &moved));
        renumber(&flow, 4, 1, &mut moved);
        assert_eq!(moved, made);
    }

    #[test]
    fn ipv6_has_nothing_to_renumber() {
        let flow = flow(IpAddr::V6(Ipv6Addr::LOCALHOST));
        let mut packet = [3; 40];
        icrc::seal(&flow, 5, &mut packet);
        let before = packet;
        renumber(&flow, 5, 0, &mut packet);
        assert_eq!(packet, before);
        assert_eq!(icrc::verify(&flow, 0, &packet), IcrcVerdict::Exact);
    }
}
