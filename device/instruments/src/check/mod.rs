//! What programs do wrong with verbs: the table of checks, and the checker that finds them.
//!
//! [`Checker`] is sans-IO: it is told of calls and of the device's events, and asks for nothing but the call
//! stack. What it finds it records, once for each kind and call site; everything that it remembers is
//! bounded. [`report`] makes findings of it. Symbols, files and threads are the business of those who own it.

mod asleep;
mod checker;
mod completions;
mod connections;
mod events;
mod holder;
pub mod kind;
mod memory;
mod objects;
mod of_device;
mod ordering;
mod orders;
mod process;
mod queues;
mod recorded;
pub mod report;
#[cfg(test)]
mod report_tests;
mod slow;
mod stack;
mod subscriber;
mod suppress;
#[cfg(test)]
mod tests;
mod threads;
mod unready;

pub use checker::{Capture, Checker};
pub use completions::CqMade;
pub use connections::{ModifyFacts, QpMade};
pub use holder::{holding, holds_checker, set_holds_checker};
pub use kind::{Family, FindingKind, KINDS};
pub use memory::{Fill as FillMemory, OwnStack, Read as ReadMemory, Watch as WatchBounds};
pub use of_device::OfDevice;
pub use orders::Switches;
pub use recorded::{Findings, MAX_FINDINGS, Recorded, Related};
pub use stack::{MAX_FRAMES, Stack};
pub use subscriber::CheckSubscriber;
pub use suppress::Suppressions;
