//! The reports of calls and of faults, and the objects that the program has not given back.
//!
//! The report of calls (PUMICE_CALL_REPORT): a line of JSON for each rule that applied, and one when the
//! process ends, with the calls that it made and the objects that it left.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_calls::{Call, Ordinals};
use pumice_device::event::{CallPhase, Event};
use pumice_device::faults::ReportLine;
use pumice_device::faults::calls::{CallFaults, CallFired, errno_text};
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::outside::output_file::{MessageSink, OutputFile, complete_lines};
use pumice_device::platform::ordinal::{CallOrdinal, Ordinal};

use crate::call_sites::current_call::current;
use crate::log::{log_always, print_always};
use crate::platform::{WrittenPath, current_pid, expand, open_process_file};
use crate::{check, platform};

/// An object that the program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldObject {
    pub(super) kind: &'static str,
    /// Call that made it, and its ordinal.
    pub(super) call: Call,
    pub(super) ordinal: u64,
    /// True if the program has tried to give it back.
    is_excused: bool,
}

#[derive(Default)]
struct Inventory {
    held: BTreeMap<usize, HeldObject>,
    /// Objects that were destroyed with a closed context.
    left: Vec<HeldObject>,
}

static INVENTORY: PerProcess<Mutex<Inventory>> = PerProcess::new(|_| Mutex::default());
static IS_ENABLED: AtomicBool = AtomicBool::new(false);

fn lock() -> Option<MutexGuard<'static, Inventory>> {
    let is_enabled = IS_ENABLED.load(Ordering::Relaxed);
    is_enabled.then(|| INVENTORY.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Starts the inventory; in a forked process it starts empty.
pub(super) fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
    if let Some(mut inventory) = lock() {
        *inventory = Inventory::default();
    }
}

/// Kinds of objects that `rdma_*` calls make for the program, and not for themselves.
const OF_IDENTIFIERS: [&str; 4] = ["identifier", "event channel", "queue pair", "shared receive queue"];

/// Records that the program gets an object.
pub(crate) fn handed_out(address: usize, kind: &'static str) {
    if !IS_ENABLED.load(Ordering::Relaxed) && !check::is_on() {
        return;
    }
    let Some((call, ordinal)) = current().and_then(|made| Some((made.call()?, made.ordinal()))) else {
        return;
    };
    if call.is_of_sockets() {
        return;
    }
    if call.is_of_connections() && !OF_IDENTIFIERS.contains(&kind) {
        return;
    }
    check::with_checker_of(address, |checker| checker.object_made(address as u64, kind, call.name()));
    let Some(mut inventory) = lock() else { return };
    let object = HeldObject { kind, call, ordinal, is_excused: false };
    inventory.held.insert(address, object);
}

/// Records that the program gave an object back.
pub(crate) fn given_back(address: usize) {
    if check::is_on() {
        check::misuse::forget_object(address);
    }
    check::with_checker(|checker| checker.object_destroyed(address as u64));
    if let Some(mut inventory) = lock() {
        inventory.held.remove(&address);
    }
}

/// Records that an object was destroyed with its context, which the program has closed.
pub(crate) fn left_behind(address: usize) {
    check::with_checker(|checker| checker.object_left_behind(address as u64));
    if let Some(mut inventory) = lock()
        && let Some(object) = inventory.held.remove(&address)
    {
        inventory.left.push(object);
    }
}

/// Records that the program tried to give an object back, with a call that failed.
pub(super) fn on_event(event: &Event<'_>) {
    if let Event::Call { made, phase: CallPhase::Fails } = event
        && made.call.destroys()
        && let Some(mut inventory) = lock()
        && let Some(object) = inventory.held.get_mut(&made.on)
    {
        object.is_excused = true;
    }
}

/// Returns the objects that the program has and never tried to give back; `None` if another thread is
/// changing the inventory.
pub(super) fn leftovers() -> Option<Vec<HeldObject>> {
    let inventory = INVENTORY.try_lock().ok()?;
    let all = inventory.left.iter().chain(inventory.held.values());
    Some(all.filter(|object| !object.is_excused).copied().collect())
}

/// The report of this process, once it is open.
static FAULT_REPORT: PerProcess<Mutex<Option<OutputFile>>> = PerProcess::new(|_| Mutex::new(None));

