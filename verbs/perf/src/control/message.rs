//! Messages between the two ends.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::endpoint::{EndpointInfo, PacketCounts};
use crate::pattern::Tag;
use crate::plan::Plan;

/// Version of the message format.
pub(crate) const VERSION: u32 = 1;

/// A request of the client to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ClientRequest {
    /// Make queue pairs for this plan.
    Open { version: u32, plan: Plan },
    /// Connect them to the client's queue pairs.
    Connect { end: EndpointInfo },
    /// Take part in a round until [`Stop`](ClientRequest::Stop).
    Start(Round),
    /// End of the round: the client has `sent` messages.
    Stop { sent: u64 },
    /// Check memory that the client wrote: messages in buffers 0.. with these tags.
    Check { tags: Vec<Tag> },
    /// Compare the counters that fetch-and-adds of each queue pair counted.
    CheckCounters { values: Vec<u64> },
    /// Fill memory that the client will read: buffers 0.. with these tags.
    Fill { tags: Vec<Tag> },
    /// Return the counters of the device.
    Count,
}

/// Kind of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Round {
    /// A round of the device's queue pairs.
    Ours { contents: Contents },
    /// Plain UDP: count a stream and give credit for each `credit_bytes` bytes.
    RawStream { client: SocketAddr, credit_bytes: usize },
    /// Plain UDP: send all datagrams back.
    RawEcho { client: SocketAddr, block: bool },
}

/// Contents of the messages of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Contents {
    /// All messages have the same contents.
    Same { tag: Tag },
    /// The message with number k in its immediate data has tag `first + k`.
    Numbered { first: Tag },
}

/// An answer of the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Opened {
        end: EndpointInfo,
        raw: Option<SocketAddr>,
    },
    Connected,
    Started,
    Stopped(ReceiveTotals),
    Checked,
    Filled,
    Counted(PacketCounts),
    /// The server refuses, with the reason in a sentence.
    Refused(String),
}

/// Messages that the server received in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReceiveTotals {
    /// Number of messages that arrived.
    pub(crate) messages: u64,
    /// Time from the first to the last of them, in seconds.
    pub(crate) seconds: f64,
    /// Number of messages whose bytes were all compared.
    pub(crate) checked: u64,
}
