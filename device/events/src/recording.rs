//! Recordings that begin and end while a program runs, because another process of the same user asks for
//! them: what it asks, what is answered, and what is there when one begins.
//!
//! Orders and answers are JSON objects. Both are read like packets: bounded, and refused if they are
//! malformed.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The longest order, in bytes.
pub const MAX_ORDER_BYTES: usize = 4096;
/// The longest answer, in bytes.
pub const MAX_ANSWER_BYTES: usize = 16_384;
/// The longest recording.
pub const MAX_RECORDING_MS: u64 = 24 * 3600 * 1000;

/// What a process is asked to record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase", deny_unknown_fields)]
pub enum RecordOrder {
    /// A trace.
    Trace {
        /// The file, with its whole path. `%p` in it stands for the process number, `%d` for the device.
        file: String,
        /// How long it is recorded.
        for_ms: u64,
        /// Bytes that the file has at most.
        limit_bytes: u64,
    },
    /// What it does wrong with verbs.
    Check {
        /// The file of the report, with its whole path; as for a trace, but that `%d` is the device's index.
        file: String,
        /// How long it is checked.
        for_ms: u64,
        /// The format of the report.
        format: String,
    },
    /// The end of a recording, before its time is over.
    End {
        /// The file, as it was answered.
        file: String,
    },
}

/// What a process answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordAnswer {
    /// What fault plans call the process.
    pub tag: String,
    /// The name of its device.
    #[serde(default)]
    pub device: String,
    /// Why it does not record, and the remedy.
    pub refused: Option<String>,
    /// The file that it writes.
    #[serde(default)]
    pub file: String,
}

/// A queue pair that is there when a recording begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QpNow {
    /// Its ordinal among those of the process.
    pub ordinal: u32,
    /// Its number.
    pub qpn: u32,
    /// Its completion queue of send requests: the index in the table.
    pub send_cq: u32,
    /// Its completion queue of receive requests.
    pub recv_cq: u32,
    /// Its transport service.
    pub service: &'static str,
    /// Its state: the number in verbs.
    pub state: u8,
    /// How often it was reset before.
    pub connection: u32,
    /// Its peer's address and number, if it is connected.
    pub peer: Option<(IpAddr, u32)>,
    /// The ordinal of its next send request since it was reset, where requests end in order; else 0.
    pub next: u64,
    /// Send requests that were posted, and whose end no completion has told yet.
    pub sends: u64,
    /// Receive requests on its own queue.
    pub receives: u32,
    /// Requests that its send queue has room for.
    pub send_depth: u32,
    /// READs and atomics under way, at most: the attribute `max_rd_atomic`.
    pub reads: u8,
}

/// Memory that is registered when a recording begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionNow {
    /// The key, for scatter/gather elements and for peers.
    pub key: u32,
    /// First byte in this process.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The first byte's address as users of the key say it.
    pub iova: u64,
    /// All of it is mapped for as long as it is registered.
    pub stays_mapped: bool,
}

/// What is there when a recording begins. It is asked under the engine's lock.
pub trait Existing {
    /// Tells each queue pair.
    fn queue_pairs(&self, tell: &mut dyn FnMut(&QpNow));
    /// Tells each registration of memory.
    fn regions(&self, tell: &mut dyn FnMut(&RegionNow));
    /// Tells the index of each completion queue, and how many completions wait there, while no thread can
    /// poll it.
    fn completion_queues(&self, tell: &mut dyn FnMut(u32, u32));
}

/// What records while the program runs.
pub trait Recorder: Send {
    /// Another process of this user wants something recorded. `None`: that is none of its orders.
    fn obey(&mut self, order: &RecordOrder, now: &dyn Existing) -> Option<RecordAnswer>;
}

impl RecordOrder {
    /// As it is sent.
    ///
    /// # Errors
    /// It is longer than an order may be.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        if bytes.len() > MAX_ORDER_BYTES {
            return Err("the name of the file is too long: name a shorter one".to_owned());
        }
        Ok(bytes)
    }

    /// What was sent; nothing if it is none.
    pub fn decode(bytes: &[u8]) -> Option<RecordOrder> {
        if bytes.len() > MAX_ORDER_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }
}

impl RecordAnswer {
    /// An answer that says why nothing is recorded.
    pub fn refusing(why: impl Into<String>) -> RecordAnswer {
        RecordAnswer { refused: Some(why.into()), ..RecordAnswer::default() }
    }

    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        if bytes.len() <= MAX_ANSWER_BYTES {
            return bytes;
        }
        let short = RecordAnswer::refusing("its answer is too long: name a file with a shorter path");
        serde_json::to_vec(&short).unwrap_or_default()
    }

    /// What was sent; nothing if it is none.
    pub fn decode(bytes: &[u8]) -> Option<RecordAnswer> {
        if bytes.len() > MAX_ANSWER_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }
}

#[cfg(test)]
mod tests {
    use pumice_faults::live::{LiveAnswer, LiveOrder};

    use super::*;
    use crate::inspect::Question;

    #[test]
    fn orders_and_answers_are_read_as_they_were_written() {
        for order in [
            RecordOrder::Trace { file: "/tmp/%p.trace".to_owned(), for_ms: 5000, limit_bytes: 1 << 20 },
            RecordOrder::Check { file: "/tmp/%p".to_owned(), for_ms: 1, format: "json".to_owned() },
            RecordOrder::End { file: "/tmp/7.trace".to_owned() },
        ] {
            let bytes = order.encode().expect("short");
            assert_eq!(RecordOrder::decode(&bytes), Some(order));
            assert_eq!((LiveOrder::decode(&bytes), Question::decode(&bytes)), (None, None), "another order");
        }
        let answer = RecordAnswer { file: "/tmp/7.trace".to_owned(), ..RecordAnswer::default() };
        assert_eq!(RecordAnswer::decode(&answer.encode()), Some(answer));
        let long = RecordOrder::End { file: "x".repeat(MAX_ORDER_BYTES) };
        assert!(long.encode().is_err());
        let long = RecordAnswer { file: "x".repeat(MAX_ANSWER_BYTES), ..RecordAnswer::default() };
        let read = RecordAnswer::decode(&long.encode()).expect("an answer");
        assert!(read.refused.is_some());
    }

    #[test]
    fn an_older_version_refuses() {
        let answer = LiveAnswer::refusing("it does not know this order").encode();
        let read = RecordAnswer::decode(&answer).expect("an answer");
        assert_eq!(read.refused.as_deref(), Some("it does not know this order"));
    }

    #[test]
    fn what_is_no_order_is_refused() {
        for text in ["", "{}", "[[[[", r#"{"record":"all"}"#, r#"{"record":"trace","file":"a"}"#] {
            assert_eq!(RecordOrder::decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(RecordOrder::decode(&[b' '; MAX_ORDER_BYTES + 1]), None);
        assert_eq!(RecordAnswer::decode(&[b'['; MAX_ANSWER_BYTES + 1]), None);
    }
}
