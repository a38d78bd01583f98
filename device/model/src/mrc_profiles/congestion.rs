//! Profiles of congestion control.

use pumice_transport::mrc::congestion::{CongestionControl, NSCC_NAME, NsccParameters, algorithm};

use super::stage::{ControlError, ProfileStage};

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
