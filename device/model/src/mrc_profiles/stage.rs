//! The stages of profiles, and the refusals of a controller's calls.

use std::fmt;

/// Largest number of profiles of each kind.
pub const MOST_PROFILES: usize = 256;
/// Largest number of entropy values of a profile.
pub const MOST_EVS: u32 = 1024;

/// The stage of a profile, of which it takes one step at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ProfileStage {
    /// The profile has no settings yet.
    #[default]
    Init = 0,
    /// The profile is set up, and not used.
    Offline = 1,
    /// Queue pairs can use the profile.
    Online = 2,
}

impl ProfileStage {
    /// Returns the stage with this number.
    pub const fn of_number(number: u32) -> Option<ProfileStage> {
        match number {
            0 => Some(ProfileStage::Init),
            1 => Some(ProfileStage::Offline),
            2 => Some(ProfileStage::Online),
            _ => None,
        }
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            ProfileStage::Init => "INIT",
            ProfileStage::Offline => "OFFLINE",
            ProfileStage::Online => "ONLINE",
        }
    }

    /// Checks that a profile may take the step to another stage.
    pub(super) fn check_step(self, to: ProfileStage) -> Result<(), ControlError> {
        if (self as u8).abs_diff(to as u8) > 1 {
            return Err(ControlError::invalid(format!(
                "a profile goes from {} to {} by way of OFFLINE: make two calls",
                self.name(),
                to.name()
            )));
        }
        Ok(())
    }
}

/// The reason why a controller's call was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlError {
    /// The errno of the call.
    pub errno: i32,
    /// The reason, as a sentence without its end.
    pub what: String,
}

impl ControlError {
    /// Returns the refusal of a value that is wrong.
    pub fn invalid(what: impl Into<String>) -> ControlError {
        ControlError { errno: libc::EINVAL, what: what.into() }
    }

    pub(super) fn busy(what: impl Into<String>) -> ControlError {
        ControlError { errno: libc::EBUSY, what: what.into() }
    }

    pub(super) fn absent(what: impl Into<String>) -> ControlError {
        ControlError { errno: libc::ENOENT, what: what.into() }
    }

    pub(super) fn too_big(what: impl Into<String>) -> ControlError {
        ControlError { errno: libc::E2BIG, what: what.into() }
    }

    /// Returns the refusal of a step that needs an attribute.
    pub(super) fn missing(to: ProfileStage, attribute: &str) -> ControlError {
        ControlError::invalid(format!("the step to {} needs {attribute}", to.name()))
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for ControlError {}
