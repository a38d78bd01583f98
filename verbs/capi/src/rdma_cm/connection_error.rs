//! Conversion of the connection manager's errors to errno.

use pumice_device::gsi::ConnectionError;

use crate::log::log_warning;
use crate::platform::errno::Errno;

impl From<ConnectionError> for Errno {
    #[cold]
    fn from(error: ConnectionError) -> Errno {
        log_warning(|| error.to_string());
        Errno(error.errno())
    }
}
