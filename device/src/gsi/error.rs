//! Why a call about connections failed.

use std::fmt;

use pumice_transport::cm::CmError;
use pumice_transport::mad::ServiceId;

use crate::port::DirectoryError;

/// One sentence, one errno.
#[derive(Debug)]
pub enum ConnectionError {
    /// The connection manager refuses.
    Cm(CmError),
    /// The service cannot be bound.
    Directory {
        /// Which service.
        service_id: ServiceId,
        /// Why.
        error: DirectoryError,
    },
    /// There is no such binding.
    NotBound,
    /// This binding listens already.
    Listening,
    /// The source address of the path is none of the adapter's.
    NoSuchAddress,
}

impl ConnectionError {
    /// The errno for it; positive.
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

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionError::Cm(error) => error.fmt(f),
            ConnectionError::Directory { service_id, error } => write!(f, "{service_id}: {error}"),
            ConnectionError::NotBound => f.write_str("there is no such binding: it was released"),
            ConnectionError::Listening => f.write_str("this binding listens already"),
            ConnectionError::NoSuchAddress => {
                f.write_str("the source address is none of the adapter's: `pumice devices` lists them")
            }
        }
    }
}

impl std::error::Error for ConnectionError {}

impl From<CmError> for ConnectionError {
    fn from(error: CmError) -> ConnectionError {
        ConnectionError::Cm(error)
    }
}
