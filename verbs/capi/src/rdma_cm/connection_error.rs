//! The errno of what the connection manager refuses.

use pumice_device::gsi::ConnectionError;

use crate::ground::errno::Errno;
use crate::ground::log::log_warning;

impl From<ConnectionError> for Errno {
    #[cold]
    fn from(error: ConnectionError) -> Errno {
        log_warning(|| error.to_string());
        Errno(error.errno())
    }
}
