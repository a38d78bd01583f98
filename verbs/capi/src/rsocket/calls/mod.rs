//! The functions that programs call, and their types for sockets, addresses and values.

pub(crate) mod connection;
pub(crate) mod data;
pub(crate) mod epoll;
pub(crate) mod mapping;
pub(crate) mod name;
pub(crate) mod option;
pub(crate) mod poll;
pub(crate) mod room;
