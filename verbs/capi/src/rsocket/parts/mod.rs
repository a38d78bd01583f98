//! The components of sockets.

pub(crate) mod buffers;
pub(crate) mod datagram_queue_pair;
pub(crate) mod event_thread;
pub(crate) mod identifier;
pub(crate) mod link;
pub(crate) mod options;
