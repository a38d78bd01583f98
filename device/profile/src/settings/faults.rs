//! The fault plan that the settings ask for.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

use pumice_faults::{FaultPlan, MAX_PLAN_BYTES, READY, ReadyPlan};
use pumice_ground::outside;
use pumice_ground::similar::suggestion;

use super::{DEFAULT_SEED, FAULT, FAULTS, SettingError, Settings};

impl Settings {
    /// The plan of PUMICE_FAULTS, with the rules of PUMICE_FAULT and PUMICE_LOSS.
    ///
    /// # Errors
    /// The file cannot be read: what the system says; the plan makes no sense: EINVAL.
    pub fn load_faults(&self) -> Result<FaultPlan, SettingError> {
        let seed = self.seed.unwrap_or(DEFAULT_SEED);
        let mut plan = match &self.faults {
            None => FaultPlan::seeded(seed),
            Some(path) => {
                let refused = |problem: String| SettingError::new(FAULTS, path.to_string_lossy(), problem);
                let plan =
                    FaultPlan::parse(&text_of(path)?, seed).map_err(|error| refused(error.to_string()))?;
                // What is said beside the file counts more than what the file says.
                if let Some(seed) = self.seed { plan.reseeded(seed) } else { plan }
            }
        };
        for line in &self.fault_lines {
            let refused = |problem: String| SettingError::new(FAULT, line.clone(), problem);
            plan = plan.with_line(line).map_err(|error| refused(error.to_string()))?;
        }
        if self.loss_ppm > 0 {
            plan = plan.losing(self.loss_ppm);
            plan.check_rules().map_err(|error| {
                let problem = format!("the plan has a rule \"{}\" already: give it another name", error.rule);
                SettingError::new(super::LOSS, format!("{} %", f64::from(self.loss_ppm) / 1e4), problem)
            })?;
        }
        plan.check_waiting().map_err(|error| {
            let line = self.fault_lines.iter().find(|line| line.contains("after")).cloned();
            SettingError::new(FAULT, line.unwrap_or_default(), error.to_string())
        })?;
        Ok(plan)
    }
}

/// The text of a plan: that of a ready one if the name is none of a file.
fn text_of(path: &Path) -> Result<String, SettingError> {
    let ready = path.to_str().and_then(ReadyPlan::named);
    if let Some(ready) = ready.filter(|_| !path.exists()) {
        return Ok(ready.text.to_owned());
    }
    let refused = |problem: String| SettingError::new(FAULTS, path.to_string_lossy(), problem);
    let mut text = String::new();
    let read =
        outside::files::open(path).and_then(|file| file.take(MAX_PLAN_BYTES + 1).read_to_string(&mut text));
    read.map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        let problem = if path.components().count() == 1 && error.kind() == ErrorKind::NotFound {
            let names: Vec<&str> = READY.iter().map(|plan| plan.name).collect();
            let meant = suggestion(&path.to_string_lossy(), names.iter().copied());
            format!("it is neither a file nor a ready plan ({}){meant}", names.join(", "))
        } else {
            format!("the plan cannot be read: {error}")
        };
        refused(problem).with_errno(errno)
    })?;
    if text.len() as u64 > MAX_PLAN_BYTES {
        return Err(refused(format!("it has more than {MAX_PLAN_BYTES} bytes: shorten it")));
    }
    Ok(text)
}
