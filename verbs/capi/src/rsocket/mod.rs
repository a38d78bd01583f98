//! rsockets: sockets over RDMA, wire-compatible with rdma-core's.
//!
//! A stream ([`stream_socket`]) is a state machine without I/O ([`protocol`]) on a queue pair ([`link`]) of an
//! identifier ([`identifier`]) of the connection manager, to which a thread ([`attendant`]) listens. Datagrams
//! ([`datagram`]) go over UD queue pairs, and over UDP until those are known.

pub(crate) mod at_exit;
pub(crate) mod attendant;
pub(crate) mod bell;
pub(crate) mod calls;
pub(crate) mod connecting;
pub(crate) mod datagram;
pub(crate) mod datagram_end;
pub(crate) mod epoll;
pub(crate) mod identifier;
pub(crate) mod iomap;
pub(crate) mod link;
pub(crate) mod options;
pub(crate) mod pieces;
pub(crate) mod poll;
pub(crate) mod protocol;
pub(crate) mod reentry;
pub(crate) mod region;
pub(crate) mod stream_socket;
pub(crate) mod table;
pub(crate) mod transfer;
