//! Objects that programs hold, one file per object, and the adapter that they share.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub(crate) mod adapter;
pub(crate) mod address_handle;
pub(crate) mod buffer;
pub(crate) mod capture;
pub(crate) mod command_file;
pub(crate) mod completion_channel;
pub(crate) mod completion_counter;
pub(crate) mod completion_queue;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod device_memory;
pub(crate) mod dma_handle;
pub(crate) mod ece;
pub(crate) mod events;
pub(crate) mod flow;
pub(crate) mod gid_entries;
pub(crate) mod local_identifier;
pub(crate) mod loss;
pub(crate) mod memory_key;
pub(crate) mod memory_region;
pub(crate) mod memory_window;
pub(crate) mod mrc;
pub(crate) mod peer_host;
pub(crate) mod pinned;
pub(crate) mod protection_domain;
pub(crate) mod queue_memory;
pub(crate) mod queue_pair;
pub(crate) mod record;
pub(crate) mod sched_element;
pub(crate) mod send_series;
pub(crate) mod shared_receive_queue;
pub(crate) mod thread_domain;
pub(crate) mod trace;
pub(crate) mod unused;
pub(crate) mod usage;
pub(crate) mod waits;
pub(crate) mod work_queue;
pub(crate) mod xrc_domain;
