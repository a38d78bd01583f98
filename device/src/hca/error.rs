//! What calls to the device can answer.

use std::fmt;

use pumice_transport::qp::{ErrorClass, ModifyError, PostError};
use pumice_transport::wire::Qpn;

use crate::ground::error::ResourceError;

/// Why a call failed: one sentence, one errno.
#[derive(Debug, Clone, PartialEq)]
pub enum HcaError {
    /// An object could not be made, changed, used or destroyed.
    Resource(ResourceError),
    /// `modify_qp` was refused; nothing changed.
    Modify {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        error: ModifyError,
    },
    /// `modify_qp` was refused because of an address vector or a P_Key index; nothing changed.
    Entry {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        error: ResourceError,
    },
    /// A send request was refused; nothing was posted.
    Post {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        error: PostError,
    },
    /// There is no such queue pair.
    UnknownQueuePair {
        /// The number asked for.
        qpn: Qpn,
    },
}

impl HcaError {
    /// The errno that verbs return for it; positive.
    pub fn errno(&self) -> i32 {
        match self {
            HcaError::Resource(error) | HcaError::Entry { error, .. } => error.errno(),
            HcaError::Modify { error, .. } => match error.class() {
                ErrorClass::Invalid => libc::EINVAL,
                ErrorClass::NotSupported => libc::EOPNOTSUPP,
                ErrorClass::Permission => libc::EPERM,
            },
            HcaError::Post { error, .. } if error.is_queue_full() => libc::ENOMEM,
            HcaError::Post { .. } | HcaError::UnknownQueuePair { .. } => libc::EINVAL,
        }
    }
}

impl fmt::Display for HcaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HcaError::Resource(error) => error.fmt(f),
            HcaError::Modify { qpn, error } => write!(f, "QP {qpn} {error}"),
            HcaError::Entry { qpn, error } => write!(f, "QP {qpn} modify_qp refused: {error}"),
            HcaError::Post { qpn, error } => write!(f, "QP {qpn}: {error}"),
            HcaError::UnknownQueuePair { qpn } => write!(f, "queue pair {qpn} does not exist"),
        }
    }
}

impl std::error::Error for HcaError {}

impl From<ResourceError> for HcaError {
    fn from(error: ResourceError) -> HcaError {
        HcaError::Resource(error)
    }
}
