//! Events of completion channels that come late, or together, on purpose.
//!
//! An event is named by its completion queue, as the n-th that the queue made. How many there are depends on
//! when the program arms and sleeps, which no rule can change. **Invariant**: every event that is put off has
//! a time by which it comes, so no program sleeps for ever.

mod decide;
mod rule;

pub use decide::CompletionEventFired;
pub use decide::{CompletionEventCounts, CompletionEventFaults};
pub use rule::{
    CompletionEventFate, CompletionEventKey, CompletionEventRule, CompletionEventSelector,
    RecordedCompletionEvent,
};
