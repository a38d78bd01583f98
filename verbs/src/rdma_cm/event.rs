//! What happens to a connection.

use std::fmt;

use pumice_transport::mad::RejectReason;

use super::PrivateData;
use super::private_data::value;
use crate::error::Result;

/// Something happened to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// Both sides are there: requests can be posted.
    Established,
    /// The peer does not want to, nobody listens, or the peer gave up.
    Rejected(Rejection),
    /// The peer did not answer any of the repetitions.
    Unreachable,
    /// It is over. The queue pair is in ERR, and what was posted is flushed.
    Disconnected,
    /// Nothing of it is under way any more.
    TimewaitExit,
}

/// Why there is no connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Rejection {
    /// [`RejectReason::CONSUMER`] if it was the program at the other side,
    /// [`RejectReason::INVALID_SERVICE_ID`] if nobody listens.
    pub reason: RejectReason,
    pub(super) private_data: Vec<u8>,
}

impl Rejection {
    /// What the peer says about it.
    ///
    /// # Errors
    /// `Invalid`: it is not of this type.
    pub fn private_data<P: PrivateData>(&self) -> Result<P> {
        value(&self.private_data)
    }
}

impl fmt::Debug for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rejection").field(&self.reason).finish()
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason.name() {
            Some(name) => write!(f, "the peer rejects the connection: {name} (reason {})", self.reason.0),
            None => write!(f, "the peer rejects the connection with reason {}", self.reason.0),
        }
    }
}