/// Opens the report of faults of this process with a handle of its own: the output of several handles comes
/// one after the other. If it cannot be written any more, one of them reports that.
///
/// # Errors
/// Fails if it cannot be opened.
pub(crate) fn fault_report(pattern: &Path) -> io::Result<OutputFile> {
    static WRITTEN: WrittenPath = PerProcess::new(|_| Mutex::new(None));
    let own = current_pid();
    let mut report = FAULT_REPORT.lock().unwrap_or_else(PoisonError::into_inner);
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
pub(super) fn begin_fault_report(faults: &CallFaults) {
    let pattern = platform::settings().ok().and_then(|settings| settings.fault_report.as_deref());
    let Some(pattern) = pattern.filter(|_| faults.is_active()) else { return };
    let mut of_calls = CALL_HANDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if of_calls.is_some() {
        return;
    }
    let Ok(mut file) = fault_report(pattern) else { return };
    let rules = faults.first_names().map(str::to_owned).collect();
    let (process, seed) = (faults.tag().to_owned(), faults.seed());
    write_fault(&mut file, &ReportLine::Begin { process, seed, rules, device: None });
    *of_calls = Some(file);
}

/// Writes that a rule applied. `device` is the name of the call's device, if the process has several.
pub(super) fn report_fault(report_fault: &CallFired<'_>, device: Option<&str>) {
    if let Some(file) = &mut *CALL_HANDLE.lock().unwrap_or_else(PoisonError::into_inner) {
        write_fault(file, &ReportLine::of_call(report_fault).on(device));
    }
}

/// Writes at the end of the process which rules never applied. It does not wait for a lock that is held.
pub(super) fn end_fault_report(faults: &CallFaults) {
    let Ok(mut of_calls) = CALL_HANDLE.try_lock() else { return };
    if let Some(file) = &mut *of_calls {
        let never = faults.unfired().map(str::to_owned).collect();
        write_fault(file, &ReportLine::End { process: faults.tag().to_owned(), never, device: None });
    }
}

fn write_fault(file: &mut OutputFile, line: &ReportLine) {
    // A full disk must not end the program: the error is reported, and the report lacks its end.
    let _ = file.append(line.text().as_bytes());
}

/// Report that is being written, if there is one.
static REPORT: PerProcess<Mutex<Option<OutputFile>>> = PerProcess::new(|_| Mutex::new(None));
/// True if there is a report; read without the lock.
static IS_WRITTEN: PerProcess<AtomicBool> = PerProcess::new(|_| AtomicBool::new(false));

/// Opens the report to append to it, or makes it. Returns whether it can be written; an error is reported.
pub(super) fn begin(path: &Path) -> bool {
    let file = match outside::files::options().append(true).create(true).open(path) {
        Ok(file) => file,
        Err(error) => {
            log_always(&format!("{} cannot be written: {error}", path.display()));
            return false;
        }
    };
    let error_printer = Box::new(|sentence: &str| print_always(sentence));
    let file = OutputFile::new(file, path.to_owned(), "the report of calls", complete_lines, error_printer);
    *REPORT.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    IS_WRITTEN.store(true, Ordering::Relaxed);
    true
}

/// Reports whether there is a report.
pub(super) fn is_written() -> bool {
    IS_WRITTEN.load(Ordering::Relaxed)
}

/// Writes a line with one write call, so that lines of processes do not mix.
fn write(report: &mut Option<OutputFile>, line: &str) {
    if let Some(file) = report {
        let _ = file.append(format!("{line}\n").as_bytes()); // an error is reported by `append`
    }
}

fn write_now(line: &str) {
    write(&mut REPORT.lock().unwrap_or_else(PoisonError::into_inner), line);
}

/// Writes that a rule applied.
pub(super) fn fired(fired: &CallFired<'_>) {
    if !is_written() {
        return;
    }
    let (rule, key) = (quoted(fired.rule), fired.key);
    let mut line = format!(
        "{{\"event\":\"fired\",\"pid\":{},\"rule\":{rule},\"call\":{},\"nth\":{}",
        outside::process::number(),
        quoted(key.call),
        number(CallOrdinal(key.ordinal))
    );
    if let Some(qp) = key.qp {
        let _ = write!(line, ",\"qp\":{}", number(Ordinal(qp)));
    }
    if let Some(errno) = fired.fate.errno {
        let _ = write!(line, ",\"errno\":{}", quoted(&errno_text(errno)));
    }
    if fired.fate.delay_ns > 0 {
        let _ = write!(line, ",\"delay_ns\":{}", fired.fate.delay_ns);
    }
    write_now(&(line + "}"));
}

/// Writes that peers can connect from now on.
pub(super) fn listens() {
    if is_written() {
        write_now(&format!("{{\"event\":\"listening\",\"pid\":{}}}", outside::process::number()));
    }
}

/// Writes at the end of the process how often it made each call, and what it has not given back. It does not
/// wait for a lock that is held.
pub(super) fn ended(counts: &Ordinals) {
    let Ok(mut report) = REPORT.try_lock() else { return };
    if report.is_none() {
        return;
    }
    let calls: Vec<String> =
        counts.counted().map(|(call, count)| format!("{}:{count}", quoted(call.name()))).collect();
    let program = outside::environment::program();
    let mut line = format!(
        "{{\"event\":\"ended\",\"pid\":{},\"program\":{},\"calls\":{{{}}}",
        outside::process::number(),
        quoted(&program.to_string_lossy()),
        calls.join(",")
    );
    if let Some(left) = leftovers() {
        let objects: Vec<String> = left
            .iter()
            .map(|object| {
                let HeldObject { kind, call, ordinal, .. } = object;
                let (kind, call, nth) = (quoted(kind), quoted(call.name()), number(CallOrdinal(*ordinal)));
                format!("{{\"kind\":{kind},\"call\":{call},\"nth\":{nth}}}")
            })
            .collect();
        let _ = write!(line, ",\"left\":[{}]", objects.join(","));
    }
    write(&mut report, &(line + "}"));
}

/// Formats an ordinal as a number of JSON, or as a string if it names a thread.
fn number(ordinal: impl Display) -> String {
    let text = ordinal.to_string();
    if text.contains(':') { quoted(&text) } else { text }
}

/// Formats a string of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_json_are_quoted() {
        let thread = "2:1".parse::<Ordinal>().expect("an ordinal");
        assert_eq!((number(Ordinal(3)), number(thread)), ("3".to_owned(), "\"2:1\"".to_owned()));
        assert_eq!(quoted("a\"b\\c\nd"), r#""a\"b\\c\u000ad""#);
    }
}
