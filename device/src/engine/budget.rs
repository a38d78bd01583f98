//! How much may be on its way to one peer process at a time.
//!
//! All queue pairs that talk to one process share that process's socket buffer. Each queue pair has
//! a window of its own; this is the sum over them, in bytes as a socket's receive buffer accounts
//! them, so that nothing is lost to a full buffer in steady state.

use std::collections::HashMap;
use std::net::IpAddr;

/// The kernel charges a lone packet its page order and its bookkeeping: 8456 bytes for 4128 of
/// payload, 2305 for 1056, 832 for a tiny one (measured). Trains are charged less.
pub(crate) fn packet_cost_bytes(length_bytes: usize) -> u64 {
    if length_bytes <= 128 { 512 } else { 2 * length_bytes as u64 + 256 }
}

/// Full packets of `mtu_bytes` that half of a receive buffer holds: the most that one READ request
/// may ask for.
pub(crate) fn read_limit_packets(receive_buffer_bytes: usize, mtu_bytes: usize) -> u32 {
    let packets = receive_buffer_bytes as u64 / 2 / packet_cost_bytes(mtu_bytes + 64);
    packets.clamp(4, 4096) as u32
}

/// The smallest packets that half of a receive buffer holds: the most PSNs that one queue pair may
/// have in flight. Bytes are limited by the [`Budget`].
pub(crate) fn window_limit_packets(receive_buffer_bytes: usize) -> u32 {
    let packets = receive_buffer_bytes as u64 / 2 / packet_cost_bytes(16);
    packets.clamp(4, 4096) as u32
}

#[derive(Debug, Default)]
struct Peer {
    /// Its name in the map.
    process: Option<(IpAddr, u8)>,
    /// Queue pairs connected to it; the place is free when there are none.
    users: u32,
    in_flight_bytes: u64,
    /// Queue pairs that found no room.
    parked: Vec<u32>,
}

/// Bytes in flight per peer process.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: u64,
    by_process: HashMap<(IpAddr, u8), u32>,
    peers: Vec<Peer>,
    free: Vec<u32>,
    /// Queue pairs whose peer has room again.
    released: Vec<u32>,
}

impl Budget {
    pub(crate) fn new(receive_buffer_bytes: usize) -> Budget {
        let limit_bytes = (receive_buffer_bytes as u64 * 3 / 4).max(65_536);
        Budget {
            limit_bytes,
            by_process: HashMap::new(),
            peers: Vec::new(),
            free: Vec::new(),
            released: Vec::new(),
        }
    }

    /// The number of a peer process, for one more queue pair that talks to it. There are never more
    /// peers than queue pairs.
    pub(crate) fn join(&mut self, address: IpAddr, slot: u8) -> u32 {
        let process = (address, slot);
        let number = match self.by_process.get(&process) {
            Some(number) => *number,
            None => {
                let number = self.free.pop().unwrap_or(self.peers.len() as u32);
                if self.peers.len() as u32 == number {
                    self.peers.push(Peer::default());
                }
                self.by_process.insert(process, number);
                number
            }
        };
        if let Some(peer) = self.peers.get_mut(number as usize) {
            peer.process = Some(process);
            peer.users += 1;
        }
        number
    }

    /// A queue pair no longer talks to this peer; what it was charged has been given back.
    pub(crate) fn leave(&mut self, number: u32) {
        let Some(peer) = self.peers.get_mut(number as usize) else { return };
        peer.users = peer.users.saturating_sub(1);
        if peer.users == 0
            && let Some(process) = peer.process.take()
        {
            self.by_process.remove(&process);
            self.released.append(&mut peer.parked);
            peer.in_flight_bytes = 0;
            self.free.push(number);
        }
    }

    /// What may still be sent to a peer now, in bytes.
    pub(crate) fn room_bytes(&self, peer: u32) -> u64 {
        let used = self.peers.get(peer as usize).map_or(0, |peer| peer.in_flight_bytes);
        self.limit_bytes.saturating_sub(used)
    }

    /// The share of one queue pair changed.
    pub(crate) fn change(&mut self, peer: u32, before_bytes: u64, after_bytes: u64) {
        if let Some(peer) = self.peers.get_mut(peer as usize) {
            peer.in_flight_bytes = (peer.in_flight_bytes + after_bytes).saturating_sub(before_bytes);
            // With hysteresis: a little room for each of many queue pairs makes short trains.
            if !peer.parked.is_empty() && peer.in_flight_bytes <= self.limit_bytes / 2 {
                self.released.append(&mut peer.parked);
            }
        }
    }

    /// A queue pair waits until its peer has room.
    pub(crate) fn park(&mut self, peer: u32, index: u32) {
        if let Some(peer) = self.peers.get_mut(peer as usize) {
            peer.parked.push(index);
        }
    }

    /// A queue pair that waited and may go on.
    pub(crate) fn pop_released(&mut self) -> Option<u32> {
        self.released.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_may_fill_half_the_buffer_with_lone_packets() {
        let packets = read_limit_packets(8 << 20, 4096);
        assert!((450..=520).contains(&packets), "{packets}");
        assert_eq!(read_limit_packets(0, 4096), 4);
        assert_eq!(window_limit_packets(8 << 20), 4096);
    }

    #[test]
    fn the_share_of_a_peer_is_the_sum_of_its_queue_pairs() {
        let mut budget = Budget::new(400_000);
        let address = IpAddr::from([127, 0, 0, 1]);
        let peer = budget.join(address, 3);
        assert_eq!(budget.join(address, 3), peer);
        let other = budget.join(address, 4);
        assert_ne!(other, peer);
        budget.change(peer, 0, 250_000);
        assert_eq!(budget.room_bytes(peer), 50_000);
        budget.change(peer, 250_000, 0);
        assert_eq!(budget.room_bytes(peer), 300_000);
        budget.leave(other);
        assert_eq!(
            budget.join(IpAddr::from([127, 0, 0, 9]), 1),
            other,
            "a place without users is used again"
        );
        budget.leave(peer);
        assert_eq!(budget.join(address, 3), peer, "one of two users is left");
    }
}
