//! Reliability: the packets that have arrived, that are in flight, and that are lost.

mod flight;
#[cfg(any(test, kani))]
mod proofs;
mod receive;
mod retry;
mod window;

pub(super) use flight::{Flight, SentPacket};
pub(super) use receive::{ReceiveReliability, SackCause};
pub(super) use retry::RetryTimer;
pub(super) use window::Placement;
