//! Mistakes of programs that use verbs: the list of checks, and the checker that notifies them.
//!
//! [`Checker`] is sans-IO: it is notified of calls and of the device's events, and asks for nothing but the
//! call stack. It holds what all checks share (`context.rs`) and notifies each check of the list in
//! `checks/mod.rs`, which has state of its own. It records their findings, once for each kind and call site;
//! all state is bounded. `recorded.rs` makes findings of them. Symbols, files and threads are the business of
//! the checker's owner.

mod calls;
mod calls_of_queues;
mod checker;
mod checks;
mod context;
#[cfg(test)]
mod habit_tests;
mod memory;
mod notified;
mod objects;
mod ordering;
mod orders;
mod queues;
pub mod recorded;
#[cfg(test)]
mod report_tests;
#[cfg(test)]
mod tests;

pub use pumice_model::findings::checks as kind;

pub use checker::{CheckSubscriber, Checker};
pub use context::{
    BoundsCallback as WatchBounds, CaptureStack, FillMemory, OwnStack, ReadMemory, SleepCounter, WaitCounter,
    Watchpoints, call_ends, holding, holds_checker, set_holds_checker,
};
pub use kind::{FindingFamily, FindingKind, JUDGED_LIVE, KINDS};
pub use notified::ExplainedFailure;
pub use objects::DeviceTag;
pub use pumice_platform::call_stack::{MAX_FRAMES, Stack};
pub use queues::{CqMade, ModifyFacts, QpMade};
pub use recorded::{Findings, MAX_FINDINGS, RecordedFinding, RelatedCallSite, Suppressions};
