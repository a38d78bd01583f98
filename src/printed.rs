//! The output of the command line: text without control sequences for the terminal.
//!
//! Sentences and tables contain contents of files, and names that other processes have chosen. All output
//! passes through this module, so that no command has to escape them.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;

use pumice_device::platform::error::printable;
use signal_hook::consts::SIGXFSZ;

/// Maximum number of bytes of an incomplete UTF-8 character.
const MAX_UNFINISHED: usize = 3;

/// Prints a sentence on standard error; a closed standard error is no failure.
pub(crate) fn complain(sentence: &impl Display) {
    let _ = writeln!(io::stderr(), "pumice: {}", printable(&sentence.to_string()));
}

/// Makes writes beyond the file size limit (`ulimit -f`) fail with an error that is reported, instead of
/// SIGXFSZ. A program that this process executes has the signal's default again, because exec(2) removes the
/// handler. An ignored signal stays ignored.
pub(crate) fn end_in_errors_at_limits() {
    let about = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = about.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.is_some_and(|mask| mask >> (SIGXFSZ - 1) & 1 == 0) {
        // Without the handler, the signal ends the process, which shows the same problem.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}

/// Writes text with control characters and marks of direction as escapes, which are valid in JSON too. Output
/// that is no text, such as a trace for another program, must not be written through it.
pub(crate) struct Printed<W: Write> {
    inner: W,
    /// Bytes of an incomplete character at the end of the last write.
    unfinished: Vec<u8>,
}

impl<W: Write> Printed<W> {
    pub(crate) fn new(inner: W) -> Printed<W> {
        Printed { inner, unfinished: Vec::new() }
    }

    fn write_text(&mut self, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.utf8_chunks() {
            self.inner.write_all(printable(chunk.valid()).as_bytes())?;
            match chunk.invalid() {
                [] => {}
                cut if bytes.ends_with(cut) && is_begun(cut) => self.unfinished = cut.to_vec(),
                _ => self.inner.write_all("\u{fffd}".as_bytes())?,
            }
        }
        Ok(())
    }
}

/// Reports whether more bytes can complete these to a character.
fn is_begun(bytes: &[u8]) -> bool {
    bytes.len() <= MAX_UNFINISHED
        && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

impl<W: Write> Write for Printed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nearly all output takes this fast path.
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
        if self.unfinished.is_empty() && bytes.iter().all(is_plain) {
            self.inner.write_all(bytes)?;
        } else {
            let mut all = std::mem::take(&mut self.unfinished);
            all.extend_from_slice(bytes);
            self.write_text(&all)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_printed_without_what_steers_a_terminal() {
        let text = "rule \u{1b}]0;owned\u{7} of \u{9b}2J, ä 漢\n";
        let shown = "rule \\u001b]0;owned\\u0007 of \\u009b2J, ä 漢\n";
        // The text is cut at every position.
        for cut in 0..=text.len() {
            let mut printed = Printed::new(Vec::new());
            printed.write_all(&text.as_bytes()[..cut]).expect("memory");
            printed.write_all(&text.as_bytes()[cut..]).expect("memory");
            assert_eq!(String::from_utf8(printed.inner).expect("text"), shown, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_text_is_shown_as_such() {
        let mut printed = Printed::new(Vec::new());
        printed.write_all(b"a\x9b2J\xff\xc3(").expect("memory");
        assert_eq!(String::from_utf8(printed.inner).expect("text"), "a\u{fffd}2J\u{fffd}\u{fffd}(");
    }
}
