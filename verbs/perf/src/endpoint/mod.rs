//! Device and queue pairs of one end, with the same interface for all services.

mod connect;
mod end;
mod queue_pairs;

pub(crate) use connect::{EndpointInfo, PacketCounts};
pub(crate) use end::{Endpoint, Medium};
pub(crate) use queue_pairs::{BufferSelection, Post, receives_per_queue};
