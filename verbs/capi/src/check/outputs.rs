//! Output of findings: standard error, the file of the report, and the thread that writes them.
//!
//! Writing of findings by a separate thread, because finding symbols takes long.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_device::check::recorded::{Format, ReportEntry, ReportHeader, document, paragraphs, summary};
use pumice_device::check::{Checker, ExplainedFailure, RecordedFinding, Suppressions, holding};
use pumice_device::outside;
use pumice_device::outside::fork_generation::{PerProcess, current_pid};
use pumice_device::outside::output_file::{OutputFile, complete_lines};
use pumice_device::outside::system_call::Uncancelled;
use pumice_device::settings::{CheckSettings, LogLevel, Marks};

use super::{killed, threads};
use crate::call_sites::stack;
use crate::call_sites::state::{self, call_site_lines, checker, is_on};
use crate::log::{log_always, logs, print_always};
use crate::platform;
use crate::platform::{WrittenPath, open_process_file};

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
        let settings = platform::settings().ok().and_then(|settings| settings.check.as_ref());
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
    const fn is_ended_by(&mut self, signal: &'static str) {
        self.ended_by = signal;
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Reports whether the caller has to start the thread.
    fn begins_thread(&mut self) -> bool {
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
            let entry = ReportEntry::new(recorded, stack::frames);
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

/// Interval at which the thread looks for news.
const PERIOD: Duration = Duration::from_millis(25);
/// Turns of the thread between two checks of waiting completions: a tenth of a second.
const TURNS_PER_CHECK: u64 = 4;
/// Longest time that an exit waits for the writer.
const PATIENCE: Duration = Duration::from_secs(5);

static OUTPUTS: PerProcess<Mutex<Outputs>> = PerProcess::new(|_| Mutex::new(Outputs::new()));

/// Returns the outputs, which one thread uses at a time; locked before the checker.
pub(super) fn outputs() -> &'static Mutex<Outputs> {
    &OUTPUTS
}

/// Locks the outputs and returns them.
fn lock() -> MutexGuard<'static, Outputs> {
    OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread of this process, if it does not run. The caller has signals blocked.
pub(super) fn start() {
    let mut outputs = lock();
    outputs.open();
    if !outputs.begins_thread() {
        return;
    }
    let writes = || {
        for turn in 1_u64.. {
            if !is_on() {
                return;
            }
            if turn % TURNS_PER_CHECK == 0 {
                report_sleepers();
            }
            if let Some(signal) = killed::pending() {
                lock().is_ended_by(killed::name_of(signal));
                end_by_signal();
                return killed::is_written();
            }
            write_news(&mut lock());
            outside::sleep(PERIOD);
        }
    };
    // Without a thread all findings are written at the end.
    killed::has_writer(outside::thread::start("pumice-check", None, writes).is_ok());
}

/// Reports threads that sleep although completions wait.
fn report_sleepers() {
    let waiting = holding(|| state::lock().collect_waiting());
    if waiting.is_empty() {
        return;
    }
    let descriptors: Vec<i32> = waiting.iter().map(|(_, descriptor)| *descriptor).collect();
    let awaited = threads::awaited(&descriptors);
    for (handle, _) in waiting.iter().filter(|(_, descriptor)| awaited.contains(descriptor)) {
        holding(|| state::lock().sleeps_in_poll(*handle));
    }
}

/// Writes new findings, in the calling thread.
pub(super) fn write_now() {
    write_news(&mut lock());
}

fn write_news(outputs: &mut Outputs) {
    let _uncancelled = Uncancelled::begin();
    let ((news, counts, left_out), effects) = holding(|| {
        let mut checker = checker().lock().unwrap_or_else(PoisonError::into_inner);
        let effects = checker.settle(false);
        (take(&mut checker), effects)
    });
    outputs.add(news, &counts, left_out);
    report_effects(&effects);
}

/// Prints failures whose cause was reported: they follow it, in the form of the log.
fn report_effects(effects: &[ExplainedFailure]) {
    if logs(LogLevel::Error) {
        // An overrun was reported when it happened.
        for ExplainedFailure { sentence, call_site, .. } in
            effects.iter().filter(|effect| !effect.is_reported)
        {
            print_always(sentence);
            call_site_lines(call_site.addresses()).iter().for_each(|frame| print_always(frame));
        }
    }
}

fn take(checker: &mut Checker) -> (Vec<pumice_device::check::RecordedFinding>, Vec<u64>, u64) {
    let findings = checker.findings();
    let news = findings.news();
    let counts = findings.all().iter().map(|one| one.count).collect();
    (news, counts, findings.left_out())
}

/// Writes all findings, because a signal ends the process.
fn end_by_signal() {
    holding(|| state::lock().is_ended_by_signal());
    end(false);
}

/// Writes all findings as at a signal, because the process ends without exit(3), in a thread that may hold
/// any lock.
pub(super) fn end_at_once() {
    let begun = outside::now();
    while outside::since(begun) < PATIENCE {
        // This thread holds it, or another one holds it for a moment.
        let Ok(mut checker) = checker().try_lock() else {
            outside::sleep(Duration::from_millis(1));
            continue;
        };
        holding(|| checker.is_ended_by_signal());
        drop(checker);
        return end(false);
    }
}

/// Writes all findings at the end of the process. Waits for locks only for a limited time, because programs
/// also exit from signal handlers.
pub(super) fn end(is_well: bool) {
    let begun = outside::now();
    while outside::since(begun) < PATIENCE {
        if let Ok(mut outputs) = OUTPUTS.try_lock() {
            let Ok(mut checker) = checker().try_lock() else {
                drop(outputs);
                outside::sleep(Duration::from_millis(1));
                continue;
            };
            let ((news, counts, left_out), effects) = holding(|| {
                if outputs.is_open() {
                    checker.ends(is_well);
                }
                let effects = checker.settle(false);
                (take(&mut checker), effects)
            });
            drop(checker);
            outputs.add(news, &counts, left_out);
            report_effects(&effects);
            return outputs.end();
        }
        outside::sleep(Duration::from_millis(1));
    }
}
