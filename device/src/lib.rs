//! The software HCA.

pub mod address_handle;
pub mod async_event;
pub mod completion_channel;
pub mod completion_queue;
pub mod counters;
pub mod error;
pub mod event_account;
mod event_fd;
mod event_queue;
pub mod gid_table;
pub mod limits;
pub mod memory;
pub mod multicast;
pub mod pkey_table;
pub mod recv_queue;
pub mod resources;
pub mod send_slots;
pub mod srq;
pub mod table;
