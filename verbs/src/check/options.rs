//! The options of a check, and the outputs of findings.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pumice_device::check::recorded::{Format, ReportEntry, ReportHeader, document, summary};
use pumice_device::check::{RecordedFinding, Suppressions};
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::outside::output_file::{OutputFile, complete_lines, on_standard_error, open_private};
use pumice_device::settings::{CheckSettings, Marks};

use super::stack;
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

/// Findings of the devices of this process, by the file of their report, which they share.
static REPORTS: PerProcess<Mutex<BTreeMap<PathBuf, SharedReport>>> = PerProcess::new(|_| Mutex::default());

#[derive(Default)]
struct SharedReport {
    /// Findings by device.
    devices: BTreeMap<u64, Vec<ReportEntry>>,
    /// Number of devices that are open.
    open: u64,
    /// The failure to write the report has been reported.
    is_unwritten: bool,
}

/// The findings of one device, and their outputs.
pub(super) struct FindingOutput {
    options: CheckOptions,
    /// File of the report, and the index of this device in it.
    report_slot: Option<(PathBuf, u64)>,
    /// Findings by the checker's index; `None` if suppressed.
    entries: Vec<Option<ReportEntry>>,
    left_out: u64,
    is_over: bool,
}

impl FindingOutput {
    /// Begins the report, if one is requested.
    pub(super) fn new(options: CheckOptions) -> FindingOutput {
        let mut output =
            FindingOutput { options, report_slot: None, entries: Vec::new(), left_out: 0, is_over: false };
        if let Some(pattern) = &output.options.settings.report {
            let name = pattern.to_string_lossy().replace("%p", &outside::process::number().to_string());
            let path = PathBuf::from(name);
            let mut reports = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
            let report = reports.entry(path.clone()).or_default();
            let device = report.devices.len() as u64;
            report.devices.insert(device, Vec::new());
            report.open += 1;
            output.report_slot = Some((path, device));
        }
        output.options.settings.leave(Marks { has_device: true, ..Marks::default() });
        output.rewrite();
        output
    }

    /// Returns the findings that are not suppressed.
    pub(super) fn entries(&self) -> Vec<ReportEntry> {
        self.entries.iter().flatten().cloned().collect()
    }

    /// Outputs new findings. `counts` are those of all findings.
    pub(super) fn add(&mut self, news: Vec<RecordedFinding>, counts: &[u64], left_out: u64) {
        self.left_out = left_out;
        let mut has_changed = !news.is_empty();
        for recorded in news {
            let entry = ReportEntry::new(recorded, stack::frames);
            if self.options.suppressions.cover(&entry) {
                self.entries.push(None);
                continue;
            }
            self.print(&entry.paragraph());
            self.mark(&entry);
            self.entries.push(Some(entry));
        }
        for (entry, count) in self.entries.iter_mut().zip(counts) {
            if let Some(entry) = entry.as_mut().filter(|entry| entry.finding.count != *count) {
                (entry.finding.count, has_changed) = (*count, true);
            }
        }
        if has_changed {
            self.rewrite();
        }
    }

    /// Ends the output, because the device is closed.
    pub(super) fn end(&mut self) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        if let Some((path, _)) = &self.report_slot
            && let Some(report) = REPORTS.lock().unwrap_or_else(PoisonError::into_inner).get_mut(path)
        {
            report.open = report.open.saturating_sub(1);
        }
        self.print(&summary(&self.entries(), &self.about(true)));
        self.rewrite();
    }

    fn about(&self, is_whole: bool) -> ReportHeader {
        let program = outside::environment::program().to_string_lossy().into_owned();
        let suppressed = self.entries.iter().filter(|entry| entry.is_none()).count() as u64;
        let (process, left_out) = (outside::process::number(), self.left_out);
        ReportHeader { program, process, is_whole, suppressed, left_out, ..ReportHeader::default() }
    }

    fn print(&self, text: &str) {
        if !self.options.is_quiet {
            on_standard_error(text);
        }
    }

    /// Writes the report again, with the findings of other devices.
    fn rewrite(&self) {
        let Some((path, device)) = &self.report_slot else { return };
        let mut reports = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(report) = reports.get_mut(path) else { return };
        report.devices.insert(*device, self.entries());
        let all: Vec<ReportEntry> = report.devices.values().flatten().cloned().collect();
        let about = self.about(report.open == 0);
        let document = document(&all, &about, self.options.format());
        if let Err(error) = replace_document(path, document.as_bytes()) {
            self.options.settings.leave(Marks { lacks_report: true, ..Marks::default() });
            if !std::mem::replace(&mut report.is_unwritten, true) {
                self.print(&format!("the report of checks cannot be written: {}: {error}", path.display()));
            }
        }
    }

    /// Reports the level of a finding to `pumice check`.
    fn mark(&self, entry: &ReportEntry) {
        self.options.settings.leave(entry.marks());
    }
}

/// Replaces a document by a new one; the old one stays if there is no room for the new one.
fn replace_document(path: &Path, document: &[u8]) -> io::Result<()> {
    let file = open_private(path)?;
    OutputFile::new(file, path.to_owned(), "the report of checks", complete_lines, Box::new(|_| {}))
        .replace(document)
}
