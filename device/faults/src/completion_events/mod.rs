//! Events of completion channels that are delayed or merged because a fault plan says so.
//!
//! An event is named by its completion queue, as the n-th that the queue made. How many there are depends on
//! when the program arms and sleeps, which no rule can change. **Invariant**: every delayed event has a
//! latest time, so no program sleeps for ever.
//!
//! Rules about events of completion channels.

use pumice_platform::ordinal::OrdinalSpan;

use crate::calls::matches_tag;
use crate::select::check_ordinals;

/// Selects the events of completion channels that a rule is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionEventSelector {
    /// The tag of the process; `*` at its end stands for anything.
    pub tag: Option<String>,
    /// Ordinals of completion queues in the process; `None`: all.
    pub cq: Option<OrdinalSpan>,
}

/// A rule about events of completion channels: which ones, and what happens to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionEventRule {
    /// The events that the rule is about.
    pub selector: CompletionEventSelector,
    /// The fate of these events.
    pub fate: CompletionEventFate,
}

/// An event of a completion channel that a report says a rule applied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCompletionEvent {
    /// The tag of the process.
    pub tag: String,
    /// The name of the device; `None`: the only device of the process.
    pub device: Option<String>,
    /// The identity of the event.
    pub key: CompletionEventKey,
    /// The fate of the event.
    pub fate: CompletionEventFate,
}

impl CompletionEventSelector {
    #[doc(hidden)]
    pub fn is_of(&self, tag: &str) -> bool {
        self.tag.as_deref().is_none_or(|wanted| matches_tag(wanted, tag))
    }
}

impl CompletionEventRule {
    /// Checks that the rule can apply to an event and does something.
    ///
    /// # Errors
    /// The rule can apply to nothing, or does nothing; the sentence says what to write.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_ordinals("cq", self.selector.cq)?;
        let CompletionEventFate { delay_ns, more, within_ns } = self.fate;
        if more > 0 && within_ns == 0 {
            return Err("an event that waits for 0 ns does not wait: write within=10ms".to_owned());
        }
        if delay_ns == 0 && more == 0 {
            return Err("it changes nothing: write a time above 0, or count=2".to_owned());
        }
        Ok(())
    }
}

mod decide;

pub use decide::{CompletionEventCounts, CompletionEventFaults};
pub use pumice_model::fates::fired::{CompletionEventFate, CompletionEventFired, CompletionEventKey};
