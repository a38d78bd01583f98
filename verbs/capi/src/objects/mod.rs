//! Objects that programs hold, one file per object, and the adapter that they share.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub(crate) mod adapter;
pub(crate) mod capture;
pub(crate) mod command_file;
pub(crate) mod completion_queue;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod device_memory;
pub(crate) mod domains;
pub(crate) mod events;
pub(crate) mod memory_region;
pub(crate) mod mlx5;
pub(crate) mod mrc;
pub(crate) mod peer_host;
pub(crate) mod queue_pair;
pub(crate) mod receive_queues;
pub(crate) mod unused;
pub(crate) mod waits;
