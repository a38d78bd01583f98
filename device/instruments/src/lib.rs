//! What listens to a device and what shows it: checks of what programs do wrong, the recorder of traces, and
//! the contents of sysfs. The engine knows none of them.

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod capture;
pub mod check;
pub mod listeners;
pub mod sysfs;
pub mod trace;
pub mod waits;
