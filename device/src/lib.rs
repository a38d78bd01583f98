//! The software HCA: object tables, queues, memory, the engine that drives queue pairs, and the
//! ports that carry packets.

pub mod address_watch;
pub mod addresses;
pub mod cancellation;
pub mod counters;
pub mod driver;
mod engine;
pub mod event;
mod event_fd;
pub mod event_pipe;
#[doc(hidden)]
pub mod fuzzing;
pub mod ground;
pub mod gsi;
pub mod hca;
pub mod interface;
pub mod memory;
pub mod objects;
pub mod port;
pub mod profile;
pub mod resources;
pub mod settings;
pub mod share;
pub mod sysfs;
mod system_call;
mod xrc;
