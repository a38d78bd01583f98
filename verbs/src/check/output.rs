//! Where findings go: standard error, the file of the report, and the program.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pumice_device::check::Recorded;
use pumice_device::check::report::{About, Entry, document, summary};
use pumice_device::outside;
use pumice_device::outside::lineage::PerProcess;
use pumice_device::outside::output_file::{OutputFile, on_standard_error, open_private, whole_lines};
use pumice_device::settings::Marks;

use super::options::CheckOptions;
use super::stack;

/// What the devices of this process have found, by the file of their report: they share it.
static REPORTS: PerProcess<Mutex<BTreeMap<PathBuf, Report>>> = PerProcess::new(|_| Mutex::default());

#[derive(Default)]
struct Report {
    /// By device.
    devices: BTreeMap<u64, Vec<Entry>>,
    /// Devices that are open.
    open: u64,
    /// That it cannot be written was said.
    is_unwritten: bool,
}

/// What one device has found.
pub(super) struct Output {
    options: CheckOptions,
    /// The file of the report, and which of its devices this is.
    place: Option<(PathBuf, u64)>,
    /// By the place of their findings; `None` if suppressed.
    entries: Vec<Option<Entry>>,
    left_out: u64,
    is_over: bool,
}

impl Output {
    /// Begins the report, if there is to be one.
    pub(super) fn new(options: CheckOptions) -> Output {
        let mut output = Output { options, place: None, entries: Vec::new(), left_out: 0, is_over: false };
        if let Some(pattern) = &output.options.settings.report {
            let name = pattern.to_string_lossy().replace("%p", &outside::process::number().to_string());
            let path = PathBuf::from(name);
            let mut reports = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
            let report = reports.entry(path.clone()).or_default();
            let device = report.devices.len() as u64;
            report.devices.insert(device, Vec::new());
            report.open += 1;
            output.place = Some((path, device));
        }
        output.rewrite();
        output
    }

    /// What was found and is not suppressed.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.iter().flatten().cloned().collect()
    }

    /// Tells of what is new. `counts`: of all findings.
    pub(super) fn add(&mut self, news: Vec<Recorded>, counts: &[u64], left_out: u64) {
        self.left_out = left_out;
        let mut has_changed = !news.is_empty();
        for recorded in news {
            let entry = Entry::new(recorded, stack::frames);
            if self.options.suppressions.cover(&entry) {
                self.entries.push(None);
                continue;
            }
            self.say(&entry.paragraph());
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

    /// The device is closed.
    pub(super) fn end(&mut self) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        if let Some((path, _)) = &self.place
            && let Some(report) = REPORTS.lock().unwrap_or_else(PoisonError::into_inner).get_mut(path)
        {
            report.open = report.open.saturating_sub(1);
        }
        self.say(&summary(&self.entries(), &self.about(true)));
        self.rewrite();
    }

    fn about(&self, is_whole: bool) -> About {
        let program = outside::environment::program().to_string_lossy().into_owned();
        let suppressed = self.entries.iter().filter(|entry| entry.is_none()).count() as u64;
        About { program, process: outside::process::number(), is_whole, suppressed, left_out: self.left_out }
    }

    fn say(&self, text: &str) {
        if !self.options.is_quiet {
            on_standard_error(text);
        }
    }

    /// Writes the report again, with what other devices have found.
    fn rewrite(&self) {
        let Some((path, device)) = &self.place else { return };
        let mut reports = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(report) = reports.get_mut(path) else { return };
        report.devices.insert(*device, self.entries());
        let all: Vec<Entry> = report.devices.values().flatten().cloned().collect();
        let about = self.about(report.open == 0);
        let document = document(&all, &about, self.options.format());
        if let Err(error) = write_whole(path, document.as_bytes()) {
            self.options.settings.leave(Marks { lacks_report: true, ..Marks::default() });
            if !std::mem::replace(&mut report.is_unwritten, true) {
                self.say(&format!("the report of checks cannot be written: {}: {error}", path.display()));
            }
        }
    }

    /// Tells `pumice check` what there is.
    fn mark(&self, entry: &Entry) {
        self.options.settings.leave(entry.marks());
    }
}

/// Writes a document in the place of one that is there, which stays if there is no room for another.
fn write_whole(path: &Path, document: &[u8]) -> io::Result<()> {
    let file = open_private(path)?;
    OutputFile::new(file, path.to_owned(), "the report of checks", whole_lines, Box::new(|_| {}))
        .replace(document)
}
