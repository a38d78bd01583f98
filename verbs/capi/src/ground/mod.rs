//! What everything stands on: the structures of the ABI and the types of arguments, errno, the log, how calls
//! end, and how objects are found.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub(crate) mod abi;
pub(crate) mod acknowledgements;
pub(crate) mod allocation;
pub(crate) mod arguments;
pub(crate) mod cancellation;
pub(crate) mod check;
pub(crate) mod connections;
pub(crate) mod descriptors;
pub(crate) mod environment;
pub(crate) mod errno;
pub(crate) mod gate;
pub(crate) mod handles;
pub(crate) mod inherited;
pub(crate) mod listeners;
pub(crate) mod log;
pub(crate) mod log_places;
pub(crate) mod mappings;
pub(crate) mod outcome;
pub(crate) mod own_devices;
pub(crate) mod own_file;
pub(crate) mod plain;
pub(crate) mod process;
pub(crate) mod refusal;
pub(crate) mod register;
pub(crate) mod requests;
pub(crate) mod settings;
pub(crate) mod system_call;
pub(crate) mod thread_calls;
pub(crate) mod turn;
pub(crate) mod unlogged;
pub(crate) mod unserved;
pub(crate) mod vendor_calls;
pub(crate) mod waits;
pub(crate) mod wall_clock;
pub(crate) mod zeroed;
