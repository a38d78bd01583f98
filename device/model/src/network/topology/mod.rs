//! Topologies: the switches between hosts, and their links and queues.
//!
//! A [`Topology`] is a value and a TOML text. The simulated network has its switches from one, and so do
//! devices in real time (`SwitchedPort`).

pub mod layout;
mod reading;
#[cfg(test)]
mod tests;
mod value;

pub use layout::{Layout, LinkSpec, TopologyNode};
pub use reading::QueueReport;
pub use value::{SwitchLink, SwitchPauses, SwitchQueues, Topology, TopologyHost, TopologyKind};
