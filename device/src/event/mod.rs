//! Everything that happens to a program, as one stream: what queue pairs do
//! ([`pumice_transport::event`]) and what the device does around them.
//!
//! An event borrows what it tells of. Who listens is decided when the device opens ([`Subscribers`]), and
//! events without a listener are not put together. Counters are part of emitting (`Resources::emit`); the
//! log, the printed steps and all other listeners are [`Subscriber`]s.
//!
//! **Invariant**: a subscriber is called under the engine's lock, and from threads that poll without it. It
//! must not call the device, and must not wait.

mod awaited;
mod element;
mod kinds;
mod log;
mod relay;
mod steps;
mod subscribers;
#[cfg(test)]
mod tests;
mod witness;

pub(crate) use awaited::AwaitedEvents;
pub use element::AsyncElement;
pub use kinds::{Event, Topics};
pub use log::{LogHook, LogSubscriber};
pub use steps::{StepHook, StepSubscriber};
pub use subscribers::{Subscriber, Subscribers};
pub use witness::{FaultWitness, ReportSource, ReportWriter};
pub(crate) use witness::{Faulted, fault_in_words};
