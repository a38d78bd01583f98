//! The budget: how much may be in flight to one peer at a time.
//!
//! All queue pairs that talk to one process share that process's receive buffer. Each queue pair has a window
//! of its own; the budget is the limit of the sum over them, in bytes as the receive buffer of that peer
//! charges them, so that nothing is lost to a full buffer in steady state.

use std::collections::HashMap;

use pumice_model::port::batch::{PacketCost, Peer, PortLimits};

/// Returns how many full packets of `mtu_bytes` half of a peer's receive buffer holds: the most that one READ
/// request may ask for.
pub(crate) fn read_limit_packets(limits: &PortLimits, mtu_bytes: usize) -> u32 {
    packets_in_half(limits, mtu_bytes + 64)
}

/// Returns how many of the smallest packets half of a peer's receive buffer holds: the most PSNs that one
/// queue pair may have in flight. Bytes are limited by the [`Budget`].
pub(crate) fn window_limit_packets(limits: &PortLimits) -> u32 {
    packets_in_half(limits, 16)
}

fn packets_in_half(limits: &PortLimits, length_bytes: usize) -> u32 {
    let packets = limits.receive_buffer_bytes as u64 / 2 / limits.packet_cost.of(length_bytes).max(1);
    packets.clamp(4, 4096) as u32
}

/// The smallest limit of bytes in flight to a peer, however small its buffer.
const MIN_LIMIT_BYTES: u64 = 65_536;

/// The state of one peer: its limit, and what is in flight to it.
#[derive(Debug)]
struct PeerBudget {
    /// The key of the peer in the map; `None` while no queue pair is connected to it.
    peer: Option<Peer>,
    limit_bytes: u64,
    packet_cost: PacketCost,
    /// Number of queue pairs connected to the peer; the entry is free when there are none.
    users: u32,
    in_flight_bytes: u64,
    /// The queue pairs that found no room.
    parked: Vec<u32>,
}

/// The bytes in flight to each peer.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    by_peer: HashMap<Peer, u32>,
    peers: Vec<PeerBudget>,
    free: Vec<u32>,
    /// The queue pairs whose peer has room again.
    released: Vec<u32>,
}

impl Budget {
    /// Returns the number of a peer, for one more queue pair that talks to it. `limits` are those of the port
    /// for this peer. There are never more peers than queue pairs.
    pub(crate) fn join(&mut self, peer: Peer, limits: &PortLimits) -> u32 {
        let number = match self.by_peer.get(&peer) {
            Some(number) => *number,
            None => {
                let number = self.free.pop().unwrap_or(self.peers.len() as u32);
                if self.peers.len() as u32 == number {
                    self.peers.push(PeerBudget::unused());
                }
                self.by_peer.insert(peer, number);
                number
            }
        };
        if let Some(budget) = self.peers.get_mut(number as usize) {
            budget.peer = Some(peer);
            budget.users += 1;
        }
        self.change_limits(number, limits);
        number
    }

    /// Changes the limits of the way to a peer while queue pairs talk to it.
    #[inline]
    pub(crate) fn change_limits(&mut self, number: u32, limits: &PortLimits) {
        if let Some(budget) = self.peers.get_mut(number as usize) {
            budget.limit_bytes = (limits.receive_buffer_bytes as u64 * 3 / 4).max(MIN_LIMIT_BYTES);
            budget.packet_cost = limits.packet_cost;
        }
    }

    /// Removes a queue pair from the users of a peer; its charge has been given back.
    pub(crate) fn leave(&mut self, number: u32) {
        let Some(budget) = self.peers.get_mut(number as usize) else { return };
        budget.users = budget.users.saturating_sub(1);
        if budget.users == 0
            && let Some(peer) = budget.peer.take()
        {
            self.by_peer.remove(&peer);
            self.released.append(&mut budget.parked);
            budget.in_flight_bytes = 0;
            self.free.push(number);
        }
    }

    /// Returns how much may still be sent to a peer now, in bytes.
    #[inline]
    pub(crate) fn room_bytes(&self, number: u32) -> u64 {
        self.peers
            .get(number as usize)
            .map_or(u64::MAX, |budget| budget.limit_bytes.saturating_sub(budget.in_flight_bytes))
    }

