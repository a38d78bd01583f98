//! Completions that have another status or are delayed because a fault plan says so.
//!
//! A completion is named by its work request: the n-th that was executed on its work queue. **Invariant**: no
//! rule depends on a time or a thread, except a rule that has a trigger to wait for.

mod decide;
mod rule;

pub use decide::{CompletionFaults, CompletionVerdict};
pub use pumice_model::fates::completion::{
    CompletionClass, CompletionFate, CompletionKey, WorkSide, status_from, status_name,
};
pub use pumice_model::fates::fired::CompletionFired;
pub use rule::{CompletionFault, CompletionRule, CompletionSelector};
