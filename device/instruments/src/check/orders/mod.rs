//! What is remembered of requests in order to know which of them nothing orders.

mod echo;
mod incoming;
mod local;
mod notices;
mod peer;
mod queue_pair;
mod remote;

use std::collections::BTreeMap;

use pumice_ground::intervals::Intervals;
use pumice_ground::number_map::NumberMap;

pub(super) use incoming::{Incoming, share_bytes};
pub(super) use local::Landing;
pub(super) use notices::{NOTICE_TURNS, Notices, Written};
pub(super) use peer::PeerProcess;
pub(super) use queue_pair::{MAX_STACKS, OrderedQp};
pub(super) use remote::{Access, conflict, target_of};

/// What is known about the order of requests.
#[derive(Debug, Default)]
pub(super) struct Ordering {
    /// Connected queue pairs, by number.
    pub(super) qps: NumberMap<u32, OrderedQp>,
    /// How many of them a peer has.
    pub(super) peers: BTreeMap<PeerProcess, u32>,
    /// What requests that are not known to be over do with memory of peers.
    pub(super) remote: Intervals<remote::Space, Access>,
    /// Memory of the program that READs and atomics will fill.
    pub(super) landings: Intervals<(), Landing>,
    pub(super) notices: BTreeMap<PeerProcess, Notices>,
    /// Changes when the program may have been told of anything.
    pub(super) told: u64,
}
