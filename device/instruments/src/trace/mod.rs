//! What happened to every message, as a file: `--trace`.
//!
//! A [`TraceSubscriber`] listens to the device's events and writes them down in short; a [`TraceReader`]
//! reads such a file again; a damaged file does no harm. The file is a [`TraceHeader`] and then records, each
//! with the time that passed since the one before it. What a record holds stands in one list ([`Record`]),
//! from which both writing and reading follow.
//!
//! A [`Timeline`] is what one or several traces tell together: processes, their queue pairs, and the moments
//! of each work request, on one clock. [`Reasons`] say of it where the time of slow messages went.
//!
//! The file is bounded: beyond its limit records are counted and left out. A thread writes what was recorded
//! some milliseconds later, so that a process that is killed leaves all but its last moments behind.

mod decode;
mod diff;
mod encode;
mod fault_detail;
mod field;
mod file;
mod header;
mod naming;
mod queue;
mod reader;
mod record;
pub mod require;
mod subscriber;
#[cfg(test)]
mod tests;
mod timeline;
mod waiting;
mod ways;
mod why;

pub use diff::{Departure, DepartureKind, Differences};
pub use fault_detail::FaultWhat;
pub use field::TEXT_BYTES;
pub use file::create_private;
pub use header::{HeaderError, TraceHeader, VERSION};
pub use reader::{Item, ReadError, TraceReader};
pub use record::Record;
pub use subscriber::{DEFAULT_LIMIT_BYTES, TraceFile, TraceNetwork, TraceSource, TraceSubscriber};

pub use timeline::{
    Arrow, Congestion, CongestionKind, Evidence, FaultFact, Measure, Message, Moment, MomentKind, Packet,
    PacketIndex, QueuePair, Receive, Refusal, RequestEnd, Setback, SetbackKind, Timeline, TimelineProcess,
};

pub use why::{Cause, CauseKind, Causes, Fate, Group, Part, PartKind, Reasons, Share, Story, Whose};

pub use subscriber::ClockBase;
