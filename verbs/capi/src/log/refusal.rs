//! Refusals and their reasons: an errno for the program, a sentence for the operator.

use pumice_calls::Call;
use pumice_device::hca::HcaError;
use pumice_device::platform::error::ResourceError;
use pumice_device::settings::SettingError;

use crate::log::{log_always, log_warning};
use crate::platform::errno::{Errno, NOT_SUPPORTED};

impl Errno {
    /// Logs the reason of an error for the operator, and returns the error.
    pub(crate) fn because(self, reason: impl FnOnce() -> String) -> Errno {
        log_warning(reason);
        self
    }
}

/// Refuses bits of a mask that this library does not know, because their meaning is not known either.
///
/// # Errors
/// Fails with EOPNOTSUPP.
pub(crate) fn check_mask(call: Call, mask: u32, known: u32) -> Result<(), Errno> {
    if mask & !known == 0 {
        return Ok(());
    }
    Err(NOT_SUPPORTED.because(|| format!("{call} refused: comp_mask {mask:#x} has bits that are not known")))
}

impl From<HcaError> for Errno {
    #[cold]
    fn from(error: HcaError) -> Errno {
        log_warning(|| error.to_string());
        Errno(error.errno())
    }
}

impl From<ResourceError> for Errno {
    #[cold]
    fn from(error: ResourceError) -> Errno {
        log_warning(|| error.to_string());
        Errno(error.errno())
    }
}

impl From<SettingError> for Errno {
    #[cold]
    fn from(error: SettingError) -> Errno {
        log_always(&error.to_string());
        Errno(error.errno)
    }
}
