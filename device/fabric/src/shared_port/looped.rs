//! IPv6 multicast groups of the loopback interface.
//!
//! Linux lets a socket join an IPv6 group on `lo` but gives that interface no route for groups, so that a
//! datagram from ::1, or from another address of `lo`, to a group is refused with ENETUNREACH; IPv4 groups do
//! not have this problem. All members of such a group are processes of this host that share the UDP port. So
//! a batch that the kernel refuses goes through the relay to each of them, and into a queue of this process,
//! which may be a member as well.
//!
//! A relay holds few batches. If the first member has no room the batch waits, so that a member that keeps up
//! loses nothing. A member that does not run delays its senders once, for a moment, and loses what it does
//! not take.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use pumice_model::port::batch::ReceivedBatch;
use pumice_platform::outside::interface;
use pumice_transport::path::Flow;

/// Number of batches that may wait for this process. Further ones are lost, as in a socket's buffer.
const LIMIT: usize = 256;
/// TTL of batches whose path leaves it to the port.
const DEFAULT_HOP_LIMIT: u8 = 64;

/// Time that a batch waits for a member without room, in nanoseconds.
const PATIENCE_NS: u64 = 20_000_000;

/// A batch that this process sent to a group that it has joined itself.
#[derive(Debug)]
struct Looped {
    flow: Flow,
    traffic_class: u8,
    hop_limit: u8,
    segment_bytes: usize,
    bytes: Vec<u8>,
}

/// The groups that this process has joined, and the batches that it sent to them itself.
#[derive(Debug, Default)]
pub(super) struct LoopedGroups {
    joins: BTreeMap<IpAddr, usize>,
    queue: VecDeque<Looped>,
    /// Time since which the first member has had no room.
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

    /// Reports whether a batch of another process is for a group that this process has joined.
    pub(super) fn takes(&self, flow: &Flow) -> bool {
        is_to_group(flow) && self.joins.contains_key(&flow.destination)
    }

    /// Reports whether a batch waits for a member that has no room.
    pub(super) fn waits(&mut self, now_ns: u64) -> bool {
        now_ns.saturating_sub(*self.full_since_ns.get_or_insert(now_ns)) < PATIENCE_NS
    }

    /// Reports whether the queue of batches from this process to itself is empty.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Passes the next batch from this process to `handler`. Returns false if there is none.
    pub(super) fn receive(&mut self, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        let Some(looped) = self.queue.pop_front() else { return false };
        let Looped { flow, traffic_class, hop_limit, segment_bytes, ref bytes } = looped;
        handler(&ReceivedBatch { flow, traffic_class, hop_limit, segment_bytes, bytes, has_icrc: true });
        true
    }

    /// Notes that a member has taken a batch.
    pub(super) fn has_room(&mut self) {
        self.full_since_ns = None;
    }

    /// Queues a batch for this process, if it has joined the group.
    pub(super) fn push(&mut self, received: &ReceivedBatch<'_>) {
        if self.takes(&received.flow) && self.queue.len() < LIMIT {
            let ReceivedBatch { flow, traffic_class, hop_limit, segment_bytes, bytes, .. } = *received;
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

/// Reports whether this module delivers a flow that the kernel has no route for: one from an address of the
/// loopback interface to a group.
pub(super) fn is_looped(flow: &Flow) -> bool {
    is_to_group(flow) && (flow.source.is_loopback() || interface::is_of_loopback(flow.source))
}

fn is_to_group(flow: &Flow) -> bool {
    flow.destination.is_ipv6() && flow.destination.is_multicast()
}

/// Returns the TTL of a batch whose path has this one.
pub(super) fn hop_limit(of_path: u8) -> u8 {
    if of_path == 0 { DEFAULT_HOP_LIMIT } else { of_path }
}
