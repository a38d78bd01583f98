//! The objects of asynchronous verbs events.

/// The object of an asynchronous event. A cookie is the application's value for the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncElement {
    /// A completion queue.
    Cq {
        /// The cookie of the completion queue.
        cookie: u64,
    },
    /// A queue pair.
    Qp {
        /// The number of the queue pair.
        qpn: u32,
        /// The cookie of the queue pair.
        cookie: u64,
    },
    /// A shared receive queue.
    Srq {
        /// The cookie of the shared receive queue.
        cookie: u64,
    },
    /// A port, counted from 1.
    Port(u8),
    /// The device.
    Device,
}
