//! Queue pair 1: the general services interface, and the connection manager behind it.
//!
//! All processes of an address share its queue pair 1. A message for a connection carries the index of its
//! process in the communication id; a request is for the process that has bound the service, which the
//! [`ServiceDirectory`] of the port knows. A process that receives a message of another process forwards it
//! (`detained`: later, if that process does not keep up). If no process owns the message, the process that
//! received it rejects it, but a request for a service that is not bound waits for a moment first (`early`).
//!
//! `agent` has the state. Its turns in the engine (`turn`: MADs in, MADs out, timers), the calls of consumers
//! (`consumers`) and the services that they bind (`services`) build on it.
//!
//! Consumers get the events of their connections through a [`CmChannel`]: a queue of events with a
//! descriptor. A connection made by a request begins on its listener's channel.

mod agent;
mod binding;
mod channel;
mod consumers;
mod detained;
mod early;
mod envelope;
mod error;
#[cfg(test)]
mod order_tests;
mod peers;
mod services;
mod turn;

pub use binding::BindingId;
pub use channel::CmChannel;
pub use error::ConnectionError;

pub use pumice_model::port::directory::{DirectoryError, Occupant, ServiceDirectory, ServiceEntry};
pub use pumice_model::port::group::ForwardOutcome;

pub use agent::Gsi;
#[doc(hidden)]
pub use envelope::PACKET_BYTES;
pub use envelope::inbound;
pub use turn::MadSink;
