//! The values of the device: what happens on it ([`event`]), what an adapter says about itself ([`profile`]),
//! its [`addresses`], the variables of the environment ([`settings`]), what a fault plan can do ([`fates`]),
//! and the one form in which all say that something is wrong ([`findings`]).

// Input from the network, from the program's arguments or from shared memory must not end the program.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]
pub mod addresses;
mod built_in;
pub mod counters;
pub mod event;
pub mod fates;
pub mod findings;
pub mod inspect;
pub mod mrc_profiles;
pub mod network;
pub mod performance;
pub mod port;
pub mod profile;
pub mod recording;
pub mod settings;
pub mod shuffle;
