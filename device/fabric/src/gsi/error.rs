//! Errors of calls about connections.

use pumice_platform::outside::fork_generation::INHERITED;
use pumice_transport::cm::CmError;
use pumice_transport::mad::ServiceId;

use pumice_model::port::directory::DirectoryError;

/// The error of a call about connections: one sentence, one errno.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The connection manager refuses.
    #[error("{0}")]
    Cm(CmError),
    /// The service cannot be bound.
    #[error("{service_id}: {error}")]
    Directory {
        /// Service that was to be bound.
        service_id: ServiceId,
        /// Reason of the directory.
        error: DirectoryError,
    },
    /// There is no such binding.
    #[error("there is no such binding: it was released")]
    NotBound,
    /// The binding listens already.
    #[error("this binding listens already")]
    Listening,
    /// The source address of the path is none of the adapter's.
    #[error("the source address is none of the adapter's: `pumice devices` lists them")]
    NoSuchAddress,
    /// The adapter is that of the process that this one was forked from.
    #[error("{INHERITED}")]
    Inherited,
}

impl ConnectionError {
    /// Returns the errno for the error; positive.
    pub fn errno(&self) -> i32 {
        match self {
            ConnectionError::Cm(CmError::ServiceInUse(_)) => libc::EADDRINUSE,
            ConnectionError::Cm(CmError::TooManyConnections { .. } | CmError::TooManyListeners { .. }) => {
                libc::ENOMEM
            }
            ConnectionError::Directory { error, .. } => error.errno(),
            ConnectionError::NoSuchAddress => libc::EADDRNOTAVAIL,
            _ => libc::EINVAL,
        }
    }
}

impl From<CmError> for ConnectionError {
    fn from(error: CmError) -> ConnectionError {
        ConnectionError::Cm(error)
    }
}
