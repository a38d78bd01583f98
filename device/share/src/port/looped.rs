//! IPv6 groups of the loopback interface.
//!
//! Linux lets a socket join an IPv6 group on `lo` but gives that interface no route for groups, so that a
//! datagram from ::1 to a group is refused with ENETUNREACH; for IPv4 groups there is none of this. All
//! members of such a group are processes of this host that share the UDP port. So a batch that the kernel
//! refuses goes through the relay to each of them, and into a queue of this process, which may be a member as
//! well.
//!
//! A relay holds few batches. If the first member has no room the batch waits, so that one that keeps up
//! loses nothing; one that does not run delays its senders once, for a moment, and loses what it does not
//! take.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use pumice_ports::Received;
use pumice_transport::path::Flow;

/// Batches that wait for this process. More are lost, as in a socket's buffer.
const LIMIT: usize = 256;
/// TTL of batches that leave it to the port.
const DEFAULT_HOP_LIMIT: u8 = 64;

/// How long a batch waits for a member without room.
const PATIENCE_NS: u64 = 20_000_000;

/// A batch that this process sent to a group of its own.
#[derive(Debug)]
struct Looped {
    flow: Flow,
    traffic_class: u8,
    hop_limit: u8,
    segment_bytes: usize,
    bytes: Vec<u8>,
}

/// The groups that this process has joined, and what it sent to them itself.
#[derive(Debug, Default)]
pub(super) struct LoopedGroups {
    joins: BTreeMap<IpAddr, usize>,
    queue: VecDeque<Looped>,
    /// Since when the first member has had no room.
    full_since_ns: Option<u64>,
}

impl LoopedGroups {
    pub(super) fn join(&mut self, group: IpAddr) {
        *self.joins.entry(group).or_default() += 1;
    }

    pub(super) fn leave(&mut self, group: IpAddr) {
        if let Some(joins) = self.joins.get_mut(&group) {
            *joins -= 1;
            if *joins == 0 {
                self.joins.remove(&group);
            }
        }
    }

    /// Whether a batch of another process is for a group that this process has joined.
    pub(super) fn takes(&self, flow: &Flow) -> bool {
        is_looped(flow) && self.joins.contains_key(&flow.destination)
    }

    /// Whether a batch waits for a member that has no room.
    pub(super) fn waits(&mut self, now_ns: u64) -> bool {
        now_ns.saturating_sub(*self.full_since_ns.get_or_insert(now_ns)) < PATIENCE_NS
    }

    /// Whether no batch of this process waits for it.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Hands the next batch of this process to `handler`; false: there is none.
    pub(super) fn receive(&mut self, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        let Some(looped) = self.queue.pop_front() else { return false };
        let Looped { flow, traffic_class, hop_limit, segment_bytes, ref bytes } = looped;
        handler(&Received { flow, traffic_class, hop_limit, segment_bytes, bytes, has_icrc: true });
        true
    }

    /// A member has taken a batch.
    pub(super) fn has_room(&mut self) {
        self.full_since_ns = None;
    }

    /// Keeps a batch for this process, if it has joined the group.
    pub(super) fn push(&mut self, received: &Received<'_>) {
        if self.takes(&received.flow) && self.queue.len() < LIMIT {
            let Received { flow, traffic_class, hop_limit, segment_bytes, bytes, .. } = *received;
            self.queue.push_back(Looped {
                flow,
                traffic_class,
                hop_limit,
                segment_bytes,
                bytes: bytes.to_vec(),
            });
        }
    }
}

/// Whether the kernel has no way for a flow, but this module has.
pub(super) fn is_looped(flow: &Flow) -> bool {
    flow.destination.is_ipv6() && flow.destination.is_multicast() && flow.source.is_loopback()
}

/// The TTL of a batch whose path has this one.
pub(super) fn hop_limit(of_path: u8) -> u8 {
    if of_path == 0 { DEFAULT_HOP_LIMIT } else { of_path }
}
