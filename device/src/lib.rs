//! The software HCA.

pub mod async_event;
pub mod completion_channel;
pub mod completion_queue;
pub mod error;
pub mod event_account;
mod event_fd;
mod event_queue;
pub mod memory;
pub mod send_slots;
pub mod table;
