//! What calls to the device can answer.

use pumice_ground::error::ResourceError;
use pumice_ground::outside::lineage::INHERITED;
use pumice_transport::qp::{ErrorClass, ModifyError, PostError};
use pumice_transport::wire::Qpn;

use crate::driver::Inherited;

/// Why a call failed: one sentence, one errno.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HcaError {
    /// An object could not be made, changed, used or destroyed.
    #[error("{0}")]
    Resource(ResourceError),
    /// `modify_qp` was refused; nothing changed.
    #[error("QP {qpn} {error}")]
    Modify {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        error: ModifyError,
    },
    /// `modify_qp` was refused because of an address vector or a P_Key index; nothing changed.
    #[error("QP {qpn} modify_qp refused: {error}")]
    Entry {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        error: ResourceError,
    },
    /// A send request was refused; nothing was posted.
    #[error("QP {qpn}: {error}")]
    Post {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        error: PostError,
    },
    /// There is no such queue pair.
    #[error("queue pair {qpn} does not exist")]
    UnknownQueuePair {
        /// The number asked for.
        qpn: Qpn,
    },
    /// The device is that of the process that this one was forked from.
    #[error("{INHERITED}")]
    Inherited,
}

impl From<Inherited> for HcaError {
    fn from(_: Inherited) -> HcaError {
        HcaError::Inherited
    }
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
            HcaError::Post { .. } | HcaError::UnknownQueuePair { .. } | HcaError::Inherited => libc::EINVAL,
        }
    }
}

impl From<ResourceError> for HcaError {
    fn from(error: ResourceError) -> HcaError {
        HcaError::Resource(error)
    }
}
