//! Reports: JSON lines that say what happened, and are a plan by which it happens again.
//!
//! A process begins its report with the rules that concern it. Then comes a line for each packet, call or
//! completion that a rule applied to. At the end of the process a line names the rules that never applied; a
//! process that is killed leaves none.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pumice_model::fates::fired::{
    CallFired, CompletionEventFired, CompletionFired, Fired, errno_from, errno_text, private_data,
    private_data_text, word_of,
};
use pumice_model::fates::{CallFate, PacketClass, PacketKey, PacketService, side_by_name, side_name};
use pumice_platform::link_settings::{LinkSettings, Speed, Width};
use pumice_transport::types::{Fate, Flips};
use serde::{Deserialize, Serialize};

use super::completion::{CompletionEventLine, CompletionLine};
use super::fields::{NthField, OrdinalField, TextError};
use super::units::is_default;
use crate::answer::refusal;
use crate::plan::{FaultPlan, Recorded, RecordedCall, Recording, Rule, RuleConditions, What};
use pumice_model::fates::details::Details;
use pumice_model::fates::incident::Incident;
use pumice_model::fates::live::RuleChange;

/// An unlimited duration, as a number of nanoseconds.
const FOR_EVER_NS: u64 = u64::MAX;

/// A line of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ReportLine {
    /// The beginning of a process's report.
    Begin {
        /// The tag of the process.
        process: String,
        /// The seed of its plan.
        seed: u64,
        /// The names of the rules that concern it.
        rules: Vec<String>,
        /// The name of the device, if the process has several: each has a report of its own within this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
    },
    /// The end of a process.
    End {
        /// The tag of the process.
        process: String,
        /// The names of the rules that never applied.
        never: Vec<String>,
        /// The name of the device, if the process has several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
    },
    /// A rule was added, paused, resumed or cleared while the program ran.
    Live(Box<LiveLine>),
    /// A rule applied to a call.
    Call(CallLine),
    /// A rule applied to a completion.
    Completion(CompletionLine),
    /// A rule applied to an event of a completion channel.
    CompletionEvent(CompletionEventLine),
    /// A rule applied to a packet.
    Packet(Box<PacketLine>),
}

/// A line of a report: a change of a rule while the program ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveLine {
    process: String,
    seed: u64,
    /// The change: `added`, `paused`, `resumed` or `cleared`.
    live: String,
    rule: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<String>,
    after_packets: u64,
    after_queue_pairs: u32,
    note: String,
}

/// The note that a report has beside each change of a plan while the program ran.
const LIVE_NOTE: &str = "this moment is not reproducible";

/// A line of a report: what a rule did to a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PacketLine {
    pub(super) rule: String,
    pub(super) tag: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<String>,
    pub(super) service: String,
    pub(super) qp: OrdinalField,
    pub(super) connection: OrdinalField,
    pub(super) side: String,
    pub(super) opcode: String,
    pub(super) message: u64,
    pub(super) packet: u64,
    pub(super) transmission: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer: Option<IpAddr>,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) destination: u32,
    #[serde(skip_serializing_if = "is_default")]
    lost: bool,
    #[serde(skip_serializing_if = "is_default")]
    marked: bool,
    #[serde(skip_serializing_if = "is_default")]
    copies: u8,
    #[serde(skip_serializing_if = "is_default")]
    behind_packets: u16,
    #[serde(skip_serializing_if = "is_default")]
    behind_ns: u64,
    #[serde(skip_serializing_if = "is_default")]
    delay_ns: u64,
    #[serde(skip_serializing_if = "is_default")]
    flipped_bits: u16,
    #[serde(skip_serializing_if = "is_default")]
    first_bit: u64,
    #[serde(skip_serializing_if = "is_default")]
    sealed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_bytes: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dscp: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_mark: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answered: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timer_code: Option<u8>,
    #[serde(skip_serializing_if = "is_default")]
    notified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<u16>,
    #[serde(skip_serializing_if = "is_default")]
    unanswered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    for_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<Speed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u8>,
    /// The changed link settings, in the syntax of `PUMICE_LINK`.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_ns: Option<u64>,
    /// The length of a packet that was noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u32>,
}

