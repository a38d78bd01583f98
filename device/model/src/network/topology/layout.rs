//! The links of a topology: where each leads, and which one a packet takes.

use std::hash::{Hash, Hasher};

use fnv::FnvHasher;
use pumice_transport::path::Flow;

use super::value::{Topology, TopologyKind};
use crate::network::link::LinkDirection;

/// A node of the network: an end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyNode {
    /// A host.
    Host(usize),
    /// A leaf, or the switch of a star.
    Leaf(usize),
    /// A switch above leaves.
    Spine(usize),
}

impl TopologyNode {
    /// Returns its index in a list of all switches, leaves first.
    pub fn switch(self, leaves: usize) -> Option<usize> {
        match self {
            TopologyNode::Host(_) => None,
            TopologyNode::Leaf(leaf) => Some(leaf),
            TopologyNode::Spine(spine) => Some(leaves + spine),
        }
    }

    /// Returns the name of the node in reports.
    pub fn name(self, topology: &Topology) -> String {
        match self {
            TopologyNode::Host(host) => match topology.named.get(host) {
                Some(named) => format!("host {}", named.address),
                None => format!("host {host}"),
            },
            TopologyNode::Leaf(leaf) => format!("leaf {leaf}"),
            TopologyNode::Spine(spine) => format!("spine {spine}"),
        }
    }
}

/// A link, and the queue at its tail.
#[derive(Debug, Clone, Copy)]
pub struct LinkSpec {
    /// The node that sends.
    pub tail: TopologyNode,
    /// The node that receives.
    pub head: TopologyNode,
    /// Rate, delay and queue of the link.
    pub direction: LinkDirection,
    /// Length of the queue, in bytes, if the tail is a switch.
    pub queue_bytes: u64,
}

impl LinkSpec {
    /// Returns the name of the link by its ends, such as `leaf 0 to host 3`.
    pub fn name(&self, topology: &Topology) -> String {
        format!("{} to {}", self.tail.name(topology), self.head.name(topology))
    }
}

impl Topology {
    /// Returns the leaf at which a host is; 0, the switch, in a star.
    pub fn leaf_of(&self, host: usize) -> usize {
        Layout::of(self).leaf_of(host)
    }
}

/// The links of a topology, by number: from hosts, to hosts, from leaves to spines, from spines to leaves.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Number of hosts.
    pub hosts: usize,
    /// Number of leaves.
    pub leaves: usize,
    /// Number of spines.
    pub spines: usize,
    hosts_per_leaf: usize,
}

impl Layout {
    /// Returns the layout of a topology.
    pub fn of(topology: &Topology) -> Layout {
        let hosts = usize::from(topology.hosts);
        let (leaves, spines) = match topology.kind {
            TopologyKind::Star => (1, 0),
            TopologyKind::TwoTier => (usize::from(topology.leaves).max(1), usize::from(topology.spines)),
        };
        Layout { hosts, leaves, spines, hosts_per_leaf: (hosts / leaves).max(1) }
    }

    /// Returns the number of switches.
    pub fn switch_count(&self) -> usize {
        self.leaves + self.spines
    }

    /// Returns all links, by number.
    pub fn links(&self, topology: &Topology) -> Vec<LinkSpec> {
        let spec = |((tail, head), number): ((TopologyNode, TopologyNode), u64)| {
            let (kind, own) = match (tail, head) {
                (TopologyNode::Host(host), _) => (topology.cable(host), None),
                (_, TopologyNode::Host(host)) => {
                    (topology.cable(host), topology.named.get(host).and_then(|host| host.queue_bytes))
                }
                _ => (topology.uplink(), None),
            };
            // A host does not mark its own packets.
            let ecn = topology.queues.ecn.filter(|_| !matches!(tail, TopologyNode::Host(_)));
            let direction = LinkDirection {
                rate_bits_per_second: Some(u64::from(kind.rate_mbps) * 1_000_000),
                delay_ns: kind.delay_ns,
                seed: topology.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                ecn,
                ..LinkDirection::NONE
            };
            LinkSpec { tail, head, direction, queue_bytes: own.unwrap_or(topology.queues.queue_bytes) }
        };
        self.ends().into_iter().zip(0..).map(spec).collect()
    }

    /// Returns each link's tail and head, by number.
    fn ends(&self) -> Vec<(TopologyNode, TopologyNode)> {
        let up =
            (0..self.hosts).map(|host| (TopologyNode::Host(host), TopologyNode::Leaf(self.leaf_of(host))));
        let down =
            (0..self.hosts).map(|host| (TopologyNode::Leaf(self.leaf_of(host)), TopologyNode::Host(host)));
        let pairs = || (0..self.leaves).flat_map(|leaf| (0..self.spines).map(move |spine| (leaf, spine)));
        let to_spines = pairs().map(|(leaf, spine)| (TopologyNode::Leaf(leaf), TopologyNode::Spine(spine)));
        let to_leaves = pairs().map(|(leaf, spine)| (TopologyNode::Spine(spine), TopologyNode::Leaf(leaf)));
        up.chain(down).chain(to_spines).chain(to_leaves).collect()
    }

    /// Returns the link from a host.
    pub fn link_of(host: usize) -> usize {
        host
    }

    /// Returns the link by which a packet leaves a switch; `None` at a host.
    pub fn next(&self, at: TopologyNode, to_host: usize, flow: &Flow) -> Option<usize> {
        let leaf = self.leaf_of(to_host);
        let inner = 2 * self.hosts;
        match at {
            TopologyNode::Host(_) => None,
            TopologyNode::Leaf(here) if here == leaf || self.spines == 0 => Some(self.hosts + to_host),
            TopologyNode::Leaf(here) => Some(inner + here * self.spines + self.spine_of(flow)),
            TopologyNode::Spine(spine) => Some(inner + (self.leaves + leaf) * self.spines + spine),
        }
    }

    /// Returns the leaf of a host.
    pub fn leaf_of(&self, host: usize) -> usize {
        (host / self.hosts_per_leaf).min(self.leaves - 1)
    }

    /// Returns the spine over which a flow goes.
    fn spine_of(&self, flow: &Flow) -> usize {
        let mut hasher = FnvHasher::default();
        flow.hash(&mut hasher);
        // The low bits of FNV depend on the low bits of each byte only.
        let hash = hasher.finish();
        ((hash ^ hash >> 32) % self.spines.max(1) as u64) as usize
    }
}
