//! The software HCA. This crate assembles an adapter ([`opening`]); its parts are crates of their own, and
//! this one re-exports them under one name.

// A program must not be ended by data from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

#[doc(hidden)]
pub mod fuzzing;
pub mod opening;
pub mod process_statuses;
mod recording;

pub use pumice_analysis::{check, listeners, sysfs, waits};
pub use pumice_engine::objects;
pub use pumice_engine::{ethernet, hca, resources, world};
pub use pumice_fabric as port;
pub use pumice_fabric::gsi;
pub use pumice_fabric::sharing;
pub use pumice_faults as faults;
pub use pumice_memory as memory;
pub use pumice_model::event;
pub use pumice_model::performance;
pub use pumice_model::profile;
pub use pumice_model::recording as record_orders;
pub use pumice_model::shuffle;
pub use pumice_model::{addresses, settings};
pub use pumice_model::{counters, findings, inspect};
pub use pumice_platform as platform;
pub use pumice_platform::outside;
pub use pumice_recording::capture;

/// Traces of messages: the recorder, and the code that reads and judges them.
pub mod trace {
    pub use pumice_recording::recorder::*;
    pub use pumice_recording::*;
}
