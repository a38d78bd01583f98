//! Which thread of a process makes a call.

use std::fmt;
use std::str::FromStr;

use crate::outside::thread_name::ThreadName;

/// Threads without a name that are told apart.
const MAX_UNNAMED: u32 = 1 << 16;

/// A thread, by what it is called in each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caller {
    /// One with a name.
    Named(ThreadName),
    /// One without: so many such ones had made a call before.
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

/// The text names no thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoCaller;

impl FromStr for Caller {
    type Err = NoCaller;

    fn from_str(text: &str) -> Result<Caller, NoCaller> {
        let found = match text.strip_prefix('~') {
            Some(number) => number.parse().ok().filter(|number| *number < MAX_UNNAMED).map(Caller::Unnamed),
            None => text.parse().ok().map(Caller::Named),
        };
        found.ok_or(NoCaller)
    }
}
