//! The settings and the profile of this process (the PUMICE_* variables).

use pumice_calls::Call;
use pumice_device::outside::fork_generation::InheritedOnce;
use pumice_device::profile::Profile;
use pumice_device::settings::Settings;

use crate::log::log_always;
use crate::platform;
use crate::platform::{Errno, NOT_SUPPORTED};

/// Returns the settings of this process.
///
/// # Errors
/// Fails if one of them is wrong, which was reported on standard error.
pub(crate) fn settings() -> Result<&'static Settings, Errno> {
    platform::settings().map_err(|error| {
        log_always(&error.to_string());
        Errno(error.errno)
    })
}

static PROFILE: InheritedOnce<Result<Profile, Errno>> = InheritedOnce::new();

/// Returns the device's profile, if it has been read.
pub(crate) fn known_profile() -> Option<&'static Profile> {
    PROFILE.get()?.as_ref().ok()
}

/// Refuses a call that the device's profile refuses; allows all before a profile is read.
///
/// # Errors
/// Fails with EOPNOTSUPP.
pub(crate) fn check_refusals(call: Call) -> Result<(), Errno> {
    let refusing = known_profile().filter(|profile| profile.refuses.has(call));
    let Some(profile) = refusing else { return Ok(()) };
    Err(NOT_SUPPORTED.because(|| {
        let driver = if profile.driver.is_empty() { "the profile" } else { profile.driver.as_str() };
        format!("{call} is refused with EOPNOTSUPP, as {driver} does: the default device has it")
    }))
}

/// Returns the device's profile, read at the first call.
///
/// # Errors
/// Fails if it, or another setting, is wrong, which was reported on standard error.
pub(crate) fn profile() -> Result<&'static Profile, Errno> {
    PROFILE.get_or_init(|| Ok(settings()?.load_profile()?)).as_ref().map_err(|errno| *errno)
}

/// Refuses a feature that the profile's device does not have.
///
/// # Errors
/// Fails with EOPNOTSUPP.
pub(crate) fn require(what: &str, has: impl FnOnce(&Profile) -> bool) -> Result<(), Errno> {
    if has(profile()?) {
        return Ok(());
    }
    Err(NOT_SUPPORTED.because(|| format!("not supported: this device's profile is without {what}")))
}
