//! The functions that programs call, and their types for sockets, addresses and values.

pub(crate) mod connection;
pub(crate) mod data;
pub(crate) mod poll;
