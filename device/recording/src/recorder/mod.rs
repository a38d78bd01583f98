//! The recorder of traces: the history of every message, as a file (`--trace`).
//!
//! A [`TraceSubscriber`] subscribes to the device's events and records them in the compact form that
//! [`crate::format`] defines. The code that reads traces is in that crate, too.
//!
//! The file is bounded: beyond its limit records are counted and left out. A thread writes the records some
//! milliseconds later, so that a process that is killed leaves all but its last moments behind.

mod fault_detail;
mod queue;
mod subscriber;
#[cfg(test)]
mod tests;
mod waiting;

pub use subscriber::{ClockBase, DEFAULT_LIMIT_BYTES, TraceFile, TraceNetwork, TraceSource, TraceSubscriber};
pub use waiting::create_private;
