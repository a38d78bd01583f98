//! The RoCEv2 protocol without I/O: wire formats and protocol state machines.
//!
//! This crate opens no socket, reads no clock, starts no thread and draws no random number. Inputs are
//! `handle_*` calls (a packet, a posted work request, an expired timer); outputs are `poll_*` calls (a packet
//! to send, the next deadline). What the protocol needs from the device around it (memory, receive requests,
//! completions, events) comes in through one trait, [`host::Host`].
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
pub mod mrc;
pub mod path;
#[doc(hidden)]
pub mod proofs;
pub mod qp;
pub mod types;
pub mod wire;
