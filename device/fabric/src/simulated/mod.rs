//! A simulated network in virtual time: ports on one switch, or several with queues
//! ([`Topology`](pumice_model::network::topology::Topology)), with the faults of a plan.
//!
//! Everything is integers and one seeded generator, so the same seed and the same calls give the same bytes
//! at the same nanoseconds on any machine; [`Fabric::digest`] is the proof.

mod config;
mod handle;
mod network;
mod packet;
mod port;
mod receive;
mod switches;
#[cfg(test)]
mod tests;

pub use config::{FabricConfig, FabricStats};
pub use handle::Fabric;
pub use port::SimPort;
