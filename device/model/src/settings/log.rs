//! The log level: how much is written to standard error.

use std::fs::{File, Metadata};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

/// The levels of the log; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// No sentences, except about wrong settings and a device that cannot be opened.
    Off,
    /// Also queue pairs that fail.
    Error,
    /// Also refused calls and dropped messages.
    Warn,
    /// Also the settings with which the device was opened.
    Info,
    /// Everything.
    Debug,
}

/// Reports whether the device may write sentences to standard error without being asked: then the level is
/// `warn` when the user sets none. It may not where standard error is closed, nor where it is the same socket
/// as standard input, as in a server that inetd starts: the peer would take the sentences for an answer.
pub fn standard_error_is_free() -> bool {
    let Some(standard_error) = about(std::io::stderr().as_fd()) else { return false };
    if !standard_error.file_type().is_socket() {
        return true;
    }
    let same = |input: Metadata| (input.dev(), input.ino()) == (standard_error.dev(), standard_error.ino());
    !about(std::io::stdin().as_fd()).is_some_and(same)
}

/// Returns the metadata of a descriptor's file; `None` if it is closed.
fn about(descriptor: BorrowedFd<'_>) -> Option<Metadata> {
    File::from(descriptor.try_clone_to_owned().ok()?).metadata().ok()
}

impl LogLevel {
    /// All levels, from silent to verbose.
    pub const ALL: [LogLevel; 5] =
        [LogLevel::Off, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];

    /// Returns the name of the level, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }

    /// Returns the level of a name.
    ///
    /// # Errors
    /// No level has this name; the sentence lists the levels.
    pub fn parse(name: &str) -> Result<LogLevel, String> {
        let found = LogLevel::ALL.into_iter().find(|level| level.name() == name);
        found.ok_or_else(|| format!("the levels are {}", LogLevel::ALL.map(LogLevel::name).join(", ")))
    }
}
