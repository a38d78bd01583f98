//! The processes that share a port: what one of them can do for, and learn from, the others.

use std::path::PathBuf;
use std::sync::Arc;

use super::batch::{Peer, ReceivedBatch};
use crate::addresses::gid_table::GidOrigins;
use crate::counters::Counters;
use pumice_platform::limits::ObjectSummary;
use pumice_platform::link_settings::{Speed, Width};
use pumice_transport::host::PeerProgress;
use pumice_transport::wire::ProcessIndex;

use super::directory::ServiceDirectory;

/// Result of forwarding packets to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardOutcome {
    /// The packets are on their way.
    Done,
    /// The process does not keep up; try again later.
    Full,
    /// No process has the index.
    NoProcess,
}

/// The resources that the processes of a user who share a port have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedResources {
    /// Folder of this user's own for shared files, or why there is none.
    pub folder: Result<PathBuf, &'static str>,
    /// Prefix of the names of its files.
    pub name: String,
    /// Index of this process.
    pub process: ProcessIndex,
}

/// An order of another process of the same user. Its text is not trusted, like a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlCommand {
    /// Process that gave it.
    pub querier: u64,
    /// Number of the order among those of its asker.
    pub number: u64,
    /// Text of the order.
    pub text: Vec<u8>,
}

/// The condition of a device's port, as sysfs shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCondition {
    /// The state of the port is DOWN.
    pub is_down: bool,
    /// The cable of the port is out.
    pub is_cable_out: bool,
    /// The interfaces of the port have no carrier.
    pub lacks_carrier: bool,
    /// Rate of a lane, where it is not that of the profile.
    pub speed: Option<Speed>,
    /// Lanes, where they are not those of the profile.
    pub width: Option<Width>,
    /// Time for which the device is gone from now on, in nanoseconds; `u64::MAX` for ever.
    pub removed_for_ns: Option<u64>,
    /// Positions of its addresses when it began.
    pub gid_origins: GidOrigins,
}

/// The group of processes that share a port, as one of them sees it. The default methods are those of a
/// process that knows of no other.
pub trait ProcessGroup {
    /// Reports whether an unreliable batch (UC, UD) for this peer may be sent now. False means that the
    /// peer's process is known not to keep up, so the batch would be lost; ask again soon. Ask before a batch
    /// is made, and send it next.
    fn admits(&mut self, now_ns: u64, peer: Peer) -> bool {
        let _ = (now_ns, peer);
        true
    }

    /// Sets the origin of the engine's clock, on the clock that all processes of the host share.
    fn set_clock_origin(&mut self, origin_ns: u64) {
        let _ = origin_ns;
    }

    /// Returns whether the peer's process is known to have had no processor since `since_ns`, or not to
    /// exist. The engine asks when a queue pair is about to give the peer up. The group may also notify that
    /// process that it does not answer.
    fn peer_progress(&mut self, now_ns: u64, peer: Peer, since_ns: u64) -> PeerProgress {
        let _ = (now_ns, peer, since_ns);
        PeerProgress::Unknown
    }

    /// Notes that the caller waited on the port's descriptors and something is readable, or that it must see
    /// all that has arrived: the next calls of [`receive`](super::Port::receive) poll every
    /// source.
    fn woken(&mut self) {}

    /// Sets the counters of the device behind the port, for other processes that ask.
    fn observe(&mut self, counters: &Arc<Counters>) {
        let _ = counters;
    }

    /// Publishes the condition of a port of this process's device (the first is 1) from now on, for programs
    /// that read sysfs.
    fn publish_condition(&mut self, port_num: u8, condition: &PortCondition) {
        let _ = (port_num, condition);
    }

    /// Publishes how many objects this process has from now on, for programs that ask by netlink.
    fn publish_objects(&mut self, summary: ObjectSummary) {
        let _ = summary;
    }

    /// Returns the next order that has come. Orders come while
    /// [`receive`](super::Port::receive) takes something and gives nothing to its handler.
    fn next_command(&mut self) -> Option<ControlCommand> {
        None
    }

    /// Sends the result of an order to the process that gave it.
    fn reply_to_command(&mut self, order: &ControlCommand, answer: &[u8]) {
        let _ = (order, answer);
    }

    /// Sends the answer to a question to the process that asked it. If the answer is lost, that process asks
    /// again: nothing is cached.
    fn reply_to_query(&mut self, order: &ControlCommand, answer: &[u8]) {
        let _ = (order, answer);
    }

    /// Forwards packets to another process. The caller keeps what is `Full`.
    fn try_forward(&mut self, process: ProcessIndex, received: &ReceivedBatch<'_>) -> ForwardOutcome {
        let _ = (process, received);
        ForwardOutcome::NoProcess
    }

    /// Forwards packets to another process. Returns false if they are lost.
    fn forward(&mut self, process: ProcessIndex, received: &ReceivedBatch<'_>) -> bool {
        self.try_forward(process, received) == ForwardOutcome::Done
    }

    /// Returns the resources that this process has in common with the others, if the port is shared.
    fn shared_resources(&self) -> Option<SharedResources> {
        None
    }

    /// Removes what would stay in memory behind the last process; the process exits without closing the port.
    fn remove_leftovers(&mut self) {}

    /// Keeps the index of another process from being assigned to a new one when that process has gone,
    /// because queue pairs with its numbers live on.
    fn reserve_index(&mut self, process: ProcessIndex) {
        let _ = process;
    }

    /// Takes over the packets of a reserved index if its process has gone. Returns true if this process has
    /// them now.
    fn adopt_index(&mut self, process: ProcessIndex) -> bool {
        let _ = process;
        false
    }

    /// Ends [`reserve_index`](ProcessGroup::reserve_index) and [`adopt_index`](ProcessGroup::adopt_index).
    fn release_index(&mut self, process: ProcessIndex) {
        let _ = process;
    }

    /// Returns the services that the processes have bound.
    fn services(&mut self) -> Option<&mut dyn ServiceDirectory> {
        None
    }
}
