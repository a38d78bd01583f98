//! The identity of the thread of a process that makes a call.

use std::fmt;
use std::str::FromStr;

use crate::outside::thread_name::ThreadName;

/// Most threads without a name that are told apart.
const MAX_UNNAMED: u32 = 1 << 16;

/// A thread, identified in the same way in each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caller {
    /// A thread with a name.
    Named(ThreadName),
    /// A thread without a name, by the number of such threads that had made a call before.
    Unnamed(u32),
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::Named(name) => write!(f, "{name}"),
            Caller::Unnamed(number) => write!(f, "~{number}"),
        }
    }
}

/// The error of a text that names no thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidCaller;

impl FromStr for Caller {
    type Err = InvalidCaller;

    fn from_str(text: &str) -> Result<Caller, InvalidCaller> {
        let found = match text.strip_prefix('~') {
            Some(number) => number.parse().ok().filter(|number| *number < MAX_UNNAMED).map(Caller::Unnamed),
            None => text.parse().ok().map(Caller::Named),
        };
        found.ok_or(InvalidCaller)
    }
}
