//! Which queue pairs belong together: a packet names the one that it is for, and an answer has the PSN of its
//! request.

use std::collections::HashMap;
use std::net::IpAddr;

use super::plan::Sighting;

/// A direction between two addresses.
type AddressPair = (IpAddr, IpAddr);

/// Of packets from an address to a queue pair of another: the queue pair that sends them.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    sender: HashMap<(AddressPair, u32), u32>,
}

impl Pairs {
    pub(super) fn of(captures: &[Vec<Sighting>]) -> Pairs {
        // The queue pair that the last request with a PSN was for.
        let mut requests: HashMap<(AddressPair, u32), u32> = HashMap::new();
        let mut votes: HashMap<(AddressPair, u32), HashMap<u32, u32>> = HashMap::new();
        let is_connected =
            |one: &&Sighting| one.info.service.is_connected() && one.info.service.has_messages();
        for one in captures.iter().flatten().filter(is_connected) {
            let way = (one.source, one.destination);
            if one.info.is_request {
                requests.insert((way, one.psn), one.qpn);
                continue;
            }
            let back = (one.destination, one.source);
            let Some(asked) = requests.get(&(back, one.psn)) else { continue };
            // The queue pair that gets the answer has sent the request to the one that answers.
            for (way, to, from) in [(back, *asked, one.qpn), (way, one.qpn, *asked)] {
                *votes.entry((way, to)).or_default().entry(from).or_default() += 1;
            }
        }
        let best = |votes: HashMap<u32, u32>| {
            let best = votes.into_iter().max_by_key(|(qpn, count)| (*count, std::cmp::Reverse(*qpn)));
            best.map(|(qpn, _)| qpn)
        };
        let sender = votes.into_iter().filter_map(|(stream, votes)| Some((stream, best(votes)?)));
        Pairs { sender: sender.collect() }
    }

    /// The queue pair that sent a packet; none if the captures do not tell.
    pub(super) fn sender(&self, one: &Sighting) -> Option<u32> {
        let of_datagram = one.datagram.as_ref().map(|datagram| datagram.from_qpn);
        of_datagram.or_else(|| self.sender.get(&((one.source, one.destination), one.qpn)).copied())
    }
}
