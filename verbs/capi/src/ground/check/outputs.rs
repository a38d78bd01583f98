//! Where findings go: standard error, and the file of the report.

use std::sync::Mutex;

use pumice_device::check::report::{About, Entry, Format, document, summary};
use pumice_device::check::{Recorded, Suppressions};
use pumice_device::outside;
use pumice_device::outside::lineage::{PerProcess, own_process};
use pumice_device::outside::output_file::{OutputFile, whole_lines};
use pumice_device::settings::{CheckSettings, Marks};

use super::symbols;
use crate::ground::environment;
use crate::ground::log::{log_always, print_always};
use crate::ground::own_file::{Written, open_own};

/// What was found and is not suppressed, and where it goes.
pub(crate) struct Outputs {
    settings: Option<&'static CheckSettings>,
    suppressions: Suppressions,
    /// By the place of their findings; `None` if suppressed.
    entries: Vec<Option<Entry>>,
    left_out: u64,
    report: Option<OutputFile>,
    is_open: bool,
    has_thread: bool,
    /// Marks that are left.
    marked: Vec<Marks>,
    is_over: bool,
}

impl Outputs {
    /// Nothing is open.
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
        }
    }

    /// The program has the device: there will be a report.
    pub(super) fn open(&mut self) {
        if !std::mem::replace(&mut self.is_open, true) {
            self.open_report();
        }
    }

    fn open_report(&mut self) {
        static WRITTEN: Written = PerProcess::new(|_| Mutex::new(None));
        if self.report.is_some() {
            return;
        }
        let pattern = self.settings.and_then(|settings| settings.report.as_deref());
        let opened = pattern.map(|pattern| open_own(pattern, &WRITTEN, || {}));
        match opened {
            Some(Ok((file, path))) => {
                let say = Box::new(|sentence: &str| print_always(sentence));
                self.report = Some(OutputFile::new(file, path, "the report of checks", whole_lines, say));
                // Also a process that is killed leaves a document.
                self.rewrite(false);
            }
            Some(Err(error)) => {
                log_always(&format!("the report of checks cannot be written: {error}"));
                self.leave(Marks { lacks_report: true, ..Marks::default() });
            }
            None => {}
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the caller is to start the thread.
    pub(super) fn begins_thread(&mut self) -> bool {
        !std::mem::replace(&mut self.has_thread, true)
    }

    /// A child lets go of the report of its parent, which it has open as well.
    pub(super) fn close(&mut self) {
        self.report = None;
    }

    /// Tells of what is new. `counts`: of all findings.
    pub(super) fn add(&mut self, news: Vec<Recorded>, counts: &[u64], left_out: u64) {
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
        for recorded in news {
            let entry = Entry::new(recorded, symbols::frames);
            if self.suppressions.cover(&entry) {
                self.entries.push(None);
                continue;
            }
            let text = entry.paragraph();
            print_always(&text);
            if self.format() == Format::Text {
                self.append(&(text + "\n"));
            }
            self.mark(&entry);
            self.entries.push(Some(entry));
        }
        self.rewrite(false);
    }

    /// The process ends.
    pub(super) fn end(&mut self) {
        let is_said = std::mem::replace(&mut self.is_over, true);
        if is_said || !(self.is_open || self.entries.iter().any(Option::is_some)) {
            return;
        }
        let summary = summary(&self.told(), &self.about(true));
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

    fn told(&self) -> Vec<Entry> {
        self.entries.iter().flatten().cloned().collect()
    }

    fn about(&self, is_whole: bool) -> About {
        let program = outside::environment::program().to_string_lossy().into_owned();
        let suppressed = self.entries.iter().filter(|entry| entry.is_none()).count() as u64;
        About { program, process: own_process(), is_whole, suppressed, left_out: self.left_out }
    }

    fn append(&mut self, text: &str) {
        // A disk that is full must not end the program; it is said, and the command is told.
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
        let document = document(&self.told(), &self.about(is_whole), format);
        // As above.
        if self.report.as_mut().is_some_and(|file| file.replace(document.as_bytes()).is_err()) {
            self.leave(Marks { lacks_report: true, ..Marks::default() });
        }
    }

    /// Tells the command line, once of each level, that there is something.
    fn mark(&mut self, entry: &Entry) {
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
