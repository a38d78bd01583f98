//! Device and queue pairs of one end, with the same interface for all services.

mod buffers;
mod completions;
mod connect;
mod contents;
mod end;
mod first_failure;
mod info;
mod medium;
mod post;
mod posting;
mod queue;
mod queue_pairs;

pub(crate) use buffers::receives_per_queue;
pub(crate) use end::Endpoint;
pub(crate) use info::EndpointInfo;
pub(crate) use info::PacketCounts;
pub(crate) use medium::Medium;
pub(crate) use post::{BufferSelection, Post};
