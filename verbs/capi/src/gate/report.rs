//! The report of calls (PUMICE_CALL_REPORT): a line of JSON for each rule that applied, and one when the
//! process ends, with the calls that it made and the objects that it left.

use std::fmt::{Display, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pumice_calls::Ordinals;
use pumice_device::faults::calls::{CallFired, errno_text};
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::outside::output_file::{OutputFile, complete_lines};
use pumice_device::platform::ordinal::{CallOrdinal, Ordinal};

use super::inventory::{self, HeldObject};
use crate::log::{log_always, print_always};

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
    if let Some(left) = inventory::leftovers() {
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
