//! The drivers of the engine: the application's threads, a background thread, or virtual time (`world`).

mod background;
mod core;
#[cfg(test)]
mod core_tests;
mod handover;
#[cfg(test)]
mod handover_model;
mod policy;

pub(crate) use background::Background;
pub(crate) use core::{Core, CqPoll, Inherited};
