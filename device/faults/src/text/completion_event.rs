//! Rules about events of completion channels, and what a report says of them, as text.

use pumice_ground::quantity::time_ns;
use serde::{Deserialize, Serialize};

use super::fields::Fields;
use super::kinds::FaultKind;
use super::ordinal::OrdinalField;
use super::units::{is_default, number, ordinals};
use crate::completion_events::{
    CompletionEventFate, CompletionEventFired, CompletionEventKey, CompletionEventRule,
    CompletionEventSelector, RecordedCompletionEvent,
};

/// How long an event waits for more completions, if nothing is said.
const WITHIN_NS: u64 = 10_000_000;

/// The rule that the fields say.
pub(super) fn rule(kind: &FaultKind, fields: &mut Fields) -> Result<CompletionEventRule, String> {
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

/// What a rule did to an event of a completion channel.
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
