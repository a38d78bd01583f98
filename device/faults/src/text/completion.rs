//! The text forms of rules about completions and about events of completion channels, and of report lines
//! about them.

use pumice_model::fates::completion::{
    CompletionClass, CompletionFate, CompletionKey, WorkSide, status_from, status_name,
};
use pumice_model::fates::fired::{
    CompletionEventFate, CompletionEventFired, CompletionEventKey, CompletionFired,
};
use pumice_platform::quantity::time_ns;
use serde::{Deserialize, Serialize};

use super::fields::{OrdinalField, RuleFields, unknown};
use super::kinds::FaultKind;
use super::units::{is_default, number, ordinals, span, trigger};
use crate::completion_events::{CompletionEventRule, CompletionEventSelector, RecordedCompletionEvent};
use crate::completions::{CompletionFault, CompletionRule, CompletionSelector};
use crate::plan::RecordedCompletion;

/// Builds the rule that the fields describe.
pub(super) fn rule(kind: &FaultKind, fields: &mut RuleFields) -> Result<CompletionRule, String> {
    let selector = selector(fields)?;
    let fault = if kind.name == "complete" {
        let status = fields.take_as("status", status_from)?;
        let status = status.ok_or("it does not say how: write status=retry-exceeded, or another status")?;
        CompletionFault::End { status, vendor_err: fields.take_as("vendor-err", number)?.unwrap_or(0) }
    } else {
        let delay_ns = fields.take_as("time", time_ns)?.unwrap_or(0);
        CompletionFault::Late { delay_ns, until: fields.take_as("until", trigger)? }
    };
    Ok(CompletionRule { selector, fault })
}

fn selector(fields: &mut RuleFields) -> Result<CompletionSelector, String> {
    let side = |name: &str| {
        WorkSide::by_name(name).ok_or_else(|| unknown(name, WorkSide::ALL.iter().map(|one| one.name())))
    };
    let class = |name: &str| {
        CompletionClass::by_name(name)
            .ok_or_else(|| unknown(name, CompletionClass::ALL.iter().map(|one| one.name())))
    };
    Ok(CompletionSelector {
        tag: fields.take("tag"),
        qp: fields.take_as("qp", ordinals)?,
        connection: fields.take_as("connection", span)?,
        side: fields.take_as("side", side)?,
        opcode: fields.take_list("opcode", class)?,
        message: fields.take_as("message", span)?,
    })
}

/// A line of a report: what a rule did to a completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionLine {
    pub(super) rule: String,
    pub(super) tag: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<String>,
    /// The name of what the work request did.
    completion: String,
    qp: OrdinalField,
    connection: u32,
    message: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    vendor_err: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    delay_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

impl CompletionLine {
    pub(super) fn of(fired: &CompletionFired<'_>) -> CompletionLine {
        let (key, fate) = (fired.key, fired.fate);
        CompletionLine {
            rule: fired.rule.to_owned(),
            tag: fired.tag.to_owned(),
            device: None,
            completion: key.class.name().to_owned(),
            qp: OrdinalField(key.qp),
            connection: key.connection,
            message: key.message,
            status: fate.status.map(|status| status_name(status).to_owned()),
            vendor_err: fate.vendor_err,
            delay_ns: fate.delay_ns,
            until: fate.until.as_ref().map(ToString::to_string),
        }
    }

    pub(super) fn recorded(self) -> Result<RecordedCompletion, String> {
        let class = CompletionClass::by_name(&self.completion).ok_or_else(|| {
            format!("{} is no kind of completion: this is no line of a report", self.completion)
        })?;
        let (qp, connection, message) = (self.qp.0, self.connection, self.message);
        let fate = CompletionFate {
            status: self.status.as_deref().map(status_from).transpose()?,
            vendor_err: self.vendor_err,
            delay_ns: self.delay_ns,
            until: self.until.as_deref().map(trigger).transpose()?,
        };
        let key = CompletionKey { qp, connection, class, message };
        Ok(RecordedCompletion { tag: self.tag, device: self.device, key, fate })
    }
}

/// The longest time that an event waits for more completions if the rule names none, in ns.
const WITHIN_NS: u64 = 10_000_000;

/// Builds the rule that the fields describe.
pub(super) fn rule_about_event(
    kind: &FaultKind,
    fields: &mut RuleFields,
) -> Result<CompletionEventRule, String> {
    let selector = CompletionEventSelector { tag: fields.take("tag"), cq: fields.take_as("cq", ordinals)? };
    let fate = if kind.name == "late-event" {
        let delay_ns = fields.take_as("time", time_ns)?.ok_or("it does not say how late: write time=5ms")?;
        CompletionEventFate { delay_ns, ..CompletionEventFate::default() }
    } else {
        let count: u32 = fields.take_as("count", number)?.unwrap_or(2);
        let within_ns = fields.take_as("within", time_ns)?.unwrap_or(WITHIN_NS);
        CompletionEventFate { delay_ns: 0, more: count.saturating_sub(1), within_ns }
    };
    Ok(CompletionEventRule { selector, fate })
}

/// A line of a report: what a rule did to an event of a completion channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionEventLine {
    pub(super) rule: String,
    pub(super) tag: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<String>,
    cq: OrdinalField,
    nth: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    delay_ns: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    more: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    within_ns: u64,
}

impl CompletionEventLine {
    pub(super) fn of(fired: &CompletionEventFired<'_>) -> CompletionEventLine {
        let CompletionEventFired { rule, tag, key, fate } = *fired;
        CompletionEventLine {
            rule: rule.to_owned(),
            tag: tag.to_owned(),
            device: None,
            cq: OrdinalField(key.cq),
            nth: key.nth,
            delay_ns: fate.delay_ns,
            more: fate.more,
            within_ns: fate.within_ns,
        }
    }

    pub(super) fn recorded(self) -> RecordedCompletionEvent {
        let CompletionEventLine { tag, device, cq, nth, delay_ns, more, within_ns, .. } = self;
        let fate = CompletionEventFate { delay_ns, more, within_ns };
        RecordedCompletionEvent { tag, device, key: CompletionEventKey { cq: cq.0, nth }, fate }
    }
}
