//! Connections by address: a peer connects to a listener by its IP address and port, and the queue pairs need
//! nothing out of band. On the wire it is the IBTA's connection manager with RDMA-CM's addresses, so the
//! other side may be librdmacm, the kernel's rdma_rxe or a NIC.
//!
//! [`Listener::request`] gives a [`ConnectionRequest`], which is accepted with a queue pair or rejected;
//! [`Connection::connect`] requests a connection. Both end in a [`Connection`], which is established a moment
//! later, and disconnected when either side says so or drops it. Each side can send data in every step:
//! [`PrivateData`].

mod connection;
mod listener;
mod params;

pub use crate::rejection::Rejection;
pub use connection::Connection;
pub use listener::{ConnectionRequest, Listener};
pub use params::{Connectable, ConnectionEvent, ConnectionParams, PrivateData};

/// Ports for connections whose own port the program does not name.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;

/// Numbers of bytes that fit a request, an acceptance and a rejection.
pub(crate) mod room {
    use pumice_transport::mad::{IP_HEADER_BYTES, Rej, Rep, Req};

    pub(crate) const REQUEST_BYTES: usize = Req::PRIVATE_DATA_BYTES - IP_HEADER_BYTES;
    pub(crate) const ACCEPTANCE_BYTES: usize = Rep::PRIVATE_DATA_BYTES;
    pub(crate) const REJECTION_BYTES: usize = Rej::PRIVATE_DATA_BYTES;
}
