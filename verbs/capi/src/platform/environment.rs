//! Settings of this process in the environment (the PUMICE_* variables).

use pumice_device::outside::fork_generation::InheritedOnce;
use pumice_device::settings::{SettingError, Settings};

/// Returns the settings of this process, read at the first call.
///
/// # Errors
/// Fails if one of them is wrong.
pub(crate) fn settings() -> Result<&'static Settings, &'static SettingError> {
    static SETTINGS: InheritedOnce<Result<Settings, SettingError>> = InheritedOnce::new();
    SETTINGS.get_or_init(Settings::from_environment).as_ref()
}
