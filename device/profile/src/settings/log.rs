//! How much is explained on standard error.

use std::fs::{File, Metadata};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

/// Levels of the log; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Log {
    /// Nothing but wrong settings and a device that cannot be opened.
    Off,
    /// Queue pairs that fail.
    Error,
    /// Also refused calls and dropped messages.
    Warn,
    /// Also what the device was opened with.
    Info,
    /// Everything there is.
    Debug,
}

/// Whether the device may write sentences to standard error unasked: then the level is `warn` when the user
/// sets none. It may not where standard error is closed, nor where it is the same socket as standard input,
/// as in a server that inetd starts: the peer would take the sentences for an answer.
pub fn standard_error_is_free() -> bool {
    let Some(standard_error) = about(std::io::stderr().as_fd()) else { return false };
    if !standard_error.file_type().is_socket() {
        return true;
    }
    let same = |input: Metadata| (input.dev(), input.ino()) == (standard_error.dev(), standard_error.ino());
    !about(std::io::stdin().as_fd()).is_some_and(same)
}

/// What is behind a descriptor; none, if it is closed.
fn about(descriptor: BorrowedFd<'_>) -> Option<Metadata> {
    File::from(descriptor.try_clone_to_owned().ok()?).metadata().ok()
}

impl Log {
    /// All levels, from silent to talkative.
    pub const ALL: [Log; 5] = [Log::Off, Log::Error, Log::Warn, Log::Info, Log::Debug];

    /// Its name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Log::Off => "off",
            Log::Error => "error",
            Log::Warn => "warn",
            Log::Info => "info",
            Log::Debug => "debug",
        }
    }

    /// The level of a name.
    ///
    /// # Errors
    /// There is no level of this name; the sentence lists those that are.
    pub fn parse(name: &str) -> Result<Log, String> {
        let found = Log::ALL.into_iter().find(|level| level.name() == name);
        found.ok_or_else(|| format!("the levels are {}", Log::ALL.map(Log::name).join(", ")))
    }
}
