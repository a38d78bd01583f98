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

pub use pumice_events as event;
pub use pumice_faults as faults;
pub use pumice_ports::ethernet;
#[doc(hidden)]
pub mod fuzzing;
pub use pumice_engine::hca;
pub use pumice_events::inspect;
pub use pumice_ground as ground;
pub use pumice_objects as objects;
pub use pumice_objects::memory;
pub use pumice_ports::gsi;
pub mod opening;
pub use pumice_engine::resources;
pub use pumice_faults::shuffle;
pub use pumice_ports as port;
pub use pumice_profile as profile;
pub use pumice_profile::settings;
pub use pumice_share as share;
pub mod sysfs;
pub use pumice_ground::system;
pub mod trace;
pub use pumice_engine::world;