    /// Returns the cost of packets to a peer; without a peer, the cost for a UDP socket.
    #[inline]
    pub(crate) fn packet_cost(&self, number: Option<u32>) -> PacketCost {
        let budget = number.and_then(|number| self.peers.get(number as usize));
        budget.map_or(PacketCost::UDP_SOCKET, |budget| budget.packet_cost)
    }

    /// Updates what one queue pair has in flight.
    #[inline]
    pub(crate) fn change(&mut self, number: u32, before_bytes: u64, after_bytes: u64) {
        if let Some(budget) = self.peers.get_mut(number as usize) {
            budget.in_flight_bytes = (budget.in_flight_bytes + after_bytes).saturating_sub(before_bytes);
            // Room is released with hysteresis: a little room for each of many queue pairs makes short
            // batches.
            if !budget.parked.is_empty() && budget.in_flight_bytes <= budget.limit_bytes / 2 {
                self.released.append(&mut budget.parked);
            }
        }
    }

    /// Makes a queue pair wait until its peer has room.
    pub(crate) fn park(&mut self, number: u32, index: u32) {
        if let Some(budget) = self.peers.get_mut(number as usize) {
            budget.parked.push(index);
        }
    }

    /// Reports whether a queue pair waited and may continue.
    #[inline]
    pub(crate) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Takes a queue pair that waited and may continue.
    #[inline]
    pub(crate) fn pop_released(&mut self) -> Option<u32> {
        self.released.pop()
    }
}

impl PeerBudget {
    fn unused() -> PeerBudget {
        PeerBudget {
            peer: None,
            limit_bytes: 0,
            packet_cost: PacketCost::UDP_SOCKET,
            users: 0,
            in_flight_bytes: 0,
            parked: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use pumice_transport::wire::ProcessIndex;

    use super::*;

    fn limits(receive_buffer_bytes: usize) -> PortLimits {
        let packet_cost = PacketCost::UDP_SOCKET;
        PortLimits {
            max_segments: 64,
            max_batch_bytes: 65_507,
            receive_buffer_bytes,
            packet_cost,
            needs_icrc: true,
            waits_for_room: false,
        }
    }

    fn peer(last_byte: u8, process: u8) -> Peer {
        Peer { address: IpAddr::from([127, 0, 0, last_byte]), process: ProcessIndex::new(process) }
    }

    #[test]
    fn a_queue_pair_may_fill_half_the_buffer_with_lone_packets() {
        let packets = read_limit_packets(&limits(8 << 20), 4096);
        assert!((450..=520).contains(&packets), "{packets}");
        assert_eq!(read_limit_packets(&limits(0), 4096), 4);
        assert_eq!(window_limit_packets(&limits(8 << 20)), 4096);
    }

    #[test]
    fn the_share_of_a_peer_is_the_sum_of_its_queue_pairs() {
        let mut budget = Budget::default();
        let limits = limits(400_000);
        let first = budget.join(peer(1, 3), &limits);
        assert_eq!(budget.join(peer(1, 3), &limits), first);
        let other = budget.join(peer(1, 4), &limits);
        assert_ne!(other, first);
        budget.change(first, 0, 250_000);
        assert_eq!(budget.room_bytes(first), 50_000);
        budget.change(first, 250_000, 0);
        assert_eq!(budget.room_bytes(first), 300_000);
        budget.leave(other);
        assert_eq!(budget.join(peer(9, 1), &limits), other, "an entry without users is used again");
        budget.leave(first);
        assert_eq!(budget.join(peer(1, 3), &limits), first, "one of two users is left");
    }

    #[test]
    fn peers_on_different_media_have_budgets_of_their_own() {
        let mut budget = Budget::default();
        let ring = PacketCost { least_bytes: 64, factor: 1, overhead_bytes: 16 };
        let far = budget.join(peer(1, 1), &limits(400_000));
        let near = budget.join(peer(2, 1), &PortLimits { packet_cost: ring, ..limits(4_000_000) });
        assert_eq!((budget.room_bytes(far), budget.room_bytes(near)), (300_000, 3_000_000));
        assert_eq!(
            [Some(far), Some(near), None].map(|number| budget.packet_cost(number).of(100)),
            [512, 116, 512]
        );
    }
}
