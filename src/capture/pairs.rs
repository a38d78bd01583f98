//! Finds which queue pairs are connected: a packet names its destination, and an answer has the PSN of its
//! request.

use std::collections::HashMap;
use std::net::IpAddr;

use super::plan::Sighting;

/// A direction between two addresses.
type AddressPair = (IpAddr, IpAddr);

/// For packets from an address to a queue pair of another address, the queue pair that sends them.
#[derive(Debug, Default)]
pub(super) struct ConnectedPairs {
    sender: HashMap<(AddressPair, u32), u32>,
}

impl ConnectedPairs {
    pub(super) fn of(captures: &[Vec<Sighting>]) -> ConnectedPairs {
        // The queue pair that the last request with a PSN was addressed to.
        let mut requests: HashMap<(AddressPair, u32), u32> = HashMap::new();
        let mut votes: HashMap<(AddressPair, u32), HashMap<u32, u32>> = HashMap::new();
        let is_connected =
            |one: &&Sighting| one.info.service.is_connected() && one.info.service.has_messages();
        for one in captures.iter().flatten().filter(is_connected) {
            let direction = (one.source, one.destination);
            if one.info.is_request {
                requests.insert((direction, one.psn), one.qpn);
                continue;
            }
            let back = (one.destination, one.source);
            let Some(requester) = requests.get(&(back, one.psn)) else { continue };
            // The destination of an answer sent the request, and the destination of the request sends the
            // answer.
            for (direction, to, from) in [(back, *requester, one.qpn), (direction, one.qpn, *requester)] {
                *votes.entry((direction, to)).or_default().entry(from).or_default() += 1;
            }
        }
        let best = |votes: HashMap<u32, u32>| {
            let best = votes.into_iter().max_by_key(|(qpn, count)| (*count, std::cmp::Reverse(*qpn)));
            best.map(|(qpn, _)| qpn)
        };
        let sender = votes.into_iter().filter_map(|(stream, votes)| Some((stream, best(votes)?)));
        ConnectedPairs { sender: sender.collect() }
    }

    /// Returns the queue pair that sent a packet; `None` if the captures do not show it.
    pub(super) fn sender(&self, one: &Sighting) -> Option<u32> {
        let of_datagram = one.datagram.as_ref().map(|datagram| datagram.from_qpn);
        of_datagram.or_else(|| self.sender.get(&((one.source, one.destination), one.qpn)).copied())
    }
}
