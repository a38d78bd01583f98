//! The implementations of the exported symbols and the slots of the tables, one file per family of calls.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub(crate) mod address_handle;
pub(crate) mod by_mrc;
pub(crate) mod completion_channel;
pub(crate) mod completion_queue;
pub(crate) mod completion_queue_ex;
pub(crate) mod device;
pub(crate) mod device_memory;
pub(crate) mod domains;
pub(crate) mod frames;
pub(crate) mod memory;
pub(crate) mod mrc;
pub(crate) mod names;
pub(crate) mod post_recv;
pub(crate) mod post_send;
pub(crate) mod query;
pub(crate) mod queue_pair;
pub(crate) mod queue_pair_attributes;
pub(crate) mod queue_pair_ex;
pub(crate) mod shared_receive_queue;
pub(crate) mod vendors;
