//! What every room stands on: tables with handles, errors with an errno, limits, the clock, random
//! numbers, values to wait for, threads, rates of links, names that are alike, text for terminals.

pub mod awaited;
pub mod clock;
pub mod error;
pub mod limits;
pub mod link_rate;
pub(crate) mod link_words;
pub(crate) mod marking;
pub mod object_summary;
pub mod printable;
pub(crate) mod probability;
pub(crate) mod quantity;
pub(crate) mod random;
pub mod similar;
pub mod table;
pub mod thread;
pub(crate) mod word;
