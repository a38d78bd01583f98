//! What traces tell, put together: every work request with its moments, on one clock.

mod arrows;
mod build;
mod clock;
mod hosts;
mod model;
mod process;
mod queue_pair;
mod room;
#[cfg(test)]
mod tests;
mod words;

pub use model::{
    Arrow, Measure, Message, Moment, MomentKind, Packet, PacketIndex, QueuePair, Receive, RequestEnd,
    Setback, SetbackKind, Timeline, TimelineProcess,
};
