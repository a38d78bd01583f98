//! Mistakes of programs that use verbs: the list of checks, and the checker that notifies them.
//!
//! [`Checker`] is sans-IO: it is notified of calls and of the device's events, and asks for nothing but the
//! call stack. It holds what all checks share (`context.rs`) and notifies each check of the list in
//! `checks/mod.rs`, which has state of its own. It records their findings, once for each kind and call site;
//! all state is bounded. [`report`] makes findings of them. Symbols, files and threads are the business of
//! the checker's owner.

mod callbacks;
mod calls;
mod calls_of_events;
mod calls_of_queues;
mod checker;
mod checks;
mod context;
mod device;
mod device_tag;
mod facts;
#[cfg(test)]
mod habit_tests;
mod holder;
mod memory;
mod notified;
mod objects;
mod ordering;
mod orders;
mod per_queue;
mod queues;
mod recorded;
pub mod report;
#[cfg(test)]
mod report_tests;
mod subscriber;
mod suppress;
#[cfg(test)]
mod tests;

pub use pumice_model::findings::checks as kind;

pub use callbacks::{
    BoundsCallback as WatchBounds, FillMemory, OwnStack, ReadMemory, SleepCounter, WaitCounter, Watchpoints,
};
pub use checker::Checker;
pub use context::CaptureStack;
pub use device_tag::DeviceTag;
pub use facts::{CqMade, ModifyFacts, QpMade};
pub use holder::{call_ends, holding, holds_checker, set_holds_checker};
pub use kind::{FindingFamily, FindingKind, JUDGED_LIVE, KINDS};
pub use notified::ExplainedFailure;
pub use pumice_platform::call_stack::{MAX_FRAMES, Stack};
pub use recorded::{Findings, MAX_FINDINGS, RecordedFinding, RelatedCallSite};
pub use subscriber::CheckSubscriber;
pub use suppress::Suppressions;
