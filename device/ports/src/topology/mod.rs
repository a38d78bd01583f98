//! Topologies: which switches there are between hosts, and what their links and queues are like.
//!
//! A [`Topology`] is a value and a TOML text. The simulated network has its switches from one, and so do
//! devices in real time ([`SwitchedPort`](crate::SwitchedPort)).

mod layout;
mod reading;
mod report;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use layout::{Layout, LinkSpec, TopologyNode};
pub use report::QueueReport;
pub use value::{SwitchLink, SwitchPauses, SwitchQueues, Topology, TopologyHost, TopologyKind};