/// A line of a report: what a rule did to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallLine {
    rule: String,
    pub(super) tag: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    call: String,
    nth: NthField,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qp: Option<OrdinalField>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    errno: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    delay_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    speed: Option<Speed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    width: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<u8>,
    /// The changed link settings, in the syntax of `PUMICE_LINK`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<String>,
}

impl CallLine {
    fn recorded(self) -> Result<RecordedCall, String> {
        let errno = self.errno.as_deref().map(errno_from).transpose()?;
        let details = Details {
            object: self.object,
            to: self.to,
            for_ns: self.for_ns,
            speed: self.speed,
            width: self.width.map(Width::new).transpose()?,
            port: self.port,
            link: self.link.as_deref().map(LinkSettings::parse).transpose()?,
        };
        let incident = self.event.map(|word| Incident::of(&word, details)).transpose()?;
        let fate = CallFate { errno, delay_ns: self.delay_ns, incident };
        let CallLine { tag, device, call, nth, qp, .. } = self;
        Ok(RecordedCall { tag, device, call, nth: nth.0, qp: qp.map(|qp| qp.0), fate })
    }
}

/// The summary of a report about one rule, for all processes together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of times that the rule applied.
    pub applied: u64,
}

/// Returns a summary for each rule of a report, by name.
///
/// # Errors
/// A line is none of a report.
pub fn summaries(text: &str) -> Result<BTreeMap<String, Summary>, TextError> {
    let mut summaries = BTreeMap::<String, Summary>::new();
    for (_, line) in lines(text)? {
        match line {
            ReportLine::Begin { rules: names, .. } | ReportLine::End { never: names, .. } => {
                for name in names {
                    summaries.entry(name).or_default();
                }
            }
            ReportLine::Live(line) => {
                summaries.entry(line.rule).or_default();
            }
            ReportLine::Call(line) => summaries.entry(line.rule).or_default().applied += 1,
            ReportLine::Completion(line) => summaries.entry(line.rule).or_default().applied += 1,
            ReportLine::CompletionEvent(line) => summaries.entry(line.rule).or_default().applied += 1,
            ReportLine::Packet(line) => summaries.entry(line.rule).or_default().applied += 1,
        }
    }
    Ok(summaries)
}

/// Returns the lines of a report, with their numbers.
pub(super) fn lines(text: &str) -> Result<Vec<(usize, ReportLine)>, TextError> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line = serde_json::from_str(line).map_err(|_| TextError {
            line: Some(index + 1),
            problem: "it is no line of a report: give a file that --fault-report has written".to_owned(),
        })?;
        found.push((index + 1, line));
    }
    Ok(found)
}

/// Returns the plan that a report is.
pub(super) fn plan(text: &str, seed: u64) -> Result<FaultPlan, TextError> {
    let mut rules: BTreeMap<String, Recording> = BTreeMap::new();
    let mut seed = seed;
    for (number, line) in lines(text)? {
        match line {
            ReportLine::Begin { process, seed: of_process, rules: names, .. } => {
                seed = of_process;
                for name in names {
                    rules.entry(name).or_default().tags.insert(process.clone());
                }
            }
            ReportLine::End { .. } => {}
            ReportLine::Live(line) => {
                // The effects of the rule follow, packet by packet.
                seed = line.seed;
                rules.entry(line.rule).or_default().tags.insert(line.process);
            }
            ReportLine::Call(line) => {
                let recording = rules.entry(line.rule.clone()).or_default();
                recording.tags.insert(line.tag.clone());
                let call = line.recorded().map_err(|problem| TextError { line: Some(number), problem })?;
                recording.calls.push(call);
            }
            ReportLine::CompletionEvent(line) => {
                let recording = rules.entry(line.rule.clone()).or_default();
                recording.tags.insert(line.tag.clone());
                recording.completion_events.push(line.recorded());
            }
            ReportLine::Completion(line) => {
                let recording = rules.entry(line.rule.clone()).or_default();
                recording.tags.insert(line.tag.clone());
                let one = line.recorded().map_err(|problem| TextError { line: Some(number), problem })?;
                recording.completions.push(one);
            }
            ReportLine::Packet(line) => {
                let (name, tag) = (line.rule.clone(), line.tag.clone());
                let packet = line.recorded().map_err(|problem| TextError { line: Some(number), problem })?;
                let recording = rules.entry(name).or_default();
                recording.tags.insert(tag);
                recording.packets.push(packet);
            }
        }
    }
    let rule = |(name, recording)| {
        let (device, after, when) = (None, None, RuleConditions::default());
        Rule { name, device, after, when, what: What::Recorded(recording) }
    };
    Ok(rules.into_iter().map(rule).fold(FaultPlan::seeded(seed), FaultPlan::with))
}

