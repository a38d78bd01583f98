//! The implementations of the exported symbols and the slots of the tables, one file per family of calls.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub(crate) mod address_handle;
pub(crate) mod async_event;
pub(crate) mod buffer;
pub(crate) mod by_mrc;
pub(crate) mod completion_channel;
pub(crate) mod completion_counter;
pub(crate) mod completion_queue;
pub(crate) mod completion_queue_ex;
pub(crate) mod connection_establishment;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod device_memory;
pub(crate) mod dma_handle;
pub(crate) mod flow;
pub(crate) mod fork;
pub(crate) mod import;
pub(crate) mod memory;
pub(crate) mod mrc;
pub(crate) mod multicast;
pub(crate) mod names;
pub(crate) mod ofed_xrc;
pub(crate) mod parent_domain;
pub(crate) mod post_recv;
pub(crate) mod post_send;
pub(crate) mod protection_domain;
pub(crate) mod query;
pub(crate) mod queue_pair;
pub(crate) mod queue_pair_attributes;
pub(crate) mod queue_pair_ex;
pub(crate) mod rates;
pub(crate) mod shared_receive_queue;
pub(crate) mod sysfs;
pub(crate) mod tag_list;
pub(crate) mod vendors;
pub(crate) mod window_bind;
pub(crate) mod work_queue;
pub(crate) mod xrc_domain;
pub(crate) mod xrc_target;
