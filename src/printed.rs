//! What the command line prints: text in which nothing steers the terminal.
//!
//! Files that people were sent, and names that other processes have chosen, are in sentences and tables of
//! all commands. All of them come by here, so that no command has to think of it.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;

use pumice_device::ground::printable::printable;
use signal_hook::consts::SIGXFSZ;

/// Bytes that an unfinished character can have.
const MOST_UNFINISHED: usize = 3;

/// Says a sentence on standard error; that it is closed is no failure.
pub(crate) fn complain(sentence: &impl Display) {
    let _ = writeln!(io::stderr(), "pumice: {}", printable(&sentence.to_string()));
}

/// Beyond the limit on the size of files (`ulimit -f`) a write ends in an error that is told, and not in
/// SIGXFSZ. A program that this process becomes has the signal as it was: exec(2) takes the handler away.
/// Where the signal is ignored, it stays so.
pub(crate) fn end_in_errors_at_limits() {
    let about = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = about.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.is_some_and(|mask| mask >> (SIGXFSZ - 1) & 1 == 0) {
        // Without the handler, the signal says what the error would.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}

/// Writes text on, with control characters and marks of direction as escapes, which are also those of JSON.
/// What is no text, such as a trace for another program, must not come here.
pub(crate) struct Printed<W: Write> {
    inner: W,
    /// The beginning of a character whose end has not come.
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

/// Whether more bytes can make a character of these.
fn is_begun(bytes: &[u8]) -> bool {
    bytes.len() <= MOST_UNFINISHED
        && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

impl<W: Write> Write for Printed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nearly all of what is printed.
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
        // Wherever it is cut.
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
