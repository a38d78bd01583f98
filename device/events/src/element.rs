//! What the asynchronous events of verbs are about.

/// What an asynchronous event is about. A cookie is what the application calls the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncElement {
    /// A completion queue.
    Cq {
        /// Its cookie.
        cookie: u64,
    },
    /// A queue pair.
    Qp {
        /// Its number.
        qpn: u32,
        /// Its cookie.
        cookie: u64,
    },
    /// A shared receive queue.
    Srq {
        /// Its cookie.
        cookie: u64,
    },
    /// A port, counted from 1.
    Port(u8),
    /// The device.
    Device,
}
