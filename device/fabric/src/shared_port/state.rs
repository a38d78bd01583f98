//! The groups of values that the state of a shared port consists of.

use std::sync::Arc;

use pumice_model::counters::Counters;
use pumice_model::fates::trigger::Partition;
use pumice_model::port::batch::Peer;
use pumice_transport::types::Gid;
use pumice_transport::wire::ProcessIndex;

use super::counters::SharingCounters;
use super::looped::LoopedGroups;
use super::requests::Requests;
use super::socket_polling::SocketPolling;
use crate::members::member_index::MemberIndex;
use crate::members::progress::IdlePollTimes;
use crate::registry::published::Published;
use crate::relay::Relay;
use crate::relay::command_queue::CommandQueue;
use crate::relay::local::Local;

/// The counters of a port and of its device, and where they are published.
#[derive(Debug)]
pub(super) struct PortCounting {
    /// Published counters: one record, or one for each of the device's two ports. Empty where no file can be
    /// mapped in the folder; the counters of the host do not move then.
    pub(super) published: Vec<Published>,
    pub(super) counters: Arc<SharingCounters>,
    /// Counters of the device behind the port, for processes that ask.
    pub(super) device: Option<Arc<Counters>>,
}

/// The names by which packets find this process at a port.
#[derive(Debug)]
pub(super) struct PortIdentity {
    /// Addresses of the device's ports, if it has two.
    pub(super) own: Vec<Gid>,
    pub(super) process: ProcessIndex,
    pub(super) local: Local,
    pub(super) name: String,
    /// IPv6 groups that the kernel has no route for.
    pub(super) looped: LoopedGroups,
    pub(super) notice: Option<String>,
}

/// The relays that a port takes packets from.
#[derive(Debug)]
pub(super) struct Relays {
    pub(super) relay: Relay,
    /// Processes that have gone and whose packets come here, each with the relay of its index.
    pub(super) adopted: Vec<(MemberIndex, Relay)>,
}

/// The sources of a port that the next receive polls, and how the last ones ended.
#[derive(Debug)]
pub(super) struct PollState {
    pub(super) receives: u32,
    /// Time at which a poll last found nothing more to take. Packets that the process sent to itself later
    /// may still wait.
    pub(super) emptied_ns: Option<u64>,
    /// The relay may have something.
    pub(super) relay_due: bool,
    /// The next receive polls the relay first.
    pub(super) relay_is_next: bool,
    pub(super) idle_poll_times: IdlePollTimes,
    pub(super) socket_polling: SocketPolling,
}

/// The requests and orders of other processes.
#[derive(Debug)]
pub(super) struct PendingOrders {
    pub(super) requests: Requests,
    /// Orders of other processes about the fault plan and the objects.
    pub(super) command_queue: CommandQueue,
    /// Partitions that the device's fault plan imposes on this process.
    pub(super) partitions: Vec<Partition>,
}

/// The knowledge of a port about whether the steering of packets needs a repair.
#[derive(Debug)]
pub(super) struct RepairState {
    /// The registry has to be read and repaired.
    pub(super) repair_due: bool,
    /// Everything that came before the last repair of the steering has been taken: every packet that comes
    /// now was steered by the program that the registry implies.
    pub(super) settled: bool,
    /// Process index in a packet that came to the wrong process although the steering was settled.
    pub(super) evidence: Option<ProcessIndex>,
    pub(super) last_repair_ns: Option<u64>,
}

/// The process that was sent to last.
#[derive(Debug)]
pub(super) struct LastReceiver {
    /// Peer that was searched for last, its member index, and the incarnation number of that member's owner.
    pub(super) last_receiver: Option<(Peer, MemberIndex, u64)>,
    /// Series of batches that goes to that peer.
    pub(super) last_series: LastSeries,
}

/// A series of batches to one receiver.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LastSeries {
    /// Number of the series; 0 for none.
    pub(super) number: u64,
    /// Ring that took the last batch, which was made for rings; 0 for none.
    pub(super) ring: u64,
}
