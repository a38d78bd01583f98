//! What the environment sets for this process (the PUMICE_* variables).

use pumice_device::outside::lineage::Settled;
use pumice_device::settings::{SettingError, Settings};

/// The settings of this process, read when they are first asked for.
///
/// # Errors
/// One is wrong.
pub(crate) fn settings() -> Result<&'static Settings, &'static SettingError> {
    static SETTINGS: Settled<Result<Settings, SettingError>> = Settled::new();
    SETTINGS.get_or_init(Settings::from_environment).as_ref()
}
