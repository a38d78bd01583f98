//! Finds the capture that shows the packets of an address where they leave and arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::plan::Sighting;

/// An address, and the capture taken at its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vantage {
    /// Index of the capture.
    pub(super) capture: usize,
    pub(super) address: IpAddr,
    /// The capture says which packets left here and which arrived here; otherwise it shows them on their way.
    pub(super) knows_directions: bool,
}

/// The relation of a packet to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeenDirection {
    Sent,
    Received,
}

impl Vantage {
    /// Returns how the address saw a packet of this capture; `None` if the packet belongs to another address,
    /// or did not arrive.
    pub(super) fn seen(&self, one: &Sighting) -> Option<SeenDirection> {
        let (is_source, is_destination) = (one.source == self.address, one.destination == self.address);
        match (self.knows_directions, one.is_outbound) {
            (true, Some(true)) => is_source.then_some(SeenDirection::Sent),
            (true, _) => (is_destination && one.is_outbound.is_some()).then_some(SeenDirection::Received),
            // A packet from an address to itself appears once: where it was sent.
            (false, _) if is_source => Some(SeenDirection::Sent),
            (false, _) => (is_destination && !one.is_lost).then_some(SeenDirection::Received),
        }
    }
}

/// Finds the homes of all addresses. If no capture says that an address's packets are its own, the home is
/// the capture with most of the packets that the address sent: lost ones are in the sender's capture only.
pub(super) fn vantages(captures: &[Vec<Sighting>]) -> BTreeSet<Vantage> {
    let mut vantages = BTreeSet::new();
    for (capture, seen) in captures.iter().enumerate() {
        for one in seen {
            let address = match one.is_outbound {
                Some(true) => one.source,
                Some(false) => one.destination,
                None => continue,
            };
            vantages.insert(Vantage { capture, address, knows_directions: true });
        }
    }
    let owned: BTreeSet<IpAddr> = vantages.iter().map(|vantage| vantage.address).collect();
    let mut hosted = vec![0_usize; captures.len()];
    for (address, sent) in sent_in_captures(captures) {
        if owned.contains(&address) {
            continue;
        }
        let candidates = || sent.iter().zip(&hosted).enumerate();
        // Of two captures with as many packets, the one that is the home of fewer other addresses wins.
        let best = candidates().max_by_key(|(capture, (sent, hosted))| {
            (**sent, std::cmp::Reverse(**hosted), std::cmp::Reverse(*capture))
        });
        let Some((capture, _)) = best else { continue };
        if let Some(count) = hosted.get_mut(capture) {
            *count += 1;
        }
        vantages.insert(Vantage { capture, address, knows_directions: false });
    }
    vantages
}

/// Counts, for each address, the packets that it sent in each capture. Addresses that only receive are
/// included.
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
