//! The software HCA: object tables, queues, memory, the engine that drives queue pairs, and the
//! ports that carry packets.

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub use pumice_profile::addresses;
pub mod check;
pub use pumice_events::counters;
mod driver;
mod engine;
pub use pumice_ports::ethernet;
#[cfg(test)]
mod event_tests;
pub use pumice_events as event;
pub use pumice_faults as faults;
#[doc(hidden)]
pub mod fuzzing;
pub use pumice_ground as ground;
pub use pumice_ports::gsi;
pub mod hca;
pub use pumice_events::inspect;
pub use pumice_objects as objects;
pub use pumice_objects::memory;
pub mod opening;
pub use pumice_ports as port;
pub use pumice_profile as profile;
pub mod resources;
pub use pumice_faults::shuffle;
pub use pumice_profile::settings;
pub use pumice_share as share;
pub mod sysfs;
pub use pumice_ground::system;
pub mod trace;
pub mod world;
