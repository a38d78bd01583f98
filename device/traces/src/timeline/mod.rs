//! What traces tell, put together: every work request with its moments, on one clock.

mod arrows;
mod build;
mod clock;
mod evidence;
mod hosts;
mod model;
mod process;
mod queue_pair;
mod room;
#[cfg(test)]
mod tests;
mod words;

pub use evidence::{Evidence, FaultFact, Refusal};
pub use model::{
    Arrow, Congestion, CongestionKind, Measure, Message, Moment, MomentKind, Packet, PacketIndex, QueuePair,
    Receive, RequestEnd, Setback, SetbackKind, Timeline, TimelineProcess,
};
