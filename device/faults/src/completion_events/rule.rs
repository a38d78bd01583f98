//! Rules about events of completion channels.

use pumice_ground::ordinal::OrdinalSpan;

use crate::calls::matches_tag;
use crate::select::check_ordinals;

/// Which events of completion channels a rule is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionEventSelector {
    /// The tag of the process; `*` at its end stands for anything.
    pub tag: Option<String>,
    /// Ordinals of completion queues in the process.
    pub cq: Option<OrdinalSpan>,
}

/// What happens to an event of a completion channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompletionEventFate {
    /// It comes so much later.
    pub delay_ns: u64,
    /// It waits for so many completions more.
    pub more: u32,
    /// But no longer than this.
    pub within_ns: u64,
}

/// Something that happens to events of completion channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionEventRule {
    /// Which events.
    pub selector: CompletionEventSelector,
    /// What happens to them.
    pub fate: CompletionEventFate,
}

/// Which event of a process it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompletionEventKey {
    /// The ordinal of the completion queue in its process, from 0.
    pub cq: u32,
    /// Its ordinal among the events of the completion queue, from 1.
    pub nth: u64,
}

/// An event of a completion channel to which something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCompletionEvent {
    /// The tag of its process.
    pub tag: String,
    /// Its device, by name; `None`: that of a process with one device.
    pub device: Option<String>,
    /// Which event.
    pub key: CompletionEventKey,
    /// What happened.
    pub fate: CompletionEventFate,
}

impl CompletionEventSelector {
    #[doc(hidden)]
    pub fn is_of(&self, tag: &str) -> bool {
        self.tag.as_deref().is_none_or(|wanted| matches_tag(wanted, tag))
    }
}

impl CompletionEventRule {
    /// Whether the rule makes sense.
    ///
    /// # Errors
    /// It can apply to nothing, or does nothing; the sentence says what to write.
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
