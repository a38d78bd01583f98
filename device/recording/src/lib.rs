//! Traces: the format of their files, and the analysis of what they record.
//!
//! A [`TraceReader`] reads a file of records ([`format`](mod@format)). A [`Timeline`] combines one or several
//! traces: processes, their queue pairs, and the events of each work request, on one clock.
//! [`MessageStories`] says where the time of slow messages went, [`Causes`] what caused it, [`RunBounds`]
//! what bounds a run, [`RunDifferences`] how two runs differ, [`RunComparison`] what became slower, and
//! requirements ([`require`]) are checked against a timeline.
//!
//! The crate `pumice-analysis` records the traces of a running device.

// Input from the network, arguments or shared memory must never panic the program.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod capture;
mod compare;
mod diff;
pub mod format;
pub mod recorder;
pub mod require;
mod steps;
mod timeline;
mod why;

pub use compare::{COMPARISON_KINDS, MessageGroup, RunComparison};
pub use diff::{Divergence, DivergenceKind, RunDifferences};
pub use format::{
    HeaderError, Item, ReadError, Record, TEXT_BYTES, TraceHeader, TraceReader, TracedFaultAction, VERSION,
};
pub use timeline::{
    Arrow, CauseEvidence, Congestion, CongestionKind, FaultFact, Measure, Message, PacketIndex, Receive,
    RefusedCall, RequestEnd, Setback, SetbackKind, Timeline, TimelineEvent, TimelineEventKind,
    TimelineProcess, TracedPacket, TracedPath, TracedPaths, TracedPlane, TracedQueuePair,
};
pub use why::{
    CauseGroup, CauseKind, Causes, MessageCause, MessageStories, MessageStory, PacketFate, PartKind,
    PlaneCost, Responsible, RunBounds, TimePart, TimeShare,
};
