//! The processes that share a port: what one of them can do for, and learn from, the others.

use std::path::PathBuf;
use std::sync::Arc;

use pumice_events::counters::Counters;
use pumice_ground::link_rate::{Speed, Width};
use pumice_ground::object_summary::ObjectSummary;
use pumice_profile::addresses::gid_table::GidOrigins;
use pumice_transport::host::PeerProgress;
use pumice_transport::wire::ProcessIndex;

use super::batch::Received;
use super::directory::ServiceDirectory;
use super::limits::Peer;

/// What became of packets for another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// They are on their way.
    Done,
    /// That process does not keep up: later.
    Full,
    /// No process has the index.
    NoProcess,
}

/// What the processes of a user who share a port have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commons {
    /// Folder of this user's own for what they share, or why there is none.
    pub folder: Result<PathBuf, &'static str>,
    /// What the names of its files begin with.
    pub name: String,
    /// This process.
    pub process: ProcessIndex,
}

/// An order of another process of the same user: what it says is as trustworthy as a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The process that gave it.
    pub asker: u64,
    /// Which of its orders this is.
    pub number: u64,
    /// What it says.
    pub text: Vec<u8>,
}

/// What the port of a device is in, as sysfs shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCondition {
    /// Its state is DOWN.
    pub is_down: bool,
    /// Its cable is out.
    pub is_cable_out: bool,
    /// Its interfaces have no carrier.
    pub lacks_carrier: bool,
    /// Rate of a lane, where it is not that of the profile.
    pub speed: Option<Speed>,
    /// Lanes, where they are not those of the profile.
    pub width: Option<Width>,
    /// The device is gone for so many ns from now; `u64::MAX`: for ever.
    pub gone_for_ns: Option<u64>,
    /// Where its addresses were when it began.
    pub gid_origins: GidOrigins,
}

/// The group of processes that share a port, as one of them sees it. The default methods are those of a
/// process that knows of no other.
pub trait ProcessGroup {
    /// Whether an unreliable batch (UC, UD) for this peer may be sent now. False: the peer's process is known
    /// not to keep up, so the batch would be lost; ask again soon. Ask before a batch is made, and send it
    /// next.
    fn admits(&mut self, now_ns: u64, peer: Peer) -> bool {
        let _ = (now_ns, peer);
        true
    }

    /// What the clock that all processes of the host share says where the engine's begins.
    fn clock_began(&mut self, origin_ns: u64) {
        let _ = origin_ns;
    }

    /// Whether the peer's process is known to have had no processor since `since_ns`, or to be none. The
    /// engine asks when a queue pair is about to give the peer up. The group may also let that process know
    /// that it is missed.
    fn peer_progress(&mut self, now_ns: u64, peer: Peer, since_ns: u64) -> PeerProgress {
        let _ = (now_ns, peer, since_ns);
        PeerProgress::Unknown
    }

    /// The caller waited on the port's descriptors and something is readable, or it must see all that has
    /// arrived: the next calls of [`receive`](super::Port::receive) look everywhere.
    fn woken(&mut self) {}

    /// The device behind the port counts here, for other processes that ask.
    fn observe(&mut self, counters: &Arc<Counters>) {
        let _ = counters;
    }

    /// What a port of this process's device (of which the first is 1) is in from now on, for programs that
    /// look in sysfs.
    fn publish_condition(&mut self, port_num: u8, condition: &PortCondition) {
        let _ = (port_num, condition);
    }

    /// How many objects this process has from now on, for programs that ask by netlink.
    fn publish_objects(&mut self, summary: ObjectSummary) {
        let _ = summary;
    }

    /// An order that has come since the last one. Orders come while [`receive`](super::Port::receive) takes
    /// something and gives nothing to its handler.
    fn next_order(&mut self) -> Option<Order> {
        None
    }

    /// Tells the process that gave an order what came of it.
    fn answer_order(&mut self, order: &Order, answer: &[u8]) {
        let _ = (order, answer);
    }

    /// Tells the process that asked something what it asked. If the answer is lost, it asks again: nothing is
    /// kept.
    fn answer_question(&mut self, order: &Order, answer: &[u8]) {
        let _ = (order, answer);
    }

    /// Forwards packets to another process. The caller keeps what is `Full`.
    fn try_forward(&mut self, process: ProcessIndex, received: &Received<'_>) -> Forwarded {
        let _ = (process, received);
        Forwarded::NoProcess
    }

    /// Forwards packets to another process; false if they are lost.
    fn forward(&mut self, process: ProcessIndex, received: &Received<'_>) -> bool {
        self.try_forward(process, received) == Forwarded::Done
    }

    /// What this process has in common with the others, if the port is shared.
    fn commons(&self) -> Option<Commons> {
        None
    }

    /// The process exits without closing the port: removes what would stay in memory behind the last process.
    fn leave_nothing(&mut self) {}

    /// Keeps the index of another process from being given to a new one when that process has gone, because
    /// queue pairs with its numbers live on.
    fn reserve_index(&mut self, process: ProcessIndex) {
        let _ = process;
    }

    /// Takes the packets of a reserved index if its process has gone. True: this process has them now.
    fn adopt_index(&mut self, process: ProcessIndex) -> bool {
        let _ = process;
        false
    }

    /// Ends [`reserve_index`](ProcessGroup::reserve_index) and [`adopt_index`](ProcessGroup::adopt_index).
    fn release_index(&mut self, process: ProcessIndex) {
        let _ = process;
    }

    /// The services that the processes have bound.
    fn services(&mut self) -> Option<&mut dyn ServiceDirectory> {
        None
    }
}
