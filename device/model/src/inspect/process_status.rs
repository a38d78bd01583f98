//! The status of processes that may wait for each other, and the conclusions from it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::collect::InspectedObjects;

/// The status of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// The host that the process runs on; empty: this host.
    #[serde(default)]
    pub host: String,
    /// The number of the process.
    pub pid: u32,
    /// The program of the process; empty if it is not known.
    pub program: String,
    /// The address of the device; `None`: the device has all addresses of the host.
    pub address: Option<IpAddr>,
    /// The addresses of the host, if the device has all; empty from an older version.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// The index of the process among those at its address.
    pub index: u8,
    /// True if a signal has stopped the process.
    pub is_stopped: bool,
    /// The process's answer about its objects and threads; `None`: it did not answer.
    pub objects: Option<InspectedObjects>,
}

/// The reason why a process waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// The process has reported the reason itself.
    Told,
    /// No program listens at the destination of its connection request.
    NobodyListens,
    /// The listener's program does not read its events.
    Unread,
    /// The peer's process is stopped.
    Stopped,
    /// The peer's process has ended.
    Ended,
    /// The peer's queue pair was destroyed.
    Destroyed,
    /// The peer's queue pair does not receive yet.
    NotReady,
    /// The peer's queue pair has failed.
    Failed,
    /// The process waits for something that cannot come: nothing is posted that could complete in its
    /// completion queue, or nothing happens that it waits for.
    Nothing,
    /// Its own queue pair is in SQD, or its own completion queue has failed.
    Halted,
    /// The process has not acknowledged events.
    Unacknowledged,
    /// The number of the peer's queue pair is wrong.
    WrongNumber,
    /// Received datagrams were dropped, or datagrams go to a group to which nothing is attached.
    Lost,
    /// The peer has posted no receive request for a message.
    NoReceive,
    /// The peer has not answered a connection request.
    Answer,
    /// The peer has not sent.
    Message,
    /// The peer has not acknowledged.
    Acknowledgement,
}

impl ProcessStatus {
    /// Reports whether the device may be at an address that a process of this host names.
    pub fn may_be_at(&self, address: IpAddr, host: &str) -> bool {
        // Loopback addresses belong to one host.
        let is_near = self.host == host;
        if address.is_loopback() && !is_near {
            return false;
        }
        match self.address {
            Some(own) => own == address,
            None => address.is_loopback() || self.addresses.is_empty() || self.addresses.contains(&address),
        }
    }

    /// Reports whether the process examines its threads on request, and has not done so since `before`.
    pub fn must_examine_threads(&self, before: &[ProcessStatus]) -> bool {
        let looks = |one: &ProcessStatus| Some(one.objects.as_ref()?.waits.as_ref()?.looks);
        let is_own = |other: &&ProcessStatus| {
            (&other.host, other.pid, other.index) == (&self.host, self.pid, self.index)
        };
        let Some(now) = looks(self) else { return false };
        match before.iter().find(is_own).and_then(looks) {
            Some(then) => now <= then,
            None => now == 0,
        }
    }
}

impl WaitReason {
    /// Reports whether nothing that the peer waits for could end this wait.
    pub const fn is_root(self) -> bool {
        matches!(
            self,
            WaitReason::Told
                | WaitReason::NobodyListens
                | WaitReason::Unread
                | WaitReason::Stopped
                | WaitReason::Ended
                | WaitReason::Destroyed
                | WaitReason::NotReady
                | WaitReason::Failed
                | WaitReason::Nothing
                | WaitReason::Halted
                | WaitReason::Unacknowledged
                | WaitReason::WrongNumber
                | WaitReason::Lost
        )
    }
}

impl WaitReason {
    /// Reports whether the waiting process has reported the reason, or will, without data of other processes.
    pub const fn is_known(self) -> bool {
        matches!(
            self,
            WaitReason::Told
                | WaitReason::NobodyListens
                | WaitReason::Unread
                | WaitReason::Answer
                | WaitReason::Unacknowledged
        )
    }
}

/// A wait of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessWait {
    /// The waiting process, as an index in the list.
    pub from: usize,
    /// The process that it waits for; `None`: no process that is known.
    pub to: Option<usize>,
    /// The reason.
    pub why: WaitReason,
    /// The reason in words, which continue after the name of the process: "waits for …".
    pub words: String,
    /// The queue pair that the wait is about.
    pub qpn: Option<u32>,
    /// True if the process waits for a message, which may also come in another way.
    pub is_of_message: bool,
}

/// The cause of the waits of some of the processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitVerdict {
    /// The cause in one sentence.
    pub sentence: String,
    /// The processes of a circle, each of which waits for the next; or those from one that waits to the root.
    pub processes: Vec<usize>,
    /// True if the processes wait for each other.
    pub is_circle: bool,
    /// True if nothing else can end the waits. Otherwise a thread of the last process may continue.
    pub is_certain: bool,
}

/// The waits of processes for each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitGraph {
    /// All waits.
    pub waits: Vec<ProcessWait>,
    /// The causes, the surest first.
    pub verdicts: Vec<WaitVerdict>,
}
