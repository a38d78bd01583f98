//! Links: what a cable and the queue in front of it do to packets.

mod model;
mod wire;

pub use model::{EcnMarking, LinkDirection, LinkQueue, Passage, QueueFull};
pub(crate) use wire::ip_overhead_bytes;
pub use wire::wire_bytes;
