//! The adapter itself: the tables of all objects, the engine that drives queue pairs against a port, the
//! threads that drive the engine, and the adapter as its users see it.

// Input from the network, from the program's arguments or from shared memory must not end the program.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod decisions;
mod driver;
mod engine;
pub mod ethernet;
#[cfg(test)]
mod event_tests;
mod gate;
pub mod hca;
#[cfg(test)]
mod lane_tests;
pub mod objects;
pub mod resources;
pub mod world;
