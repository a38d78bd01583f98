//! The report of calls (PUMICE_CALL_REPORT): a line of JSON for each rule that applied, and one when the
//! process ends, with the calls that it made and the objects that it left.

use std::fmt::{Display, Write as _};
use std::path::Path;

use pumice_calls::Ordinals;
use pumice_device::faults::calls::{CallFired, errno_text};
use pumice_device::ground::ordinal::{CallOrdinal, Ordinal};
use pumice_device::outside;
use pumice_device::outside::output_file::{OutputFile, whole_lines};

use super::inventory::Object;
use crate::ground::log::print_always;

/// A report that is being written.
pub(super) struct GateReport(OutputFile);

impl GateReport {
    /// Goes on with a file, or makes it; `None` if it cannot be written, which is said.
    pub(super) fn open(path: &Path) -> Result<GateReport, String> {
        let file = outside::files::options().append(true).create(true).open(path);
        let file = file.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        let say = Box::new(|sentence: &str| print_always(sentence));
        Ok(GateReport(OutputFile::new(file, path.to_owned(), "the report of calls", whole_lines, say)))
    }

    /// One write for each line: lines of processes do not mix.
    fn write(&mut self, line: &str) {
        let _ = self.0.append(format!("{line}\n").as_bytes()); // that it ends is said
    }

    pub(super) fn fired(&mut self, fired: &CallFired<'_>) {
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
        self.write(&(line + "}"));
    }

    pub(super) fn listens(&mut self) {
        self.write(&format!("{{\"event\":\"listening\",\"pid\":{}}}", outside::process::number()));
    }

    pub(super) fn ended(&mut self, counts: &Ordinals, left: Option<&[Object]>) {
        let calls: Vec<String> =
            counts.counted().map(|(call, count)| format!("{}:{count}", quoted(call.name()))).collect();
        let program = outside::environment::program();
        let mut line = format!(
            "{{\"event\":\"ended\",\"pid\":{},\"program\":{},\"calls\":{{{}}}",
            outside::process::number(),
            quoted(&program.to_string_lossy()),
            calls.join(",")
        );
        if let Some(left) = left {
            let objects: Vec<String> = left
                .iter()
                .map(|object| {
                    let Object { kind, call, ordinal, .. } = object;
                    format!(
                        "{{\"kind\":{},\"call\":{},\"nth\":{}}}",
                        quoted(kind),
                        quoted(call.name()),
                        number(CallOrdinal(*ordinal))
                    )
                })
                .collect();
            let _ = write!(line, ",\"left\":[{}]", objects.join(","));
        }
        self.write(&(line + "}"));
    }
}

/// A number of JSON, or a string if it names a thread.
fn number(ordinal: impl Display) -> String {
    let text = ordinal.to_string();
    if text.contains(':') { quoted(&text) } else { text }
}

/// A string of JSON.
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
