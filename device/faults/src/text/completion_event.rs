//! The text form of rules about events of completion channels, and of report lines about them.

use pumice_platform::quantity::time_ns;
use serde::{Deserialize, Serialize};

use super::fields::RuleFields;
use super::kinds::FaultKind;
use super::ordinal::OrdinalField;
use super::units::{is_default, number, ordinals};
use crate::completion_events::{CompletionEventRule, CompletionEventSelector, RecordedCompletionEvent};
use pumice_model::fates::fired::{CompletionEventFate, CompletionEventFired, CompletionEventKey};

/// The longest time that an event waits for more completions if the rule names none, in ns.
const WITHIN_NS: u64 = 10_000_000;

/// Builds the rule that the fields describe.
pub(super) fn rule(kind: &FaultKind, fields: &mut RuleFields) -> Result<CompletionEventRule, String> {
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
