//! UDP sockets: options, control messages, scopes, and sockets without a protocol on top.

pub mod message;
pub mod raw;
pub mod socket;
pub mod unread;
