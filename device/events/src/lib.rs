//! Everything that happens to a program, as one stream: what queue pairs do
//! ([`pumice_transport::event`]) and what the device does around them.
//!
//! An event borrows what it tells of. Who listens is decided when the device opens ([`Subscribers`]),
//! but for guests that come while a program runs ([`recording`]), and events without a listener are not put
//! together. Counters are part of emitting (`Resources::emit`); the log, the printed steps and all other
//! listeners are [`Subscriber`]s.
//!
//! **Invariant**: a subscriber is called under the engine's lock, and from threads that poll without it. It
//! must not call the device, and must not wait.

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod counters;
mod element;
pub mod findings;
pub mod inspect;
mod kinds;
pub mod recording;
mod subscribers;

pub use element::AsyncElement;
pub use kinds::{CallMade, CallPhase, Event, Topics};
pub use subscribers::{GuestNumber, MAX_GUESTS, Subscriber, Subscribers};
