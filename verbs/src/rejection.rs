//! Rejections of connections.

use std::fmt;

use pumice_transport::mad::RejectReason;

/// The reason why a connection was rejected.
#[derive(Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Reason code: [`RejectReason::CONSUMER`] if the program at the other side rejected it,
    /// [`RejectReason::INVALID_SERVICE_ID`] if no program listens there.
    pub reason: RejectReason,
    pub(crate) private_data: Vec<u8>,
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
