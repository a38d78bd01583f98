//! Events of completion channels that are delayed or merged because a fault plan says so.
//!
//! An event is named by its completion queue, as the n-th that the queue made. How many there are depends on
//! when the program arms and sleeps, which no rule can change. **Invariant**: every delayed event has a
//! latest time, so no program sleeps for ever.

mod decide;
mod rule;

pub use decide::{CompletionEventCounts, CompletionEventFaults};
pub use pumice_model::fates::fired::{CompletionEventFate, CompletionEventFired, CompletionEventKey};
pub use rule::{CompletionEventRule, CompletionEventSelector, RecordedCompletionEvent};
