//! The events of a connection.

use crate::rejection::Rejection;

/// An event of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The connection is established: requests can be posted.
    Established,
    /// The peer's program refused, no program listens there, or the peer gave up.
    Rejected(Rejection),
    /// The peer did not answer any of the repetitions.
    Unreachable,
    /// The connection has ended. The queue pair is in ERR, and what was posted is flushed.
    Disconnected,
    /// No packet of the connection can be under way any more.
    TimewaitExit,
}
