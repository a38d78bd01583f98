//! The settings and the profile of this process (the PUMICE_* variables).

use pumice_calls::Call;
use pumice_device::outside::lineage::Settled;
use pumice_device::profile::Profile;
use pumice_device::settings::Settings;

use super::environment;
use super::errno::{Errno, NOT_SUPPORTED};
use super::log::log_always;

/// The settings of this process.
///
/// # Errors
/// One is wrong; that has been said on standard error.
pub(crate) fn settings() -> Result<&'static Settings, Errno> {
    environment::settings().map_err(|error| {
        log_always(&error.to_string());
        Errno(error.errno)
    })
}

static PROFILE: Settled<Result<Profile, Errno>> = Settled::new();

/// The device's profile, if it has been read.
pub(crate) fn known_profile() -> Option<&'static Profile> {
    PROFILE.get()?.as_ref().ok()
}

/// Refuses a call that the device's profile refuses: none has been asked for a device before it is read.
///
/// # Errors
/// EOPNOTSUPP.
pub(crate) fn check_refusals(call: Call) -> Result<(), Errno> {
    let refusing = known_profile().filter(|profile| profile.refuses.has(call));
    let Some(profile) = refusing else { return Ok(()) };
    Err(NOT_SUPPORTED.because(|| {
        let driver = if profile.driver.is_empty() { "the profile" } else { profile.driver.as_str() };
        format!("{call} is refused with EOPNOTSUPP, as {driver} does: the default device has it")
    }))
}

/// The device's profile, read when it is first asked for.
///
/// # Errors
/// It, or another setting, is wrong; that has been said on standard error.
pub(crate) fn profile() -> Result<&'static Profile, Errno> {
    PROFILE.get_or_init(|| Ok(settings()?.load_profile()?)).as_ref().map_err(|errno| *errno)
}

/// Refuses what the profile's device does not have.
///
/// # Errors
/// EOPNOTSUPP.
pub(crate) fn require(what: &str, has: impl FnOnce(&Profile) -> bool) -> Result<(), Errno> {
    if has(profile()?) {
        return Ok(());
    }
    Err(NOT_SUPPORTED.because(|| format!("not supported: this device's profile is without {what}")))
}
