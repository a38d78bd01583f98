//! The outcomes of a command, and the output of the command line.
//!
//! Sentences and tables contain contents of files, and names that other processes have chosen. All output
//! passes through this module, so that no command has to escape them.

use std::fmt;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use pumice_device::platform::error::printable;
use signal_hook::consts::SIGXFSZ;

/// The command did its work, and all is well.
pub(crate) const GOOD: u8 = 0;
/// The command found something bad, or could not do its work.
pub(crate) const BAD: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;
/// The program exists, but cannot be executed; the exit code of shells.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The program does not exist; the exit code of shells.
pub(crate) const NO_PROGRAM: u8 = 127;
/// A signal ended the program that a command waits for: the number of the signal is added, as shells do.
pub(crate) const SIGNAL: u8 = 128;

/// The outcome of a command that did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All is well.
    Good,
    /// The command did its work and found something bad, which it has reported.
    Bad,
}

impl Outcome {
    /// Returns the exit code of the process.
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Outcome::Good => GOOD.into(),
            Outcome::Bad => BAD.into(),
        }
    }
}

/// The reason why a command could not do its work: one sentence for stderr, and an exit code.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// Writing the result failed.
    Output(io::Error),
    /// The command line is well-formed, but has invalid values; the exit code is that of a malformed one.
    Usage(String),
    /// A program cannot be run; the exit code is that of shells.
    Program {
        /// Sentence that names the program and what is wrong with it.
        sentence: String,
        /// [`NO_PROGRAM`], [`NOT_EXECUTABLE`], or the exit code of the program.
        exit_code: u8,
    },
    /// The program that the command ran ended with this exit code, and has printed the reason itself.
    ProgramEnded {
        /// Exit code of the program.
        exit_code: u8,
    },
    /// Another failure; the sentence names the wrong thing and the remedy.
    Failed(String),
}

/// Result of a command.
pub(crate) type CommandResult = Result<Outcome, CommandError>;

impl CommandError {
    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            CommandError::Output(_) | CommandError::Failed(_) => BAD.into(),
            CommandError::Usage(_) => USAGE.into(),
            CommandError::Program { exit_code, .. } | CommandError::ProgramEnded { exit_code } => {
                (*exit_code).into()
            }
        }
    }

    /// Reports whether the reader of the output has closed it (`pumice … | head`), which is no failure of
    /// this command.
    pub(crate) fn reader_left(&self) -> bool {
        matches!(self, CommandError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Output(error) => write!(f, "the output cannot be written: {error}"),
            CommandError::ProgramEnded { exit_code } => write!(f, "the program ended with {exit_code}"),
            CommandError::Usage(sentence)
            | CommandError::Failed(sentence)
            | CommandError::Program { sentence, .. } => f.write_str(sentence),
        }
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> CommandError {
        CommandError::Output(error)
    }
}

impl From<serde_json::Error> for CommandError {
    fn from(error: serde_json::Error) -> CommandError {
        CommandError::Output(error.into())
    }
}

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
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    const DOCUMENT: &str = include_str!("../docs/exit-codes.md");

    /// Returns the cells of the rows of the table below a heading.
    fn rows(heading: &str) -> Vec<Vec<&'static str>> {
        let (_, rest) = DOCUMENT.split_once(&format!("\n## {heading}\n")).expect("the heading is there");
        let lines = rest.lines().take_while(|line| !line.starts_with("## "));
        let rows = lines.filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        rows.skip(1).map(|row| row.split(" | ").collect()).collect()
    }

    #[test]
    fn the_table_has_the_codes_of_the_program() {
        let codes: Vec<&str> = rows("Codes").iter().map(|row| row[0]).collect();
        let numbers = [GOOD, BAD, USAGE, NOT_EXECUTABLE, NO_PROGRAM].map(|code| code.to_string());
        let signal = format!("{SIGNAL} + N");
        let known: Vec<&str> = numbers.iter().map(String::as_str).chain([signal.as_str()]).collect();
        assert_eq!(codes, known);
    }

    #[test]
    fn the_errors_have_the_codes_of_the_table() {
        let refused = |error: CommandError| format!("{:?}", error.exit_code());
        let code = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(refused(CommandError::Failed(String::new())), code(BAD));
        assert_eq!(refused(CommandError::Output(io::ErrorKind::StorageFull.into())), code(BAD));
        assert_eq!(refused(CommandError::Usage(String::new())), code(USAGE));
        let sentence = String::new();
        assert_eq!(refused(CommandError::Program { sentence, exit_code: NO_PROGRAM }), code(NO_PROGRAM));
        assert_eq!(format!("{:?}", Outcome::Bad.exit_code()), code(BAD));
        // An error that clap reports before a command runs.
        let wrong = Cli::command().try_get_matches_from(["pumice", "nothing"]).expect_err("no command");
        assert_eq!(wrong.exit_code(), i32::from(USAGE));
    }

    #[test]
    fn every_command_says_when_it_finds_something_bad() {
        let documented: Vec<String> = rows("Code 1").iter().map(|row| row[0].replace('`', "")).collect();
        let mut commands: Vec<String> = Vec::new();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            commands.push(format!("pumice {}", command.get_name()));
        }
        assert_eq!(documented, commands);
    }

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
