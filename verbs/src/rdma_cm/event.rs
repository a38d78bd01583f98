//! What happens to a connection.

use crate::ground::rejection::Rejection;

/// Something happened to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// Both sides are there: requests can be posted.
    Established,
    /// The peer's program refused, no program listens there, or the peer gave up.
    Rejected(Rejection),
    /// The peer did not answer any of the repetitions.
    Unreachable,
    /// It is over. The queue pair is in ERR, and what was posted is flushed.
    Disconnected,
    /// Nothing of it is under way any more.
    TimewaitExit,
}
