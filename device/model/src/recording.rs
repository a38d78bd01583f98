//! Recordings that begin and end while a program runs, on the order of another process of the same user: the
//! orders, the answers, and the objects that exist when one begins.
//!
//! Orders and answers are JSON objects. Both are read like packets: bounded, and refused if they are
//! malformed.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The longest order, in bytes.
pub const MAX_COMMAND_BYTES: usize = 4096;
/// The longest answer, in bytes.
pub const MAX_REPLY_BYTES: usize = 16_384;
/// The longest recording, in ms.
pub const MAX_RECORDING_MS: u64 = 24 * 3600 * 1000;

/// An order to a process to record something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase", deny_unknown_fields)]
pub enum RecordCommand {
    /// Record a trace.
    Trace {
        /// The file, with its whole path. `%p` in it stands for the process number, `%d` for the device.
        file: String,
        /// The duration of the recording, in ms.
        for_ms: u64,
        /// The largest size of the file, in bytes.
        limit_bytes: u64,
    },
    /// Check the program's use of verbs.
    Check {
        /// The file of the report, with its whole path; as for a trace, except that `%d` is the device's
        /// index.
        file: String,
        /// The duration of the check, in ms.
        for_ms: u64,
        /// The format of the report.
        format: String,
    },
    /// End a recording before its time is over.
    End {
        /// The file, as in the answer.
        file: String,
    },
}

/// The answer of a process to a [`RecordCommand`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordReply {
    /// The tag of the process in fault plans.
    pub tag: String,
    /// The name of the device.
    #[serde(default)]
    pub device: String,
    /// The reason why the process does not record, and the remedy.
    pub refused: Option<String>,
    /// The file that the process writes.
    #[serde(default)]
    pub file: String,
}

/// The state of a queue pair when a recording begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QpSnapshot {
    /// The ordinal of the queue pair among those of the process.
    pub ordinal: u32,
    /// The number of the queue pair.
    pub qpn: u32,
    /// The table index of its completion queue for send requests.
    pub send_cq: u32,
    /// The table index of its completion queue for receive requests.
    pub recv_cq: u32,
    /// The transport service.
    pub service: &'static str,
    /// The state, as its number in verbs.
    pub state: u8,
    /// Number of times that the queue pair was reset before.
    pub connection: u32,
    /// The peer's address and number, if the queue pair is connected.
    pub peer: Option<(IpAddr, u32)>,
    /// The ordinal of its next send request since it was reset, where requests end in order; else 0.
    pub next: u64,
    /// Number of send requests that were posted, and whose end no completion has reported yet.
    pub sends: u64,
    /// Number of receive requests on its own queue.
    pub receives: u32,
    /// Number of entries of the send queue.
    pub send_depth: u32,
    /// Most READs and atomics in flight: the attribute `max_rd_atomic`.
    pub reads: u8,
}

/// The state of a memory region when a recording begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionSnapshot {
    /// The key for scatter/gather elements.
    pub lkey: u32,
    /// The key for peers; on most adapters it is the same number.
    pub rkey: u32,
    /// Address of the first byte in this process.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Address of the first byte for users of the key.
    pub iova: u64,
    /// True if all of the region stays mapped for as long as it is registered.
    pub stays_mapped: bool,
    /// True if adapters may relax the order of their stores to it.
    pub relaxed: bool,
}

/// The objects that exist when a recording begins. The methods are called under the engine's lock.
pub trait Existing {
    /// Calls `tell` with each queue pair.
    fn queue_pairs(&self, tell: &mut dyn FnMut(&QpSnapshot));
    /// Calls `tell` with each registration of memory.
    fn regions(&self, tell: &mut dyn FnMut(&RegionSnapshot));
    /// Calls `tell` with the index of each completion queue and the number of its completions, while no
    /// thread can poll it.
    fn completion_queues(&self, tell: &mut dyn FnMut(u32, u32));
}

/// A recorder of events, which can be started while the program runs.
pub trait Recorder: Send {
    /// Carries out an order of another process of this user. `None`: the order is not for this recorder.
    fn apply_command(&mut self, order: &RecordCommand, now: &dyn Existing) -> Option<RecordReply>;
}

impl RecordCommand {
    /// Returns the order as bytes to send.
    ///
    /// # Errors
    /// The order is longer than [`MAX_COMMAND_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        if bytes.len() > MAX_COMMAND_BYTES {
            return Err("the name of the file is too long: name a shorter one".to_owned());
        }
        Ok(bytes)
    }

    /// Reads an order from received bytes; `None` if they are not one.
    pub fn decode(bytes: &[u8]) -> Option<RecordCommand> {
        if bytes.len() > MAX_COMMAND_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }
}

impl RecordReply {
    /// Returns an answer that refuses an order for this reason.
    pub fn refusing(why: impl Into<String>) -> RecordReply {
        RecordReply { refused: Some(why.into()), ..RecordReply::default() }
    }

    /// Returns the answer as bytes to send.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        if bytes.len() <= MAX_REPLY_BYTES {
            return bytes;
        }
        let short = RecordReply::refusing("its answer is too long: name a file with a shorter path");
        serde_json::to_vec(&short).unwrap_or_default()
    }

    /// Reads an answer from received bytes; `None` if they are not one.
    pub fn decode(bytes: &[u8]) -> Option<RecordReply> {
        if bytes.len() > MAX_REPLY_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }
}

#[cfg(test)]
mod tests {
    use crate::fates::live::{FaultCommand, FaultReply};

    use super::*;
    use crate::inspect::InspectRequest;

    #[test]
    fn orders_and_answers_are_read_as_they_were_written() {
        for order in [
            RecordCommand::Trace { file: "/tmp/%p.trace".to_owned(), for_ms: 5000, limit_bytes: 1 << 20 },
            RecordCommand::Check { file: "/tmp/%p".to_owned(), for_ms: 1, format: "json".to_owned() },
            RecordCommand::End { file: "/tmp/7.trace".to_owned() },
        ] {
            let bytes = order.encode().expect("short");
            assert_eq!(RecordCommand::decode(&bytes), Some(order));
            assert_eq!(
                (FaultCommand::decode(&bytes), InspectRequest::decode(&bytes)),
                (None, None),
                "another order"
            );
        }
        let answer = RecordReply { file: "/tmp/7.trace".to_owned(), ..RecordReply::default() };
        assert_eq!(RecordReply::decode(&answer.encode()), Some(answer));
        let long = RecordCommand::End { file: "x".repeat(MAX_COMMAND_BYTES) };
        assert!(long.encode().is_err());
        let long = RecordReply { file: "x".repeat(MAX_REPLY_BYTES), ..RecordReply::default() };
        let read = RecordReply::decode(&long.encode()).expect("an answer");
        assert!(read.refused.is_some());
    }

    #[test]
    fn an_older_version_refuses() {
        let answer = FaultReply::refusing("it does not know this order").encode();
        let read = RecordReply::decode(&answer).expect("an answer");
        assert_eq!(read.refused.as_deref(), Some("it does not know this order"));
    }

    #[test]
    fn what_is_no_order_is_refused() {
        for text in ["", "{}", "[[[[", r#"{"record":"all"}"#, r#"{"record":"trace","file":"a"}"#] {
            assert_eq!(RecordCommand::decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(RecordCommand::decode(&[b' '; MAX_COMMAND_BYTES + 1]), None);
        assert_eq!(RecordReply::decode(&[b'['; MAX_REPLY_BYTES + 1]), None);
    }
}
