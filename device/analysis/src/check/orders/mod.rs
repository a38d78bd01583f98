//! Records of requests, by which the checks know which of them nothing orders.

mod accesses;
mod echo;
mod notices;
mod queue_pair;

use std::collections::{BTreeMap, BTreeSet};

use pumice_platform::call_stack::Stack;
use pumice_platform::intervals::Intervals;
use pumice_platform::number_map::NumberMap;

pub(super) use accesses::{
    IncomingWrite, LandingBuffer, PeerMemoryAccess, PeerProcess, conflict, overlap, target_of,
};
pub(super) use notices::{ArrivedWrites, LatestWrite, NOTICE_TURNS, Notices};
pub(super) use queue_pair::{MAX_STACKS, OrderedQp};

/// The known order of requests.
#[derive(Debug, Default)]
pub(super) struct RequestOrdering {
    /// Connected queue pairs, by number.
    pub(super) qps: NumberMap<u32, OrderedQp>,
    /// Number of queue pairs that are connected to each peer.
    pub(super) peers: BTreeMap<PeerProcess, u32>,
    /// Accesses to memory of peers by requests that are not known to be over.
    pub(super) remote: Intervals<accesses::PeerMemory, PeerMemoryAccess>,
    /// Memory of the program that READs and atomics will fill.
    pub(super) landings: Intervals<(), LandingBuffer>,
    pub(super) notices: BTreeMap<PeerProcess, Notices>,
    /// WRITEs of peers to relaxed regions.
    pub(super) arrived: BTreeMap<PeerProcess, ArrivedWrites>,
    /// Regions with relaxed ordering, by key, with the call site that registered them.
    pub(super) relaxed: BTreeMap<u64, Stack>,
    /// Queue pairs that place data out of order.
    pub(super) out_of_order: BTreeSet<u32>,
    /// Counter that changes when the program may have been told of anything.
    pub(super) notified: u64,
}
