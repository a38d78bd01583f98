//! The report of faults, which rules about calls and the device's rules about packets write together.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pumice_device::faults::ReportLine;
use pumice_device::faults::calls::{CallFaults, CallFired};
use pumice_device::outside::lineage::PerProcess;
use pumice_device::outside::output_file::{OutputFile, Say, whole_lines};

use crate::ground::environment;
use crate::ground::log::print_always;
use crate::ground::own_file::{Written, expand, open_own};
use crate::ground::process::own_process;

/// The report of this process, once it is open.
static REPORT: PerProcess<Mutex<Option<OutputFile>>> = PerProcess::new(|_| Mutex::new(None));

/// The report of faults of this process, by a handle of its own: what several handles write comes one after
/// the other. That it cannot be written any more is said, by one of them.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn fault_report(pattern: &Path) -> io::Result<OutputFile> {
    static WRITTEN: Written = PerProcess::new(|_| Mutex::new(None));
    let own = own_process();
    let mut report = REPORT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = &*report {
        return file.another(say());
    }
    let (file, path) = open_own(pattern, &WRITTEN, || {})?;
    if path != expand(pattern, own) {
        print_always(&format!(
            "{} is being written by another process; faults of process {own} go to {}",
            pattern.display(),
            path.display()
        ));
    }
    let file = OutputFile::new(file, path, "the report of faults", whole_lines, say());
    let handle = file.another(say());
    *report = Some(file);
    handle
}

fn say() -> Say {
    Box::new(print_always)
}

/// The part of it that is about calls, once there are rules about them.
static OF_CALLS: PerProcess<Mutex<Option<OutputFile>>> = PerProcess::new(|_| Mutex::new(None));

/// Begins: names the rules. Nothing happens without rules, without a report, and a second time. That it
/// cannot be written is said when the device is opened, too.
pub(super) fn begin(faults: &CallFaults) {
    let pattern = environment::settings().ok().and_then(|settings| settings.fault_report.as_deref());
    let Some(pattern) = pattern.filter(|_| faults.is_active()) else { return };
    let mut of_calls = OF_CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    if of_calls.is_some() {
        return;
    }
    let Ok(mut file) = fault_report(pattern) else { return };
    let rules = faults.first_names().map(str::to_owned).collect();
    let (process, seed) = (faults.tag().to_owned(), faults.seed());
    write(&mut file, &ReportLine::Begin { process, seed, rules, device: None });
    *of_calls = Some(file);
}

/// A rule applied. `device`: that of the call, if the process has several.
pub(super) fn fired(fired: &CallFired<'_>, device: Option<&str>) {
    if let Some(file) = &mut *OF_CALLS.lock().unwrap_or_else(PoisonError::into_inner) {
        write(file, &ReportLine::of_call(fired).on(device));
    }
}

/// The process ends: which rules never applied. A lock that is held is not waited for.
pub(super) fn end(faults: &CallFaults) {
    let Ok(mut of_calls) = OF_CALLS.try_lock() else { return };
    if let Some(file) = &mut *of_calls {
        let never = faults.unfired().map(str::to_owned).collect();
        write(file, &ReportLine::End { process: faults.tag().to_owned(), never, device: None });
    }
}

fn write(file: &mut OutputFile, line: &ReportLine) {
    // A disk that is full must not end the program: it is said, and who reads the report misses its end.
    let _ = file.append(line.text().as_bytes());
}
