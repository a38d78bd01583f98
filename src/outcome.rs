//! How a command ends: found good, found bad, or could not be done.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// What a command found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Good,
    /// The command did its work and found something bad, which it has reported: exit code 1.
    Bad,
}

/// Why a command could not do its work: one sentence for stderr, and an exit code.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// Writing the result failed.
    Output(io::Error),
    /// The command line has the right words with wrong values: exit code 2, as for wrong words.
    Usage(String),
    /// A program cannot be run; the exit code is the one that shells give.
    Program {
        /// Names the program and what is wrong with it.
        sentence: String,
        /// 127: there is none. 126: it cannot be executed.
        exit_code: u8,
    },
    /// Anything else; the sentence names the wrong thing and the remedy.
    Failed(String),
}

/// Result of a command.
pub(crate) type CommandResult = Result<Outcome, CommandError>;

impl CommandError {
    /// How the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            CommandError::Output(_) | CommandError::Failed(_) => ExitCode::FAILURE,
            CommandError::Usage(_) => ExitCode::from(2),
            CommandError::Program { exit_code, .. } => ExitCode::from(*exit_code),
        }
    }

    /// Whether the output's reader went away (`pumice … | head`), which is no failure of ours.
    pub(crate) fn reader_left(&self) -> bool {
        matches!(self, CommandError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Output(error) => write!(f, "the output cannot be written: {error}"),
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