impl ReportLine {
    /// Returns the line with the name of a device, for a process that has several.
    #[must_use]
    pub fn on(mut self, name: Option<&str>) -> ReportLine {
        let device = match &mut self {
            ReportLine::Begin { device, .. } | ReportLine::End { device, .. } => device,
            ReportLine::Live(line) => &mut line.device,
            ReportLine::Call(line) => &mut line.device,
            ReportLine::Completion(line) => &mut line.device,
            ReportLine::CompletionEvent(line) => &mut line.device,
            ReportLine::Packet(line) => &mut line.device,
        };
        *device = name.map(str::to_owned);
        self
    }

    /// Returns the line for a rule that applied to a packet.
    pub fn of(fired: &Fired<'_>) -> ReportLine {
        let (key, fate) = (fired.key, fired.fate);
        let flips = fate.flips.unwrap_or(Flips { count: 0, first: 0, sealed: false });
        let refused = fate.refused.and_then(word_of);
        let details = fired.incident.map(|incident| incident.details()).unwrap_or_default();
        ReportLine::Packet(Box::new(PacketLine {
            rule: fired.rule.to_owned(),
            tag: fired.tag.to_owned(),
            device: None,
            service: key.service.name().to_owned(),
            qp: OrdinalField(key.qp),
            connection: OrdinalField(key.connection),
            side: side_name(key.side).to_owned(),
            opcode: key.class.name().to_owned(),
            message: key.message,
            packet: key.packet,
            transmission: key.transmission,
            peer: key.peer,
            destination: key.destination,
            lost: fate.lost,
            marked: fate.marked,
            copies: fate.copies,
            behind_packets: fate.behind_packets,
            behind_ns: fate.behind_ns,
            delay_ns: fate.delay_ns,
            flipped_bits: flips.count,
            first_bit: flips.first,
            sealed: flips.sealed,
            kept_bytes: fate.kept_bytes,
            dscp: fate.dscp,
            path_mark: fate.path_mark,
            answered: refused.map(|(word, _)| word.to_owned()),
            timer_code: refused.and_then(|(_, timer_code)| timer_code),
            notified: fate.notified,
            rejected: fate.rejected,
            unanswered: fate.unanswered,
            private_data: fired.private_data.and_then(|data| private_data_text(data)),
            event: fired.incident.map(|incident| incident.word().to_owned()),
            object: details.object,
            to: details.to,
            for_ns: details.for_ns,
            speed: details.speed,
            width: details.width.map(Width::lanes),
            port: details.port,
            link: details.link.map(|link| link.to_string()),
            partition_ns: fired.partition_ns.map(|for_ns| for_ns.unwrap_or(FOR_EVER_NS)),
            bytes: fired.noted_bytes,
        }))
    }

    /// Returns the line for a change of a rule while the program ran.
    pub fn of_change(change: &RuleChange<'_>) -> ReportLine {
        ReportLine::Live(Box::new(LiveLine {
            process: change.tag.to_owned(),
            seed: change.seed,
            live: change.what.to_owned(),
            rule: change.rule.to_owned(),
            device: None,
            line: change.line.map(str::to_owned),
            after_packets: change.after_packets,
            after_queue_pairs: change.after_queue_pairs,
            note: LIVE_NOTE.to_owned(),
        }))
    }

