//! The report of faults, which rules about calls and the device's rules about packets write together.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pumice_device::faults::ReportLine;
use pumice_device::faults::calls::{CallFaults, CallFired};
use pumice_device::outside::lineage::PerProcess;
use pumice_device::outside::output_file::{OutputFile, Say, whole_lines};

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

/// What is written of rules about calls.
pub(super) struct Evidence(OutputFile);

impl Evidence {
    /// Begins: names the rules. `None`: there is no report.
    pub(super) fn begin(pattern: &Path, faults: &CallFaults) -> io::Result<Evidence> {
        let mut evidence = Evidence(fault_report(pattern)?);
        let rules = faults.first_names().map(str::to_owned).collect();
        let (process, seed) = (faults.tag().to_owned(), faults.seed());
        evidence.write(&ReportLine::Begin { process, seed, rules, device: None });
        Ok(evidence)
    }

    /// `device`: that of the call, if the process has several.
    pub(super) fn fired(&mut self, fired: &CallFired<'_>, device: Option<&str>) {
        self.write(&ReportLine::of_call(fired).on(device));
    }

    pub(super) fn end(&mut self, faults: &CallFaults) {
        let never = faults.unfired().map(str::to_owned).collect();
        self.write(&ReportLine::End { process: faults.tag().to_owned(), never, device: None });
    }

    fn write(&mut self, line: &ReportLine) {
        // A disk that is full must not end the program: it is said, and who reads the report misses its end.
        let _ = self.0.append(line.text().as_bytes());
    }
}
