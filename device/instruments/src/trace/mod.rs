//! What happened to every message, as a file: `--trace`.
//!
//! A [`TraceSubscriber`] listens to the device's events and writes them down in short, in the form that
//! [`pumice_traces::format`] has. What reads traces is in that crate, too.
//!
//! The file is bounded: beyond its limit records are counted and left out. A thread writes what was recorded
//! some milliseconds later, so that a process that is killed leaves all but its last moments behind.

mod fault_detail;
mod file;
mod naming;
mod queue;
mod subscriber;
#[cfg(test)]
mod tests;
mod waiting;
mod ways;

pub use file::create_private;
pub use subscriber::{ClockBase, DEFAULT_LIMIT_BYTES, TraceFile, TraceNetwork, TraceSource, TraceSubscriber};