    /// Returns the line for a rule that applied to a call.
    pub fn of_call(fired: &CallFired<'_>) -> ReportLine {
        let incident = fired.fate.incident;
        let details = incident.map(|incident| incident.details()).unwrap_or_default();
        ReportLine::Call(CallLine {
            rule: fired.rule.to_owned(),
            tag: fired.tag.to_owned(),
            device: None,
            call: fired.key.call.to_owned(),
            nth: NthField(fired.key.ordinal),
            qp: fired.key.qp.map(OrdinalField),
            errno: fired.fate.errno.map(errno_text),
            delay_ns: fired.fate.delay_ns,
            event: incident.map(|incident| incident.word().to_owned()),
            object: details.object,
            to: details.to,
            for_ns: details.for_ns,
            speed: details.speed,
            width: details.width.map(Width::lanes),
            port: details.port,
            link: details.link.map(|link| link.to_string()),
        })
    }

    /// Returns the line for a rule that applied to a completion.
    pub fn of_completion(fired: &CompletionFired<'_>) -> ReportLine {
        ReportLine::Completion(CompletionLine::of(fired))
    }

    /// Returns the line for a rule that applied to an event of a completion channel.
    pub fn of_completion_event(fired: &CompletionEventFired<'_>) -> ReportLine {
        ReportLine::CompletionEvent(CompletionEventLine::of(fired))
    }

    /// Returns the line as JSON text, with a line break at its end.
    pub fn text(&self) -> String {
        // Every field of the line can be written as JSON.
        serde_json::to_string(self).map_or_else(|_| String::new(), |text| text + "\n")
    }
}

impl PacketLine {
    fn recorded(self) -> Result<Recorded, String> {
        let unknown = |what: &str, name: &str| format!("{name} is no {what}: this is no line of a report");
        let flips = Flips { count: self.flipped_bits, first: self.first_bit, sealed: self.sealed };
        let details = Details {
            object: self.object,
            to: self.to,
            for_ns: self.for_ns,
            speed: self.speed,
            width: self.width.map(Width::new).transpose()?,
            port: self.port,
            link: self.link.as_deref().map(LinkSettings::parse).transpose()?,
        };
        let incident = self.event.map(|word| Incident::of(&word, details)).transpose()?;
        Ok(Recorded {
            key: PacketKey {
                service: PacketService::by_name(&self.service)
                    .ok_or_else(|| unknown("service", &self.service))?,
                qp: self.qp.0,
                connection: self.connection.0,
                side: side_by_name(&self.side).ok_or_else(|| unknown("side", &self.side))?,
                class: PacketClass::by_name(&self.opcode).ok_or_else(|| unknown("opcode", &self.opcode))?,
                message: self.message,
                packet: self.packet,
                peer: self.peer,
                destination: self.destination,
                transmission: self.transmission,
            },
            fate: Fate {
                lost: self.lost,
                marked: self.marked,
                copies: self.copies,
                behind_packets: self.behind_packets,
                behind_ns: self.behind_ns,
                delay_ns: self.delay_ns,
                flips: (flips.count > 0).then_some(flips),
                kept_bytes: self.kept_bytes,
                dscp: self.dscp,
                path_mark: self.path_mark,
                refused: self.answered.map(|word| refusal(&word, self.timer_code)).transpose()?,
                notified: self.notified,
                halted: self.lost && incident.is_some(),
                note: 0,
                rejected: self.rejected,
                unanswered: self.unanswered,
            },
            incident,
            private_data: self.private_data.as_deref().map(private_data).transpose()?.map(Box::new),
            partition_ns: self.partition_ns.map(|ns| (ns != FOR_EVER_NS).then_some(ns)),
            noted: self.bytes.is_some(),
            tag: self.tag,
            device: self.device,
        })
    }
}
