//! Which capture shows an address where its packets leave and arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::plan::Sighting;

/// An address, in a capture that shows its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Home {
    /// The index of the capture.
    pub(super) capture: usize,
    pub(super) address: IpAddr,
    /// The capture says which packets left here and which arrived here. Else it shows them on their way.
    pub(super) knows_directions: bool,
}

/// What a packet is to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Sent,
    Received,
}

impl Home {
    /// What a packet of this capture is here; none if it is another address's, or did not come.
    pub(super) fn seen(&self, one: &Sighting) -> Option<Seen> {
        let (is_source, is_destination) = (one.source == self.address, one.destination == self.address);
        match (self.knows_directions, one.is_outbound) {
            (true, Some(true)) => is_source.then_some(Seen::Sent),
            (true, _) => (is_destination && one.is_outbound.is_some()).then_some(Seen::Received),
            // A packet from an address to itself is seen once: where it was sent.
            (false, _) if is_source => Some(Seen::Sent),
            (false, _) => (is_destination && !one.is_lost).then_some(Seen::Received),
        }
    }
}

/// The homes of all addresses. An address whose packets no capture says to be its own is in the capture that
/// has most of what it sent: what was lost is in the capture of the sender only.
pub(super) fn homes(captures: &[Vec<Sighting>]) -> BTreeSet<Home> {
    let mut homes = BTreeSet::new();
    for (capture, seen) in captures.iter().enumerate() {
        for one in seen {
            let address = match one.is_outbound {
                Some(true) => one.source,
                Some(false) => one.destination,
                None => continue,
            };
            homes.insert(Home { capture, address, knows_directions: true });
        }
    }
    let owned: BTreeSet<IpAddr> = homes.iter().map(|home| home.address).collect();
    let mut guests = vec![0_usize; captures.len()];
    for (address, sent) in sent_in_captures(captures) {
        if owned.contains(&address) {
            continue;
        }
        let candidates = || sent.iter().zip(&guests).enumerate();
        // Of two captures with as many packets, one that is no home of another address.
        let best = candidates().max_by_key(|(capture, (sent, guests))| {
            (**sent, std::cmp::Reverse(**guests), std::cmp::Reverse(*capture))
        });
        let Some((capture, _)) = best else { continue };
        if let Some(count) = guests.get_mut(capture) {
            *count += 1;
        }
        homes.insert(Home { capture, address, knows_directions: false });
    }
    homes
}

/// How many packets each address has in each capture as their source. Addresses that only receive count, too.
fn sent_in_captures(captures: &[Vec<Sighting>]) -> BTreeMap<IpAddr, Vec<usize>> {
    let mut counts = BTreeMap::<IpAddr, Vec<usize>>::new();
    for (capture, seen) in captures.iter().enumerate() {
        for one in seen {
            for (address, step) in [(one.source, 1), (one.destination, 0)] {
                let counts = counts.entry(address).or_insert_with(|| vec![0; captures.len()]);
                if let Some(count) = counts.get_mut(capture) {
                    *count += step;
                }
            }
        }
    }
    counts
}
