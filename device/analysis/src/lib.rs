//! Subscribers of a device and views of it: checks of mistakes in programs, the recorder of traces, and the
//! contents of sysfs. The engine knows none of them.

// A program must not be ended by data from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod check;
pub mod listeners;
pub mod sysfs;
pub mod waits;
