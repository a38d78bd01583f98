//! The stages of profiles, the refusals of a controller's calls, and profiles of congestion control.

use std::fmt;

use pumice_transport::mrc::congestion::{CongestionControl, NSCC_NAME, NsccParameters, algorithm};

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

/// A profile of congestion control.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CcProfile {
    /// Its stage.
    pub stage: ProfileStage,
    /// True once the algorithm was set; no name then means no congestion control.
    pub has_algorithm: bool,
    /// The name of the algorithm.
    pub algorithm: Option<String>,
    /// The bytes of the configuration, as the controller gave them, which only the algorithm understands.
    pub config: Option<NsccParameters>,
}

/// A controller's change of a profile of congestion control.
#[derive(Debug, Clone, Default)]
pub struct CcChange {
    /// The stage to go to.
    pub stage: Option<ProfileStage>,
    /// The name of the algorithm; an inner `None` turns congestion control off.
    pub algorithm: Option<Option<String>>,
    /// The configuration.
    pub config: Option<NsccParameters>,
}

impl CcProfile {
    pub(super) fn changed(&self, change: &CcChange) -> Result<CcProfile, ControlError> {
        let mut new = self.clone();
        if let Some(name) = &change.algorithm {
            if self.stage == ProfileStage::Online {
                return Err(ControlError::busy("the algorithm of a profile that is ONLINE is not changed"));
            }
            if name.as_deref().is_some_and(|name| name != NSCC_NAME) {
                let name = name.as_deref().unwrap_or_default();
                return Err(ControlError::invalid(format!("algorithm {name}: the device has {NSCC_NAME}")));
            }
            (new.has_algorithm, new.algorithm) = (true, name.clone());
        }
        if let Some(config) = &change.config {
            new.config = Some(*config);
        }
        let Some(to) = change.stage else { return Ok(new) };
        self.stage.check_step(to)?;
        match to {
            ProfileStage::Init => return Ok(CcProfile::default()),
            _ if !new.has_algorithm => return Err(ControlError::missing(to, "ALGORITHM")),
            ProfileStage::Online if new.algorithm.is_some() && new.config.is_none() => {
                return Err(ControlError::missing(to, "CONFIG"));
            }
            _ => new.stage = to,
        }
        Ok(new)
    }

    /// Returns the algorithm for packets of `mtu_bytes`; `None` stands for none.
    pub fn make(&self, mtu_bytes: u32) -> Option<Box<dyn CongestionControl>> {
        let config = self.config?;
        algorithm(self.algorithm.as_deref(), NsccParameters { mtu_bytes, ..config })
    }
}
