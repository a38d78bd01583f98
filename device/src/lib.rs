//! The software HCA. Here an adapter is put together ([`opening`]); its parts are crates of their own, and
//! this one shows them under one name.

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

#[doc(hidden)]
pub mod fuzzing;
pub mod opening;
mod recording;
pub mod standings;

pub use pumice_engine::{hca, resources, world};
pub use pumice_events as event;
pub use pumice_events::recording as record_orders;
pub use pumice_events::{counters, findings, inspect};
pub use pumice_faults as faults;
pub use pumice_faults::shuffle;
pub use pumice_ground as ground;
pub use pumice_ground::outside;
pub use pumice_instruments::{capture, check, listeners, sysfs, waits};
pub use pumice_objects as objects;
pub use pumice_objects::memory;
pub use pumice_ports as port;
pub use pumice_ports::{ethernet, gsi};
pub use pumice_profile as profile;
pub use pumice_profile::{addresses, settings};
pub use pumice_share as share;

/// Traces of messages: what records them, and what reads and judges them.
pub mod trace {
    pub use pumice_instruments::trace::*;
    pub use pumice_traces::*;
}
