//! The fault plan of the settings.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

use pumice_platform::outside;
use pumice_platform::quantity::suggestion;

use pumice_model::settings::{DEFAULT_SEED, FAULT, FAULTS, LOSS, SettingError, Settings};

use crate::{FaultPlan, MAX_PLAN_BYTES, READY, ReadyPlan};

impl FaultPlan {
    /// Loads the plan of PUMICE_FAULTS, with the rules of PUMICE_FAULT and PUMICE_LOSS.
    ///
    /// # Errors
    /// The file cannot be read: the system's error; the plan makes no sense: EINVAL.
    pub fn of_settings(settings: &Settings) -> Result<FaultPlan, SettingError> {
        let seed = settings.seed.unwrap_or(DEFAULT_SEED);
        let mut plan = match &settings.faults {
            None => FaultPlan::seeded(seed),
            Some(path) => {
                let refused = |problem: String| SettingError::new(FAULTS, path.to_string_lossy(), problem);
                let plan =
                    FaultPlan::parse(&text_of(path)?, seed).map_err(|error| refused(error.to_string()))?;
                // The seed of the settings wins over that of the file.
                if let Some(seed) = settings.seed { plan.reseeded(seed) } else { plan }
            }
        };
        for line in &settings.fault_lines {
            let refused = |problem: String| SettingError::new(FAULT, line.clone(), problem);
            plan = plan.with_line(line).map_err(|error| refused(error.to_string()))?;
        }
        if settings.loss_ppm > 0 {
            plan = plan.losing(settings.loss_ppm);
            plan.check_rules().map_err(|error| {
                let problem = format!("the plan has a rule \"{}\" already: give it another name", error.rule);
                SettingError::new(LOSS, format!("{} %", f64::from(settings.loss_ppm) / 1e4), problem)
            })?;
        }
        plan.check_waiting().map_err(|error| {
            let line = settings.fault_lines.iter().find(|line| line.contains("after")).cloned();
            SettingError::new(FAULT, line.unwrap_or_default(), error.to_string())
        })?;
        Ok(plan)
    }
}

/// Returns the text of a plan: that of a built-in one if no file has the name.
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::OsString;

    use pumice_model::settings::SEED;

    use super::*;

    fn parse(variables: &[(&'static str, &str)]) -> Settings {
        let map: HashMap<_, _> =
            variables.iter().map(|(name, value)| (*name, OsString::from(value))).collect();
        Settings::parse(|name| map.get(name).cloned(), false).unwrap()
    }

    #[test]
    fn a_plan_is_read_from_its_file_its_lines_and_the_loss() {
        let file = std::env::temp_dir().join(format!("pumice-plan-{}.toml", std::process::id()));
        std::fs::write(&file, "seed = 7\n[[rule]]\nname = \"loss\"\ndo = \"drop\"\n").unwrap();
        let path = file.to_str().unwrap();
        let load = |variables: &[(&'static str, &str)]| FaultPlan::of_settings(&parse(variables));
        let names =
            |plan: &FaultPlan| -> Vec<String> { plan.rules().iter().map(|rule| rule.name.clone()).collect() };
        let plan = load(&[(FAULTS, path), (FAULT, "mark qp=0\n\ndrop qp=1")]).unwrap();
        assert_eq!((plan.seed(), names(&plan)), (7, ["loss", "mark", "drop"].map(str::to_owned).to_vec()));
        assert_eq!(load(&[(FAULTS, path), (SEED, "9")]).unwrap().seed(), 9);
        let plan = load(&[(LOSS, "1%")]).unwrap();
        assert_eq!((plan.seed(), names(&plan)), (DEFAULT_SEED, vec!["loss".to_owned()]));
        let error = load(&[(FAULTS, path), (LOSS, "1%")]).unwrap_err().to_string();
        assert!(error.ends_with("the plan has a rule \"loss\" already: give it another name"), "{error}");
        let error = load(&[(FAULT, "drop qpn=0")]).unwrap_err().to_string();
        assert!(error.starts_with("PUMICE_FAULT=drop qpn=0: qpn is no field of drop"), "{error}");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(load(&[(FAULTS, path)]).unwrap_err().errno, libc::ENOENT);
    }
}
