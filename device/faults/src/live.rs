//! Rules that come, rest and go while a program runs: what a process is asked to do with its plan, and what
//! it answers.
//!
//! Both are JSON objects that other processes of the same user send, so both are read like packets: bounded,
//! and refused if anything in them is unknown.

use serde::{Deserialize, Serialize};

/// The longest order, in bytes.
pub const MAX_ORDER_BYTES: usize = 4096;
/// The longest answer, in bytes.
pub const MAX_ANSWER_BYTES: usize = 60_000;
/// Rules that a process has at most while rules are added to it.
pub const MAX_RULES: usize = 4096;

/// What a process is asked to do with its plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum LiveOrder {
    /// Say which rules there are.
    List,
    /// Take a rule, written in one line.
    Add {
        /// The kind of fault, then `field=value`.
        line: String,
    },
    /// Let a rule rest, or all: it is asked about nothing, and counts nothing.
    Pause {
        /// The name of the rule; all without one.
        rule: Option<String>,
    },
    /// Let a rule that rests go on, or all.
    Resume {
        /// The name of the rule; all without one.
        rule: Option<String>,
    },
    /// Forget a rule, or all.
    Clear {
        /// The name of the rule; all without one.
        rule: Option<String>,
    },
}

/// A rule as a process has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRule {
    /// Its name.
    pub name: String,
    /// What it does: its line if it was added while the program ran, else the kind of fault.
    pub does: String,
    /// It was added while the program ran.
    pub live: bool,
    /// It rests.
    pub paused: bool,
    /// Packets, calls or completions that it was about.
    pub met: u64,
    /// How often it applied.
    pub applied: u64,
}

/// What a process answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveAnswer {
    /// What fault plans call the process.
    pub tag: String,
    /// The name of the device; nothing from processes of older versions.
    #[serde(default)]
    pub device: String,
    /// The seed of its rules.
    pub seed: u64,
    /// Why it did not do what it was asked, and the remedy.
    pub refused: Option<String>,
    /// The names of the rules that changed.
    pub changed: Vec<String>,
    /// Its rules after that.
    pub rules: Vec<LiveRule>,
    /// Rules that the answer has no room for.
    pub left_out: usize,
}

/// A rule that changed while the program ran.
#[derive(Debug, Clone, Copy)]
pub struct LiveChange<'a> {
    /// The tag of the process.
    pub tag: &'a str,
    /// The seed of its rules.
    pub seed: u64,
    /// What became of the rule: `added`, `paused`, `resumed` or `cleared`.
    pub what: &'static str,
    /// The name of the rule.
    pub rule: &'a str,
    /// The rule is about calls.
    pub is_of_calls: bool,
    /// The line that says it, if it was added.
    pub line: Option<&'a str>,
    /// Packets that the process had sent before.
    pub after_packets: u64,
    /// Queue pairs that the process had made before.
    pub after_queue_pairs: u32,
}

impl LiveOrder {
    /// As it is sent.
    ///
    /// # Errors
    /// It is longer than an order may be.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        if bytes.len() > MAX_ORDER_BYTES {
            return Err(format!("the rule is longer than {MAX_ORDER_BYTES} bytes: write a shorter one"));
        }
        Ok(bytes)
    }

    /// What was sent; nothing if it is none.
    pub fn decode(bytes: &[u8]) -> Option<LiveOrder> {
        if bytes.len() > MAX_ORDER_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }
}

impl LiveAnswer {
    /// An answer that says why nothing was done.
    pub fn refusing(why: impl Into<String>) -> LiveAnswer {
        LiveAnswer { refused: Some(why.into()), ..LiveAnswer::default() }
    }

    /// As it is sent: rules that do not fit are left out, and counted.
    pub fn encode(mut self) -> Vec<u8> {
        loop {
            let bytes = serde_json::to_vec(&self).unwrap_or_default();
            if bytes.len() <= MAX_ANSWER_BYTES || (self.rules.is_empty() && self.changed.is_empty()) {
                return bytes;
            }
            let kept = self.rules.len() / 2;
            self.left_out += self.rules.len() - kept;
            self.rules.truncate(kept);
            self.changed.truncate(kept);
        }
    }

    /// What was sent; nothing if it is none.
    pub fn decode(bytes: &[u8]) -> Option<LiveAnswer> {
        if bytes.len() > MAX_ANSWER_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let rule = Some("loss".to_owned());
        for order in [
            LiveOrder::List,
            LiveOrder::Add { line: "drop chance=2%".to_owned() },
            LiveOrder::Pause { rule: None },
            LiveOrder::Resume { rule: rule.clone() },
            LiveOrder::Clear { rule },
        ] {
            assert_eq!(LiveOrder::decode(&order.encode().unwrap()), Some(order));
        }
        assert!(LiveOrder::Add { line: "x".repeat(MAX_ORDER_BYTES) }.encode().is_err());
    }

    #[test]
    fn what_is_no_order_is_refused() {
        let long = format!("{{\"do\":\"add\",\"line\":\"{}\"}}", "x".repeat(MAX_ORDER_BYTES));
        let deep = "[".repeat(4000);
        for text in ["", "{}", "[]", "\u{0}", r#"{"do":"end"}"#, r#"{"do":"pause","rule":1}"#, &long, &deep] {
            assert_eq!(LiveOrder::decode(text.as_bytes()), None, "{text:.40}");
        }
        assert_eq!(LiveOrder::decode(&[0xff; 9]), None);
        assert_eq!(LiveAnswer::decode(&[b'['; 50_000]), None);
    }

    #[test]
    fn an_answer_leaves_out_what_has_no_room() {
        let rule = LiveRule {
            name: "n".repeat(100),
            does: "drop".to_owned(),
            live: false,
            paused: false,
            met: u64::MAX,
            applied: 0,
        };
        let answer = LiveAnswer { rules: vec![rule; 1000], ..LiveAnswer::default() };
        let read = LiveAnswer::decode(&answer.encode()).unwrap();
        assert_eq!((read.rules.len() + read.left_out, read.rules.is_empty()), (1000, false));
    }
}
