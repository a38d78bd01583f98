//! What programs do wrong with verbs: the list of checks, and the checker that tells them.
//!
//! [`Checker`] is sans-IO: it is told of calls and of the device's events, and asks for nothing but the call
//! stack. It keeps what all checks share (`context.rs`) and tells each check of the list in `checks/mod.rs`,
//! which has state of its own. What they find it records, once for each kind and call site; everything that
//! is remembered is bounded. [`report`] makes findings of it. Symbols, files and threads are the business of
//! those who own it.

mod calls;
mod calls_of_events;
mod calls_of_queues;
mod checker;
mod checks;
mod context;
mod device;
mod facts;
mod holder;
mod kept;
mod means;
mod memory;
mod objects;
mod of_device;
mod ordering;
mod orders;
mod queues;
mod recorded;
pub mod report;
#[cfg(test)]
mod report_tests;
mod subscriber;
mod suppress;
#[cfg(test)]
mod tests;
mod told;

pub use pumice_events::findings::checks as kind;

pub use checker::Checker;
pub use context::Capture;
pub use facts::{CqMade, ModifyFacts, QpMade};
pub use holder::{call_ends, holding, holds_checker, set_holds_checker};
pub use kind::{Family, FindingKind, JUDGED_LIVE, KINDS};
pub use means::{
    Fill as FillMemory, OwnStack, Read as ReadMemory, Switches, Watch as WatchBounds, Watchpoints,
};
pub use of_device::OfDevice;
pub use pumice_ground::call_stack::{MAX_FRAMES, Stack};
pub use recorded::{Findings, MAX_FINDINGS, Recorded, Related};
pub use subscriber::CheckSubscriber;
pub use suppress::Suppressions;
pub use told::Effect;
