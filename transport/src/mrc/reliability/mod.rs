//! Reliability: the packets that have arrived, that are in flight, and that are lost.

mod flight;
#[cfg(any(test, kani))]
mod proofs;
mod receive;

pub(super) use flight::{Flight, RetryTimer, SentPacket};
pub(super) use receive::{Placement, ReceiveReliability, SackCause};
