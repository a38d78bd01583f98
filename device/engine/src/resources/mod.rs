//! All objects of a device, and the references between them.
//!
//! The engine owns this behind its one lock. The objects that an application touches without that lock (CQs,
//! channels, asynchronous events, counters) are handed out as `Arc`s with small locks of their own.
//!
//! **Invariant**: an object that is used cannot be destroyed (EBUSY), so a queue pair's context may name its
//! objects by bare index.

mod batch_time;
mod buffered;
mod completion_counters;
mod delayed;
mod ethernet;
mod gids;
mod host_impl;
#[cfg(test)]
mod host_tests;
mod incidents;
mod inspect;
mod mapping_check;
mod memory;
mod plan;
mod presence;
mod protection_domains;
mod qp_setup;
mod queue_pairs;
mod queues;
mod rendezvous;
mod tables;
mod tags;
mod tally;
mod users;
mod xrc;

pub(crate) use host_impl::DeviceHost;
pub(crate) use mapping_check::MappingCheckPolicy;
pub use presence::Presence;
pub use qp_setup::QpSetup;
pub use queue_pairs::QpAttached;
pub use queues::{CqSetup, SrqSetup};
pub use tables::{LanePackets, NO_OBJECT, ObjectCounts, QpFailure, Resources};
pub(crate) use tags::TAG_REQUESTS;
