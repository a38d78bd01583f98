//! One end's device and queue pairs, all services alike to the loops that use them.

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
pub(crate) use info::EndInfo;
pub(crate) use info::Traffic;
pub(crate) use medium::Medium;
pub(crate) use post::{Buffers, Post};
