//! Output of findings: standard error, and the file of the report.

use std::sync::Mutex;

use pumice_device::check::report::{Format, ReportEntry, ReportHeader, document, paragraphs, summary};
use pumice_device::check::{RecordedFinding, Suppressions};
use pumice_device::outside;
use pumice_device::outside::fork_generation::{PerProcess, current_pid};
use pumice_device::outside::output_file::{OutputFile, complete_lines};
use pumice_device::settings::{CheckSettings, Marks};

use crate::call_sites::symbols;
use crate::log::{log_always, print_always};
use crate::platform::environment;
use crate::platform::process_file::{WrittenPath, open_process_file};

/// Findings that are not suppressed, and the state of their output.
pub(crate) struct Outputs {
    settings: Option<&'static CheckSettings>,
    suppressions: Suppressions,
    /// Entries by the index of their findings; `None` if suppressed.
    entries: Vec<Option<ReportEntry>>,
    left_out: u64,
    report: Option<OutputFile>,
    is_open: bool,
    has_thread: bool,
    /// Marks that were left for the command.
    marked: Vec<Marks>,
    is_over: bool,
    /// Name of the signal by which the process crashes; empty if it does not.
    ended_by: &'static str,
}

impl Outputs {
    /// Creates the outputs without an open report.
    pub(super) fn new() -> Outputs {
        let settings = environment::settings().ok().and_then(|settings| settings.check.as_ref());
        let suppressions = settings.map(Suppressions::of).unwrap_or(Ok(Suppressions::default()));
        let suppressions = suppressions.unwrap_or_else(|error| {
            log_always(&error.to_string());
            Suppressions::default()
        });
        Outputs {
            settings,
            suppressions,
            entries: Vec::new(),
            left_out: 0,
            report: None,
            is_open: false,
            has_thread: false,
            marked: Vec::new(),
            is_over: false,
            ended_by: "",
        }
    }

    /// Records that the program has the device: there will be a report.
    pub(super) fn open(&mut self) {
        if !std::mem::replace(&mut self.is_open, true) {
            self.leave(Marks { has_device: true, ..Marks::default() });
            self.open_report();
        }
    }

    fn open_report(&mut self) {
        static WRITTEN: WrittenPath = PerProcess::new(|_| Mutex::new(None));
        if self.report.is_some() {
            return;
        }
        let pattern = self.settings.and_then(|settings| settings.report.as_deref());
        let opened = pattern.map(|pattern| open_process_file(pattern, &WRITTEN, || {}));
        match opened {
            Some(Ok((file, path))) => {
                let error_printer = Box::new(|sentence: &str| print_always(sentence));
                self.report =
                    Some(OutputFile::new(file, path, "the report of checks", complete_lines, error_printer));
                // A process that is killed leaves a document, too.
                self.rewrite(false);
            }
            Some(Err(error)) => {
                log_always(&format!("the report of checks cannot be written: {error}"));
                self.leave(Marks { lacks_report: true, ..Marks::default() });
            }
            None => {}
        }
    }

    /// Records that a signal of this name ends the process; empty for a signal with which people end
    /// programs.
    pub(super) const fn is_ended_by(&mut self, signal: &'static str) {
        self.ended_by = signal;
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Reports whether the caller has to start the thread.
    pub(super) fn begins_thread(&mut self) -> bool {
        !std::mem::replace(&mut self.has_thread, true)
    }

    /// Closes the report of the parent, which a child has open as well.
    pub(super) fn close(&mut self) {
        self.report = None;
    }

    /// Adds new findings. `counts` has the numbers of all findings.
    pub(super) fn add(&mut self, news: Vec<RecordedFinding>, counts: &[u64], left_out: u64) {
        self.left_out = left_out;
        for (entry, count) in self.entries.iter_mut().zip(counts) {
            if let Some(entry) = entry {
                entry.finding.count = *count;
            }
        }
        if news.is_empty() {
            return;
        }
        // A child may have findings without a device of its own.
        self.open_report();
        let first = self.entries.len();
        for recorded in news {
            let entry = ReportEntry::new(recorded, symbols::frames);
            let is_reported = !self.suppressions.cover(&entry);
            self.entries.push(Some(entry).filter(|_| is_reported));
        }
        let reported: Vec<ReportEntry> = self.entries.iter().skip(first).flatten().cloned().collect();
        for text in paragraphs(&reported) {
            print_always(&text);
            if self.format() == Format::Text {
                self.append(&(text + "\n"));
            }
        }
        reported.iter().for_each(|entry| self.mark(entry));
        self.rewrite(false);
    }

    /// Writes the end at the end of the process.
    pub(super) fn end(&mut self) {
        let has_ended = std::mem::replace(&mut self.is_over, true);
        if has_ended || !(self.is_open || self.entries.iter().any(Option::is_some)) {
            return;
        }
        let summary = summary(&self.reported(), &self.about(true));
        print_always(&summary);
        if self.format() == Format::Text {
            self.append(&(summary + "\n"));
        }
        self.rewrite(true);
    }

    fn format(&self) -> Format {
        let given = self.settings.and_then(|settings| settings.format);
        let file = self.settings.and_then(|settings| settings.report.as_deref());
        given.or_else(|| file.map(Format::of_file)).unwrap_or_default()
    }

    fn reported(&self) -> Vec<ReportEntry> {
        self.entries.iter().flatten().cloned().collect()
    }

    fn about(&self, is_whole: bool) -> ReportHeader {
        let program = outside::environment::program().to_string_lossy().into_owned();
        let suppressed = self.entries.iter().filter(|entry| entry.is_none()).count() as u64;
        let (ended_by, left_out) = (self.ended_by, self.left_out);
        ReportHeader { program, process: current_pid(), is_whole, ended_by, suppressed, left_out }
    }

    fn append(&mut self, text: &str) {
        // A full disk must not end the program; the error is logged, and the command is notified.
        if self.report.as_mut().is_some_and(|file| file.append(text.as_bytes()).is_err()) {
            self.leave(Marks { lacks_report: true, ..Marks::default() });
        }
    }

    /// Writes a report that is one document again.
    fn rewrite(&mut self, is_whole: bool) {
        let format = self.format();
        if format == Format::Text {
            return;
        }
        let document = document(&self.reported(), &self.about(is_whole), format);
        // The error is handled as above.
        if self.report.as_mut().is_some_and(|file| file.replace(document.as_bytes()).is_err()) {
            self.leave(Marks { lacks_report: true, ..Marks::default() });
        }
    }

    /// Notifies the command line, once for each level, that there are findings.
    fn mark(&mut self, entry: &ReportEntry) {
        let marks = entry.marks();
        if !self.marked.contains(&marks) {
            self.marked.push(marks);
            self.leave(marks);
        }
    }

    fn leave(&self, marks: Marks) {
        if let Some(settings) = self.settings {
            settings.leave(marks);
        }
    }
}
