//! Changes of rules while a program runs: the orders that a process gets about its plan, and its answers.
//!
//! Orders and answers are JSON objects that other processes of the same user send, so both are read like
//! packets: bounded, and refused if anything in them is unknown.

use serde::{Deserialize, Serialize};

/// The longest order, in bytes.
pub const MAX_COMMAND_BYTES: usize = 4096;
/// The longest answer, in bytes.
pub const MAX_REPLY_BYTES: usize = 60_000;
/// Most rules of a process while rules are added to it.
pub const MAX_RULES: usize = 4096;

/// An order to a process to list or change the rules of its plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum FaultCommand {
    /// List the rules.
    List,
    /// Add a rule, written in one line.
    Add {
        /// The kind of fault, then `field=value`.
        line: String,
    },
    /// Pause a rule, or all: a paused rule is asked about nothing, and counts nothing.
    Pause {
        /// The name of the rule; `None`: all rules.
        rule: Option<String>,
    },
    /// Resume a paused rule, or all.
    Resume {
        /// The name of the rule; `None`: all rules.
        rule: Option<String>,
    },
    /// Clear a rule, or all.
    Clear {
        /// The name of the rule; `None`: all rules.
        rule: Option<String>,
    },
}

/// The state of a rule in a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// The name of the rule.
    pub name: String,
    /// The rule's line if it was added while the program ran, else the kind of fault.
    pub does: String,
    /// True if the rule was added while the program ran.
    pub live: bool,
    /// True if the rule is paused.
    pub paused: bool,
    /// Number of packets, calls or completions that matched the rule.
    pub met: u64,
    /// Number of times that the rule applied.
    pub applied: u64,
}

/// The answer of a process to a [`FaultCommand`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultReply {
    /// The tag of the process in fault plans.
    pub tag: String,
    /// The name of the device; empty from processes of older versions.
    #[serde(default)]
    pub device: String,
    /// The seed of the rules.
    pub seed: u64,
    /// The reason why the process refused the order, and the remedy.
    pub refused: Option<String>,
    /// The names of the rules that changed.
    pub changed: Vec<String>,
    /// The rules after the order.
    pub rules: Vec<RuleStatus>,
    /// Number of rules for which the answer has no room.
    pub left_out: usize,
}

/// A change of a rule while the program ran.
#[derive(Debug, Clone, Copy)]
pub struct RuleChange<'a> {
    /// The tag of the process.
    pub tag: &'a str,
    /// The seed of the process's rules.
    pub seed: u64,
    /// The change: `added`, `paused`, `resumed` or `cleared`.
    pub what: &'static str,
    /// The name of the rule.
    pub rule: &'a str,
    /// True if the rule is about calls.
    pub is_of_calls: bool,
    /// The line of the rule, if it was added.
    pub line: Option<&'a str>,
    /// Number of packets that the process had sent before.
    pub after_packets: u64,
    /// Number of queue pairs that the process had created before.
    pub after_queue_pairs: u32,
}

impl FaultCommand {
    /// Returns the order as bytes to send.
    ///
    /// # Errors
    /// The order is longer than [`MAX_COMMAND_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        if bytes.len() > MAX_COMMAND_BYTES {
            return Err(format!("the rule is longer than {MAX_COMMAND_BYTES} bytes: write a shorter one"));
        }
        Ok(bytes)
    }

    /// Reads an order from received bytes; `None` if they are not one.
    pub fn decode(bytes: &[u8]) -> Option<FaultCommand> {
        if bytes.len() > MAX_COMMAND_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }
}

impl FaultReply {
    /// Returns an answer that refuses an order for this reason.
    pub fn refusing(why: impl Into<String>) -> FaultReply {
        FaultReply { refused: Some(why.into()), ..FaultReply::default() }
    }

    /// Returns the answer as bytes to send: rules that do not fit are left out, and counted.
    pub fn encode(mut self) -> Vec<u8> {
        loop {
            let bytes = serde_json::to_vec(&self).unwrap_or_default();
            if bytes.len() <= MAX_REPLY_BYTES || (self.rules.is_empty() && self.changed.is_empty()) {
                return bytes;
            }
            let kept_count = self.rules.len() / 2;
            self.left_out += self.rules.len() - kept_count;
            self.rules.truncate(kept_count);
            self.changed.truncate(kept_count);
        }
    }

    /// Reads an answer from received bytes; `None` if they are not one.
    pub fn decode(bytes: &[u8]) -> Option<FaultReply> {
        if bytes.len() > MAX_REPLY_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let rule = Some("loss".to_owned());
        for order in [
            FaultCommand::List,
            FaultCommand::Add { line: "drop chance=2%".to_owned() },
            FaultCommand::Pause { rule: None },
            FaultCommand::Resume { rule: rule.clone() },
            FaultCommand::Clear { rule },
        ] {
            assert_eq!(FaultCommand::decode(&order.encode().unwrap()), Some(order));
        }
        assert!(FaultCommand::Add { line: "x".repeat(MAX_COMMAND_BYTES) }.encode().is_err());
    }

    #[test]
    fn what_is_no_order_is_refused() {
        let long = format!("{{\"do\":\"add\",\"line\":\"{}\"}}", "x".repeat(MAX_COMMAND_BYTES));
        let deep = "[".repeat(4000);
        for text in ["", "{}", "[]", "\u{0}", r#"{"do":"end"}"#, r#"{"do":"pause","rule":1}"#, &long, &deep] {
            assert_eq!(FaultCommand::decode(text.as_bytes()), None, "{text:.40}");
        }
        assert_eq!(FaultCommand::decode(&[0xff; 9]), None);
        assert_eq!(FaultReply::decode(&[b'['; 50_000]), None);
    }

    #[test]
    fn an_answer_leaves_out_what_has_no_room() {
        let rule = RuleStatus {
            name: "n".repeat(100),
            does: "drop".to_owned(),
            live: false,
            paused: false,
            met: u64::MAX,
            applied: 0,
        };
        let answer = FaultReply { rules: vec![rule; 1000], ..FaultReply::default() };
        let read = FaultReply::decode(&answer.encode()).unwrap();
        assert_eq!((read.rules.len() + read.left_out, read.rules.is_empty()), (1000, false));
    }
}
