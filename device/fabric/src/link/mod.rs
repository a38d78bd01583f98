//! Links: the effect of a cable and the queue in front of it on packets.
//!
//! [`LinkQueue`] is one direction as a value. [`LinkPort`] holds the packets of a port until they have
//! passed.

mod fetch;
mod held;
mod inbound;
mod outbound;
mod port;
mod tally;
mod wire;

pub use fetch::FetchPort;
pub(crate) use held::HeldBatch;
pub(crate) use outbound::{QUEUE_BYTES, RELEASE_ATTEMPTS, send};
pub(crate) use port::GRAIN_NS;
pub use port::LinkPort;
pub(crate) use tally::{DropTally, MAX_HELD_BYTES};
pub(crate) use wire::ip_overhead_bytes;
pub use wire::wire_bytes;
