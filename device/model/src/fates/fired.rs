//! Rules that applied: what an event says of them.

use std::net::IpAddr;

use pumice_platform::ordinal::{CallOrdinal, Ordinal};
use pumice_transport::types::Fate;

use super::completion_event::{CompletionEventFate, CompletionEventKey};
use super::identity::PacketKey;
use super::refusal::answer_word;
use super::rejection::RejData;
use crate::fates::call::{CallFate, CallKey, TIME};
use crate::fates::completion::{CompletionFate, CompletionKey};
use crate::fates::errno::errno_text;
use crate::fates::incident::Incident;

/// A rule that applied to a packet.
#[derive(Debug, Clone, Copy)]
pub struct Fired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The packet.
    pub key: &'a PacketKey,
    /// The effect of this rule on the packet.
    pub fate: &'a Fate,
    /// Duration of the partition that begins here, in ns, if one begins; `Some(None)` means without end.
    pub partition_ns: Option<Option<u64>>,
    /// The incident of the device, if the rule causes one.
    pub incident: Option<Incident>,
    /// The private data with which a connection request is rejected.
    pub private_data: Option<&'a RejData>,
    /// The destination address of the packet.
    pub peer: IpAddr,
    /// The payload of the packet, in bytes, if the rule only notes it.
    pub noted_bytes: Option<u32>,
}

impl Fired<'_> {
    /// Returns what happens to a packet, as a verb whose object is the packet.
    pub fn deed(&self) -> String {
        let (fate, mut done) = (self.fate, Vec::new());
        let mut say = |happens: bool, text: String| {
            if happens {
                done.push(text);
            }
        };
        say(self.partition_ns.is_some(), "begins a partition from".to_owned());
        let refusal = fate.refused.and_then(answer_word);
        let is_refused = refusal.is_some() || fate.rejected.is_some();
        let has_more = self.partition_ns.is_some() || self.incident.is_some() || is_refused;
        say(fate.rejected.is_some(), format!("rejects (reason {})", fate.rejected.unwrap_or(0)));
        say(
            self.incident.is_some(),
            self.incident.map_or_else(String::new, |incident| format!("has {incident} happen before")),
        );
        say(fate.lost && !has_more, "loses".to_owned());
        say(refusal.is_some(), format!("answers {} to", refusal.unwrap_or_default()));
        say(fate.notified, "answers cnp to".to_owned());
        say(fate.copies > 0, format!("sends {} more of", fate.copies));
        say(fate.delay_ns > 0, format!("delays by {} us", fate.delay_ns / 1000));
        say(fate.behind_packets > 0, format!("puts behind {} packets", fate.behind_packets));
        say(fate.flips.is_some(), "corrupts".to_owned());
        say(fate.dscp.is_some(), "trims".to_owned());
        say(fate.path_mark.is_some(), "reflects another state of the path in".to_owned());
        say(
            fate.kept_bytes.is_some() && fate.dscp.is_none(),
            format!("cuts to {} bytes", fate.kept_bytes.unwrap_or(0)),
        );
        say(fate.marked, "marks".to_owned());
        say(self.noted_bytes.is_some(), "notes".to_owned());
        done.join(", ")
    }

    /// Returns the note about the packet for a capture.
    pub fn note(&self) -> String {
        let Fired { rule, key, .. } = self;
        format!(
            "fault \"{rule}\" {} {} of message {}, packet {}, transmission {} (queue pair {}, connection {})",
            self.deed(),
            key.class.name(),
            key.message,
            key.packet,
            key.transmission,
            Ordinal(key.qp),
            Ordinal(key.connection)
        )
    }
}

/// A rule that applied to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The call.
    pub key: CallKey<'a>,
    /// The effect of this rule on the call.
    pub fate: CallFate,
}

impl CallFired<'_> {
    /// Returns a sentence that says what the rule did.
    pub fn sentence(&self) -> String {
        let CallFired { rule, key: CallKey { call, ordinal, qp, .. }, fate, .. } = self;
        let on = qp.map_or_else(String::new, |qp| format!(" on queue pair {}", Ordinal(qp)));
        let what = match (fate.errno, fate.incident) {
            (Some(errno), _) => format!("fails {call} with {}", errno_text(errno)),
            (None, Some(incident)) if *call == TIME => {
                return format!("fault \"{rule}\" has {incident} happen after {} us", ordinal / 1000);
            }
            (None, Some(incident)) => format!("has {incident} happen after {call}"),
            (None, None) => format!("delays {call} by {} us", fate.delay_ns / 1000),
        };
        format!("fault \"{rule}\" {what} (call {} of this name{on})", CallOrdinal(*ordinal))
    }
}

/// A rule that applied to a completion.
#[derive(Debug, Clone, Copy)]
pub struct CompletionFired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The completion.
    pub key: &'a CompletionKey,
    /// The effect of this rule on the completion.
    pub fate: &'a CompletionFate,
}

/// A rule that applied to an event of a completion channel.
#[derive(Debug, Clone, Copy)]
pub struct CompletionEventFired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The event.
    pub key: CompletionEventKey,
    /// The effect of this rule on the event.
    pub fate: CompletionEventFate,
}
