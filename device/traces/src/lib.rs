//! Traces: the form of their files, and what they tell when they are read.
//!
//! A [`TraceReader`] reads a file of records ([`format`](mod@format)). A [`Timeline`] is what one or several
//! traces tell together: processes, their queue pairs, and the moments of each work request, on one clock.
//! [`Reasons`] say of it where the time of slow messages went, [`Causes`] what caused it, [`Differences`] how
//! two runs differ, and requirements ([`require`]) are borne out by it or not.
//!
//! What records a running device, `pumice-instruments` has.

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod diff;
pub mod format;
pub mod require;
mod timeline;
mod why;

pub use diff::{Departure, DepartureKind, Differences};
pub use format::{
    FaultWhat, HeaderError, Item, ReadError, Record, TEXT_BYTES, TraceHeader, TraceReader, VERSION,
};
pub use timeline::{
    Arrow, Congestion, CongestionKind, Evidence, FaultFact, Measure, Message, Moment, MomentKind, Packet,
    PacketIndex, QueuePair, Receive, Refusal, RequestEnd, Setback, SetbackKind, Timeline, TimelineProcess,
};
pub use why::{Cause, CauseKind, Causes, Fate, Group, Part, PartKind, Reasons, Share, Story, Whose};
