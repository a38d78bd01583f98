//! The links of a topology: where each leads, and which one a packet takes.

use std::hash::{Hash, Hasher};

use fnv::FnvHasher;
use pumice_transport::path::Flow;

use super::super::LinkDirection;
use super::value::{Topology, TopologyKind};

/// A node of the network: an end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyNode {
    /// A host.
    Host(usize),
    /// A leaf, or the switch of a star.
    Leaf(usize),
    /// A switch above leaves, over all pods.
    Spine(usize),
    /// A switch above spines.
    Core(usize),
}

impl TopologyNode {
    /// Returns its index in a list of all switches: leaves, spines, cores.
    pub fn switch(self, layout: &Layout) -> Option<usize> {
        match self {
            TopologyNode::Host(_) => None,
            TopologyNode::Leaf(leaf) => Some(leaf),
            TopologyNode::Spine(spine) => Some(layout.leaves + spine),
            TopologyNode::Core(core) => Some(layout.leaves + layout.spines() + core),
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
            TopologyNode::Core(core) => format!("core {core}"),
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

    /// Returns the number of links, each way, with a queue each.
    pub fn link_count(&self) -> usize {
        Layout::of(self).link_count()
    }
}

/// The links of a topology, by number: from hosts, to hosts, from leaves to spines, from spines to leaves,
/// from spines to cores, from cores to spines.
///
/// The spines of a pod are connected to each leaf of the pod, and to cores of their own: the first spine of
/// each pod to the first cores, and so on. Two tiers are one pod without cores.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Number of hosts.
    pub hosts: usize,
    /// Number of leaves.
    leaves: usize,
    pods: usize,
    spines_per_pod: usize,
    cores_per_spine: usize,
    hosts_per_leaf: usize,
}

impl Layout {
    /// Returns the layout of a topology.
    pub fn of(topology: &Topology) -> Layout {
        let (hosts, most) = (usize::from(topology.hosts), |number: u16| usize::from(number).max(1));
        let (leaves, pods, spines, cores) = match topology.kind {
            TopologyKind::Star => (1, 1, 0, 0),
            TopologyKind::TwoTier => (most(topology.leaves), 1, usize::from(topology.spines), 0),
            TopologyKind::ThreeTier => (
                most(topology.leaves),
                most(topology.pods),
                usize::from(topology.spines),
                usize::from(topology.cores),
            ),
        };
        let spines_per_pod = spines / pods;
        Layout {
            hosts,
            leaves,
            pods,
            spines_per_pod,
            cores_per_spine: cores / spines_per_pod.max(1),
            hosts_per_leaf: (hosts / leaves).max(1),
        }
    }

    /// Returns the number of spines.
    fn spines(&self) -> usize {
        self.pods * self.spines_per_pod
    }

    /// Returns the number of switches.
    pub fn switch_count(&self) -> usize {
        self.leaves + self.spines() + self.spines_per_pod * self.cores_per_spine
    }

    fn link_count(&self) -> usize {
        2 * (self.hosts + self.leaves * self.spines_per_pod + self.spines() * self.cores_per_spine)
    }

    fn pod_of(&self, leaf: usize) -> usize {
        (leaf * self.pods / self.leaves).min(self.pods - 1)
    }

    /// Returns all links, by number.
    pub fn links(&self, topology: &Topology) -> Vec<LinkSpec> {
        let spec = |((tail, head), number): ((TopologyNode, TopologyNode), u64)| {
            let (kind, own) = match (tail, head) {
                (TopologyNode::Host(host), _) => (topology.cable(host), None),
                (_, TopologyNode::Host(host)) => {
                    (topology.cable(host), topology.named.get(host).and_then(|host| host.queue_bytes))
                }
                (TopologyNode::Core(_), _) | (_, TopologyNode::Core(_)) => (topology.corelink(), None),
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
        let spine_of = |leaf: usize, spine: usize| self.pod_of(leaf) * self.spines_per_pod + spine;
        let of_leaves = (0..self.leaves).flat_map(|leaf| {
            (0..self.spines_per_pod)
                .map(move |spine| (TopologyNode::Leaf(leaf), TopologyNode::Spine(spine_of(leaf, spine))))
        });
        let of_spines = (0..self.spines()).flat_map(|spine| {
            let first = spine % self.spines_per_pod * self.cores_per_spine;
            (first..first + self.cores_per_spine)
                .map(move |core| (TopologyNode::Spine(spine), TopologyNode::Core(core)))
        });
        let back = |(tail, head)| (head, tail);
        let (of_leaves, of_spines): (Vec<_>, Vec<_>) = (of_leaves.collect(), of_spines.collect());
        let between = |pairs: &[(TopologyNode, TopologyNode)]| {
            let (up, down) = (pairs.iter().copied(), pairs.iter().copied().map(back));
            up.chain(down).collect::<Vec<_>>()
        };
        up.chain(down).chain(between(&of_leaves)).chain(between(&of_spines)).collect()
    }

    /// Returns the link from a host.
    pub fn link_of(host: usize) -> usize {
        host
    }

    /// Returns the link by which a packet leaves a switch; `None` at a host.
    pub fn next(&self, at: TopologyNode, to_host: usize, flow: &Flow) -> Option<usize> {
        let leaf = self.leaf_of(to_host);
        let of_leaves = self.leaves * self.spines_per_pod;
        let of_spines = self.spines() * self.cores_per_spine;
        let from_leaves = 2 * self.hosts;
        let from_spines = from_leaves + of_leaves;
        let to_cores = from_spines + of_leaves;
        let from_cores = to_cores + of_spines;
        let (spine_of_pod, core_of_spine) = self.chosen(flow);
        match at {
            TopologyNode::Host(_) => None,
            TopologyNode::Leaf(here) if here == leaf || self.spines_per_pod == 0 => {
                Some(self.hosts + to_host)
            }
            TopologyNode::Leaf(here) => Some(from_leaves + here * self.spines_per_pod + spine_of_pod),
            TopologyNode::Spine(spine) if spine / self.spines_per_pod == self.pod_of(leaf) => {
                Some(from_spines + leaf * self.spines_per_pod + spine % self.spines_per_pod)
            }
            TopologyNode::Spine(spine) => Some(to_cores + spine * self.cores_per_spine + core_of_spine),
            TopologyNode::Core(core) => {
                let (spine, core) = (core / self.cores_per_spine, core % self.cores_per_spine);
                let spine = self.pod_of(leaf) * self.spines_per_pod + spine;
                Some(from_cores + spine * self.cores_per_spine + core)
            }
        }
    }

    /// Returns the leaf of a host.
    pub fn leaf_of(&self, host: usize) -> usize {
        (host / self.hosts_per_leaf).min(self.leaves - 1)
    }

    /// Returns the spine of its pod over which a flow goes, and the core above that spine.
    fn chosen(&self, flow: &Flow) -> (usize, usize) {
        let mut hasher = FnvHasher::default();
        flow.hash(&mut hasher);
        // The low bits of FNV depend on the low bits of each byte only.
        let hash = hasher.finish();
        let hash = hash ^ hash >> 32;
        let (spines, cores) = (self.spines_per_pod.max(1) as u64, self.cores_per_spine.max(1) as u64);
        ((hash % spines) as usize, (hash / spines % cores) as usize)
    }
}
