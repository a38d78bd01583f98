//! Switches between the ports of a simulated network: queues, marks, pauses.
//!
//! Every link has a queue at its tail, which is sent at the link's rate, packet by packet. A switch puts what
//! arrives into the queue of the link that leads on; a queue that is long marks what joins it, and one
//! without room loses it. With pauses, a switch that holds too much of what one link brought stops the sender
//! at that link's tail until it holds less. All of it is events in one order, so that a run is a function of
//! what is sent.

mod machine;
#[cfg(test)]
mod tests;

pub(super) use machine::{Switches, Transit, TransitOutcome};
