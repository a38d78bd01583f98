//! What two ends say to each other.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::endpoint::{EndInfo, Traffic};
use crate::pattern::Tag;
use crate::plan::Plan;

/// Version of this conversation.
pub(crate) const VERSION: u32 = 1;

/// What the client asks of the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ClientRequest {
    /// Make queue pairs for this plan.
    Open { version: u32, plan: Plan },
    /// The client's side of them.
    Connect { end: EndInfo },
    /// Take your part in a round until [`Stop`](ClientRequest::Stop).
    Start(Round),
    /// End of the round: the client has `sent` messages.
    Stop { sent: u64 },
    /// Check memory that the client wrote: messages in buffers 0.. with these tags.
    Check { tags: Vec<Tag> },
    /// Compare the counters that fetch-and-adds of each queue pair counted.
    CheckCounters { values: Vec<u64> },
    /// Fill memory that the client will read: buffers 0.. with these tags.
    Fill { tags: Vec<Tag> },
    /// What the device counted.
    Count,
}

/// What one round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Round {
    /// Our queue pairs.
    Ours { contents: Contents },
    /// Plain UDP: count a stream and give credit for every so many bytes.
    RawStream { client: SocketAddr, credit_bytes: usize },
    /// Plain UDP: send everything back.
    RawEcho { client: SocketAddr, block: bool },
}

/// What the messages of a round contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Contents {
    /// All the same.
    Same { tag: Tag },
    /// The message with number k in its immediate data has tag `first + k`.
    Numbered { first: Tag },
}

/// What the server answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Opened {
        end: EndInfo,
        raw: Option<SocketAddr>,
    },
    Connected,
    Started,
    Stopped(Served),
    Checked,
    Filled,
    Counted(Traffic),
    /// Why not, in a sentence.
    Refused(String),
}

/// What the server did in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Served {
    /// Messages that arrived.
    pub(crate) messages: u64,
    /// From the first to the last of them.
    pub(crate) seconds: f64,
    /// Messages whose bytes were all looked at.
    pub(crate) checked: u64,
}
