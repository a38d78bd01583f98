//! The software HCA: object tables, queues, memory, the engine that drives queue pairs, and the
//! ports that carry packets.

pub mod address_handle;
pub mod address_watch;
mod armed_queues;
pub mod async_event;
pub mod awaited;
pub mod cancellation;
pub mod clock;
pub mod completion_channel;
pub mod completion_queue;
pub mod counters;
pub mod driver;
mod engine;
pub mod error;
pub mod event_account;
mod event_fd;
pub mod event_pipe;
mod event_queue;
#[doc(hidden)]
pub mod fuzzing;
pub mod gid_table;
pub mod gsi;
pub mod guid;
pub mod hca;
pub mod interface;
pub mod limits;
pub mod memory;
pub mod multicast;
pub mod pkey_table;
pub mod port;
pub mod profile;
pub mod recv_queue;
pub mod resources;
pub mod send_slots;
pub mod settings;
pub mod share;
pub mod srq;
pub mod sysfs;
mod system_call;
pub mod table;
