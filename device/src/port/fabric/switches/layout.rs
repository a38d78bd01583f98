//! Which links there are, where each leads, and which one a packet takes.

use std::hash::{Hash, Hasher};

use fnv::FnvHasher;
use pumice_transport::path::Flow;

use super::topology::{Topology, TopologyKind};

/// An end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Host(usize),
    /// A leaf, or the switch of a star.
    Leaf(usize),
    Spine(usize),
}

impl Place {
    /// Its place in a list of all switches, leaves first.
    pub(super) fn switch(self, leaves: usize) -> Option<usize> {
        match self {
            Place::Host(_) => None,
            Place::Leaf(leaf) => Some(leaf),
            Place::Spine(spine) => Some(leaves + spine),
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Place::Host(host) => format!("host {host}"),
            Place::Leaf(leaf) => format!("leaf {leaf}"),
            Place::Spine(spine) => format!("spine {spine}"),
        }
    }
}

/// The links of a topology, by number: from hosts, to hosts, from leaves to spines, from spines to leaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) hosts: usize,
    pub(super) leaves: usize,
    pub(super) spines: usize,
    hosts_per_leaf: usize,
}

impl Layout {
    pub(super) fn of(topology: &Topology) -> Layout {
        let hosts = usize::from(topology.hosts);
        let (leaves, spines) = match topology.kind {
            TopologyKind::Star => (1, 0),
            TopologyKind::TwoTier => (usize::from(topology.leaves).max(1), usize::from(topology.spines)),
        };
        Layout { hosts, leaves, spines, hosts_per_leaf: (hosts / leaves).max(1) }
    }

    pub(super) fn switch_count(&self) -> usize {
        self.leaves + self.spines
    }

    /// Each link's tail and head, by number.
    pub(super) fn links(&self) -> Vec<(Place, Place)> {
        let up = (0..self.hosts).map(|host| (Place::Host(host), Place::Leaf(self.leaf_of(host))));
        let down = (0..self.hosts).map(|host| (Place::Leaf(self.leaf_of(host)), Place::Host(host)));
        let pairs = || (0..self.leaves).flat_map(|leaf| (0..self.spines).map(move |spine| (leaf, spine)));
        let to_spines = pairs().map(|(leaf, spine)| (Place::Leaf(leaf), Place::Spine(spine)));
        let to_leaves = pairs().map(|(leaf, spine)| (Place::Spine(spine), Place::Leaf(leaf)));
        up.chain(down).chain(to_spines).chain(to_leaves).collect()
    }

    /// The link from a host.
    pub(super) fn link_of(host: usize) -> usize {
        host
    }

    /// The link by which a packet leaves a switch; `None` at a host.
    pub(super) fn next(&self, at: Place, to_host: usize, flow: &Flow) -> Option<usize> {
        let leaf = self.leaf_of(to_host);
        let inner = 2 * self.hosts;
        match at {
            Place::Host(_) => None,
            Place::Leaf(here) if here == leaf || self.spines == 0 => Some(self.hosts + to_host),
            Place::Leaf(here) => Some(inner + here * self.spines + self.spine_of(flow)),
            Place::Spine(spine) => Some(inner + (self.leaves + leaf) * self.spines + spine),
        }
    }

    fn leaf_of(&self, host: usize) -> usize {
        (host / self.hosts_per_leaf).min(self.leaves - 1)
    }

    /// The spine over which a flow goes.
    fn spine_of(&self, flow: &Flow) -> usize {
        let mut hasher = FnvHasher::default();
        flow.hash(&mut hasher);
        // The low bits of FNV depend on the low bits of each byte only.
        let hash = hasher.finish();
        ((hash ^ hash >> 32) % self.spines.max(1) as u64) as usize
    }
}
