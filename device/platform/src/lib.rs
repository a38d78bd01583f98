//! The base of all other crates of the device: tables with handles, errors with an errno, limits, the clock,
//! random numbers, values to wait for, threads, rates of links, similar names, text for terminals.

// Input from the network, from the program's arguments or from shared memory must not end the program.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod call_stack;
pub mod clock;
pub mod error;
pub mod limits;
pub mod link_settings;
pub mod number_map;
pub mod order;
pub mod ordinal;
pub mod outside;
pub mod quantity;
pub mod spin_lock;
#[cfg(test)]
mod spin_lock_model;

pub mod event_queue;
pub mod packet_socket;
pub mod table;
pub mod udp;
pub mod word;
