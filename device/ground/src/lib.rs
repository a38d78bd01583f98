//! What every room stands on: tables with handles, errors with an errno, limits, the clock, random
//! numbers, values to wait for, threads, rates of links, names that are alike, text for terminals.

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod aged_table;
pub mod awaited;
pub mod brief_lock;
#[cfg(test)]
mod brief_lock_model;
pub mod call_stack;
pub mod clock;
pub mod error;
pub mod intervals;
pub mod limits;
pub mod link_rate;
pub mod link_words;
pub mod marking;
pub mod number_map;
pub mod object_summary;
pub mod order;
pub mod ordinal;
pub mod outside;
pub mod printable;
pub mod probability;
pub mod quantity;
pub mod random;
pub mod similar;

pub mod table;
pub mod word;
