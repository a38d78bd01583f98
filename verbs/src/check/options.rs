//! The options of a check.

use std::path::PathBuf;

use pumice_device::check::Suppressions;
use pumice_device::check::recorded::Format;
use pumice_device::settings::CheckSettings;

use crate::error::{Result, VerbsError};

/// Options of the check that finds mistakes of a program with a device.
///
/// ```
/// use pumice_verbs::{CheckOptions, DeviceOptions, FabricConfig, Simulation};
///
/// # fn main() -> pumice_verbs::Result<()> {
/// let simulation = Simulation::new(FabricConfig::default());
/// let options = DeviceOptions::new().addresses([[10, 0, 0, 1].into()]).check(CheckOptions::new().quiet());
/// let device = simulation.device_with(options)?;
/// assert!(device.findings().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "give it to DeviceOptions::check"]
pub struct CheckOptions {
    pub(super) settings: CheckSettings,
    pub(super) suppressions: Suppressions,
    pub(super) is_quiet: bool,
}

impl CheckOptions {
    /// Returns options that print the findings on standard error.
    pub fn new() -> CheckOptions {
        CheckOptions::default()
    }

    /// Reports slow patterns too.
    pub fn slow_paths(mut self) -> CheckOptions {
        self.settings.checks_performance = true;
        self
    }

    /// Writes a report to a file, replacing an old one: as JSON, SARIF, JUnit (`.xml`) or Markdown (`.md`)
    /// if its extension says so, else as text. The devices of a process that give the same file share it;
    /// `%p` in its name stands for the process number.
    pub fn report(mut self, file: impl Into<PathBuf>) -> CheckOptions {
        self.settings.report = Some(file.into());
        self
    }

    /// Does not report what these lines name, as in files for `pumice check --suppress`.
    ///
    /// # Errors
    /// `Invalid`: a line cannot be parsed.
    pub fn suppress(mut self, lines: &str) -> Result<CheckOptions> {
        self.suppressions = Suppressions::parse(lines).map_err(unusable)?;
        Ok(self)
    }

    /// Prints nothing on standard error.
    pub fn quiet(mut self) -> CheckOptions {
        self.is_quiet = true;
        self
    }

    /// Returns the options of the environment (`PUMICE_CHECK` and related variables, which `pumice check`
    /// sets), or `None` if nothing is to be checked.
    ///
    /// # Errors
    /// `Invalid`: a variable has an invalid value.
    pub(crate) fn of_environment() -> Result<Option<CheckOptions>> {
        let settings = CheckSettings::of_environment().map_err(|error| unusable(error.to_string()))?;
        let Some(settings) = settings else { return Ok(None) };
        let suppressions = Suppressions::of(&settings).map_err(|error| unusable(error.to_string()))?;
        Ok(Some(CheckOptions { settings, suppressions, is_quiet: false }))
    }

    pub(super) fn checks_performance(&self) -> bool {
        self.settings.checks_performance
    }

    pub(super) fn format(&self) -> Format {
        let of_file = || self.settings.report.as_deref().map(Format::of_file);
        self.settings.format.or_else(of_file).unwrap_or_default()
    }
}

fn unusable(problem: String) -> VerbsError {
    VerbsError::Invalid {
        object: "device",
        attribute: "check",
        problem: format!("cannot be used: {problem}"),
        remedy: "correct it",
    }
}
