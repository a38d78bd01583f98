//! Timelines: traces combined, so that every work request has its events on one clock.

mod build;
mod clock;
mod evidence;
mod hosts;
mod model;
mod multipath;
mod process;
mod queue_pair;
#[cfg(test)]
mod tests;
mod words;

pub use evidence::{CauseEvidence, FaultFact, RefusedCall};
pub use model::{
    Arrow, Congestion, CongestionKind, Measure, Message, PacketIndex, Receive, RequestEnd, Setback,
    SetbackKind, Timeline, TimelineEvent, TimelineEventKind, TimelineProcess, TracedPacket, TracedQueuePair,
};
pub use multipath::{TracedPath, TracedPaths, TracedPlane};
pub(super) use words::loss_in_words;
