//! The program's call site that a log message is about.

use std::sync::{Mutex, PoisonError};

use pumice_device::outside::fork_generation::PerProcess;

use super::state::is_on;
use super::{stack, symbols};

/// True if this process may search for symbols, which one thread does at a time. A child whose parent was
/// forked during a search by another thread may not: the search's state is half changed.
static SYMBOLS: PerProcess<Mutex<bool>> = PerProcess::new(|before| {
    Mutex::new(before.is_none_or(|before| before.try_lock().is_ok_and(|may_search| *may_search)))
});

/// Returns the calling thread's call site in the program, as [`call_site_lines`] does; empty if programs are
/// checked, because findings have it. It takes some ms: call it only when an operation has failed.
pub(crate) fn own_call_site() -> Vec<String> {
    if is_on() { Vec::new() } else { call_site_lines(&call_stack()) }
}

/// Returns the return addresses of the program's frames in the calling thread, innermost first.
pub(crate) fn call_stack() -> Vec<u64> {
    let mut addresses = Vec::new();
    stack::capture(&mut addresses);
    addresses
}

/// Returns lines of the log for these return addresses, as in "    at main (server.c:42)"; none if the
/// program has no debug information for them.
pub(crate) fn call_site_lines(addresses: &[u64]) -> Vec<String> {
    let innermost = addresses.get(..addresses.len().min(INNERMOST)).unwrap_or_default();
    let Ok(may_search) = SYMBOLS.try_lock() else { return Vec::new() };
    if !*may_search {
        return Vec::new();
    }
    let frames = symbols::frames(innermost);
    frames.iter().filter(|frame| frame.line.is_some()).map(|frame| format!("    at {frame}")).collect()
}

/// Returns the program's frames of these return addresses, as in "main (server.c:42)".
pub(crate) fn frames_of(addresses: &[u64]) -> Vec<String> {
    let Ok(may_search) = SYMBOLS.try_lock() else { return Vec::new() };
    if !*may_search {
        return Vec::new();
    }
    symbols::frames(addresses).iter().map(ToString::to_string).collect()
}

/// Runs a search for symbols, once no other thread does. Returns `None` if this process may not.
pub(crate) fn with_symbols<T>(search: impl FnOnce() -> T) -> Option<T> {
    let may_search = SYMBOLS.lock().unwrap_or_else(PoisonError::into_inner);
    may_search.then(search)
}

/// Number of return addresses that are examined.
const INNERMOST: usize = 4;
