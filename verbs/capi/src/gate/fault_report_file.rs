//! The report of faults, which the rules about calls and the device's rules about packets write together.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pumice_device::faults::ReportLine;
use pumice_device::faults::calls::{CallFaults, CallFired};
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::outside::output_file::{MessageSink, OutputFile, complete_lines};

use crate::log::print_always;
use crate::platform::environment;
use crate::platform::process::current_pid;
use crate::platform::process_file::{WrittenPath, expand, open_process_file};

/// The report of this process, once it is open.
static REPORT: PerProcess<Mutex<Option<OutputFile>>> = PerProcess::new(|_| Mutex::new(None));

/// Opens the report of faults of this process with a handle of its own: the output of several handles comes
/// one after the other. If it cannot be written any more, one of them reports that.
///
/// # Errors
/// Fails if it cannot be opened.
pub(crate) fn fault_report(pattern: &Path) -> io::Result<OutputFile> {
    static WRITTEN: WrittenPath = PerProcess::new(|_| Mutex::new(None));
    let own = current_pid();
    let mut report = REPORT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = &*report {
        return file.another(error_printer());
    }
    let (file, path) = open_process_file(pattern, &WRITTEN, || {})?;
    if path != expand(pattern, own) {
        print_always(&format!(
            "{} is being written by another process; faults of process {own} go to {}",
            pattern.display(),
            path.display()
        ));
    }
    let file = OutputFile::new(file, path, "the report of faults", complete_lines, error_printer());
    let handle = file.another(error_printer());
    *report = Some(file);
    handle
}

fn error_printer() -> MessageSink {
    Box::new(print_always)
}

/// Handle of the report for calls, once there are rules about them.
static CALL_HANDLE: PerProcess<Mutex<Option<OutputFile>>> = PerProcess::new(|_| Mutex::new(None));

/// Begins the report with the names of the rules. It does nothing without rules, without a report, and a
/// second time. An unwritable report is also reported when the device is opened.
pub(super) fn begin(faults: &CallFaults) {
    let pattern = environment::settings().ok().and_then(|settings| settings.fault_report.as_deref());
    let Some(pattern) = pattern.filter(|_| faults.is_active()) else { return };
    let mut of_calls = CALL_HANDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if of_calls.is_some() {
        return;
    }
    let Ok(mut file) = fault_report(pattern) else { return };
    let rules = faults.first_names().map(str::to_owned).collect();
    let (process, seed) = (faults.tag().to_owned(), faults.seed());
    write(&mut file, &ReportLine::Begin { process, seed, rules, device: None });
    *of_calls = Some(file);
}

/// Writes that a rule applied. `device` is the name of the call's device, if the process has several.
pub(super) fn fired(fired: &CallFired<'_>, device: Option<&str>) {
    if let Some(file) = &mut *CALL_HANDLE.lock().unwrap_or_else(PoisonError::into_inner) {
        write(file, &ReportLine::of_call(fired).on(device));
    }
}

/// Writes at the end of the process which rules never applied. It does not wait for a lock that is held.
pub(super) fn end(faults: &CallFaults) {
    let Ok(mut of_calls) = CALL_HANDLE.try_lock() else { return };
    if let Some(file) = &mut *of_calls {
        let never = faults.unfired().map(str::to_owned).collect();
        write(file, &ReportLine::End { process: faults.tag().to_owned(), never, device: None });
    }
}

fn write(file: &mut OutputFile, line: &ReportLine) {
    // A full disk must not end the program: the error is reported, and the report lacks its end.
    let _ = file.append(line.text().as_bytes());
}
