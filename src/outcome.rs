//! How a command ends: found good, found bad, or could not be done.

use std::fmt;
use std::io;

/// What a command found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Good,
    /// The command did its work and found something bad, which it has reported: exit code 1.
    Bad,
}

/// Why a command could not do its work: one sentence for stderr, exit code 1.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// Writing the result failed.
    Output(io::Error),
    /// Anything else; the sentence names the wrong thing and the remedy.
    Failed(String),
}

/// Result of a command.
pub(crate) type CommandResult = Result<Outcome, CommandError>;

impl CommandError {
    /// Whether the output's reader went away (`pumice … | head`), which is no failure of ours.
    pub(crate) fn reader_left(&self) -> bool {
        matches!(self, CommandError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Output(error) => write!(f, "the output cannot be written: {error}"),
            CommandError::Failed(sentence) => f.write_str(sentence),
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
