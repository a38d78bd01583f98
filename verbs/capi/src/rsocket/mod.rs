//! rsockets: sockets over RDMA, wire-compatible with rdma-core's.
//!
//! The layers, lowest first: [`protocol`] is the state machine of a stream without I/O, and the headers of
//! datagrams; [`parts`] are the components of sockets: the queue pair with its memory, the identifier of the
//! connection manager, the thread that waits for its events, options, wakers; [`sockets`] are streams,
//! datagrams, sets to wait for, the table of them by descriptor, and waiting; [`calls`] has the functions
//! that programs call.

pub(crate) mod calls;
pub(crate) mod parts;
pub(crate) mod protocol;
pub(crate) mod sockets;
