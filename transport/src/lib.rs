//! RoCEv2 as a value: wire formats and protocol state machines.
//!
//! Nothing here opens a socket, reads a clock, starts a thread or draws a random number. Inputs are
//! `handle_*` calls (a packet, a posted work request, an expired timer); outputs are `poll_*` calls
//! (something to transmit, the next deadline). What the protocol needs from the device around it
//! (memory, receive requests, completions, events) comes in through one trait, [`host::Host`].
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

pub mod cm;
pub mod event;
pub mod host;
pub mod mad;
pub mod path;
#[doc(hidden)]
pub mod proofs;
pub mod qp;
pub mod types;
pub mod wire;
