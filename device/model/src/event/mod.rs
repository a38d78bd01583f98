//! All events of a program and its device, as one stream: the events of queue pairs
//! ([`pumice_transport::event`]) and those of the device around them.
//!
//! An event borrows its data. The subscribers are fixed when the device opens ([`Subscribers`]), except
//! guests that come while a program runs, and events without a subscriber are not
//! constructed. Counters are part of emitting (`Resources::emit`); the log, the printed steps and all others
//! are [`Subscriber`]s.
//!
//! **Invariant**: a subscriber is called under the engine's lock, and from threads that poll without it. It
//! must not call the device, and must not wait.

pub mod async_event;
pub mod kinds;
mod subscribers;

pub use kinds::{AsyncElement, CallMade, CallPhase, Event, Topics};
pub use subscribers::{MAX_DYNAMIC_SUBSCRIBERS, Subscriber, Subscribers, SubscriptionId};
