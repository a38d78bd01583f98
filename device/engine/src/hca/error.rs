//! The errors of calls to the device.

use pumice_platform::error::ResourceError;
use pumice_platform::outside::fork_generation::INHERITED;
use pumice_transport::qp::{ErrorClass, ModifyError, PostError};
use pumice_transport::wire::Qpn;

use crate::driver::Inherited;

/// The reason why a call failed: one sentence, one errno.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HcaError {
    /// An object could not be created, changed, used or destroyed.
    #[error("{0}")]
    Resource(ResourceError),
    /// `modify_qp` was refused; nothing changed.
    #[error("QP {qpn} {error}")]
    Modify {
        /// The queue pair.
        qpn: Qpn,
        /// The reason.
        error: ModifyError,
    },
    /// `modify_qp` was refused because of an address vector or a P_Key index; nothing changed.
    #[error("QP {qpn} modify_qp refused: {error}")]
    Entry {
        /// The queue pair.
        qpn: Qpn,
        /// The reason.
        error: ResourceError,
    },
    /// A send request was refused; nothing was posted.
    #[error("QP {qpn}: {error}")]
    Post {
        /// The queue pair.
        qpn: Qpn,
        /// The reason.
        error: PostError,
        /// The errno that the library of the imitated adapter returns then.
        errno: i32,
    },
    /// A call about an MRC queue pair was refused; nothing changed.
    #[error("MRC queue pair {qpn}: {what}")]
    Mrc {
        /// The queue pair.
        qpn: Qpn,
        /// The reason.
        what: String,
        /// The errno of the call.
        errno: i32,
    },
    /// No such queue pair exists.
    #[error("queue pair {qpn} does not exist")]
    UnknownQueuePair {
        /// The number that was asked for.
        qpn: Qpn,
    },
    /// The device belongs to the process from which this one was forked.
    #[error("{INHERITED}")]
    Inherited,
}

impl From<Inherited> for HcaError {
    fn from(_: Inherited) -> HcaError {
        HcaError::Inherited
    }
}

impl HcaError {
    /// Returns the errno that verbs return for the error; positive.
    pub fn errno(&self) -> i32 {
        match self {
            HcaError::Resource(error) | HcaError::Entry { error, .. } => error.errno(),
            HcaError::Modify { error, .. } => match error.class() {
                ErrorClass::Invalid => libc::EINVAL,
                ErrorClass::NotSupported => libc::EOPNOTSUPP,
                ErrorClass::Permission => libc::EPERM,
            },
            HcaError::Post { errno, .. } | HcaError::Mrc { errno, .. } => *errno,
            HcaError::UnknownQueuePair { .. } | HcaError::Inherited => libc::EINVAL,
        }
    }
}

impl From<ResourceError> for HcaError {
    fn from(error: ResourceError) -> HcaError {
        HcaError::Resource(error)
    }
}
