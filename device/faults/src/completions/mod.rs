//! Completions that come with another status, or late, on purpose.
//!
//! A completion is named by its work request: the n-th that was carried out on its work queue. **Invariant**:
//! no rule asks for a time or a thread, except for one that is told to wait for something.

mod decide;
mod key;
mod rule;
mod status;

pub use decide::CompletionFired;
pub use decide::{CompletionFaults, Verdict};
pub use key::{CompletionClass, CompletionFate, CompletionKey, WorkSide};
pub use rule::{CompletionFault, CompletionRule, CompletionSelector};
pub use status::{status_from, status_name};
