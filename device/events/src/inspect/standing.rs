//! How processes stand, and what is said of them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::collect::Collected;

/// A process as it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The host that it runs on; empty: the one that looks.
    #[serde(default)]
    pub host: String,
    /// Its number.
    pub pid: u32,
    /// Its program; empty if it is not known.
    pub program: String,
    /// The address of its device; none: all of the host's.
    pub address: Option<IpAddr>,
    /// Those of the host, if its device has all; none from an older version.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Which of the processes at its address it is.
    pub index: u8,
    /// A signal has stopped it.
    pub is_stopped: bool,
    /// What it says of its objects and of its threads; none: it did not answer.
    pub objects: Option<Collected>,
}

/// Why a process waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It knows the reason itself.
    Told,
    /// No program listens where it asks for a connection.
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
    /// Nothing is posted that could complete where it waits, or nothing happens that it waits for.
    Nothing,
    /// Its own queue pair is in SQD, or its own completion queue has failed.
    Halted,
    /// It has not acknowledged events.
    Unacknowledged,
    /// The number of the peer's queue pair is wrong.
    WrongNumber,
    /// Datagrams that came were dropped, or go to a group to which nothing is attached.
    Lost,
    /// The peer has posted no receive request for a message.
    NoReceive,
    /// The peer has not answered a request for a connection.
    Answer,
    /// The peer has not sent.
    Message,
    /// The peer has not acknowledged.
    Acknowledgement,
}

impl Standing {
    /// Whether its device may be at an address that a process of this host names.
    pub fn may_be_at(&self, address: IpAddr, host: &str) -> bool {
        // Loopback is of one host.
        let is_near = self.host == host;
        if address.is_loopback() && !is_near {
            return false;
        }
        match self.address {
            Some(own) => own == address,
            None => address.is_loopback() || self.addresses.is_empty() || self.addresses.contains(&address),
        }
    }

    /// Whether the process looks at its threads when it is asked to, and has not done so since `before`.
    pub fn has_to_look(&self, before: &[Standing]) -> bool {
        let looks = |one: &Standing| Some(one.objects.as_ref()?.waits.as_ref()?.looks);
        let is_own =
            |other: &&Standing| (&other.host, other.pid, other.index) == (&self.host, self.pid, self.index);
        let then = before.iter().find(is_own).and_then(looks).unwrap_or_default();
        looks(self).is_some_and(|now| now <= then)
    }
}

impl Why {
    /// Whether nothing that the peer waits for could end it.
    pub const fn is_root(self) -> bool {
        matches!(
            self,
            Why::Told
                | Why::NobodyListens
                | Why::Unread
                | Why::Stopped
                | Why::Ended
                | Why::Destroyed
                | Why::NotReady
                | Why::Failed
                | Why::Nothing
                | Why::Halted
                | Why::Unacknowledged
                | Why::WrongNumber
                | Why::Lost
        )
    }
}

impl Why {
    /// Whether the process that waits has said it, or will, without a look at others.
    pub const fn is_known(self) -> bool {
        matches!(self, Why::Told | Why::NobodyListens | Why::Unread | Why::Answer | Why::Unacknowledged)
    }
}

/// A wait of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The process that waits, as a position in the list.
    pub from: usize,
    /// The process that it waits for; none: no process that is known.
    pub to: Option<usize>,
    /// Why.
    pub why: Why,
    /// The same in words, which go on after the name of the process: "waits for …".
    pub words: String,
    /// The queue pair that it is about.
    pub qpn: Option<u32>,
    /// A message is waited for, which may also come in another way.
    pub is_of_message: bool,
}

/// What holds some of the processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// In one sentence.
    pub sentence: String,
    /// The processes of a circle, each of which waits for the next; or those from one that waits to the root.
    pub processes: Vec<usize>,
    /// They wait for each other.
    pub is_circle: bool,
    /// Nothing else can end it. Else it may be that a thread of the last one goes on.
    pub is_certain: bool,
}

/// Who waits for whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Graph {
    /// All waits.
    pub waits: Vec<Wait>,
    /// What holds them, the surest first.
    pub verdicts: Vec<Verdict>,
}
