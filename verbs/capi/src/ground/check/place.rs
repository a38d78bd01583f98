//! Where the program is that a sentence of the log is about.

use std::sync::{Mutex, PoisonError};

use pumice_device::outside::lineage::PerProcess;

use super::state::is_on;
use super::{stack, symbols};

/// Whether this process may look for symbols, which one thread does at a time. A child whose parent was
/// forked while another thread did may not: what that thread had begun is half done.
static SYMBOLS: PerProcess<Mutex<bool>> = PerProcess::new(|before| {
    Mutex::new(before.is_none_or(|before| before.try_lock().is_ok_and(|may_look| *may_look)))
});

/// Where the calling thread is in the program; as [`place_of`]. Nothing if programs are checked: findings
/// have it. That takes some ms: ask only when something has failed.
pub(crate) fn own_place() -> Vec<String> {
    if is_on() { Vec::new() } else { place_of(&own_stack()) }
}

/// Return addresses of the program's frames in the calling thread, innermost first.
pub(crate) fn own_stack() -> Vec<u64> {
    let mut addresses = Vec::new();
    stack::capture(&mut addresses);
    addresses
}

/// Lines of the log for these return addresses, as in "    at main (server.c:42)"; none if the program has no
/// debug information for them.
pub(crate) fn place_of(addresses: &[u64]) -> Vec<String> {
    let innermost = addresses.get(..addresses.len().min(INNERMOST)).unwrap_or_default();
    let Ok(may_look) = SYMBOLS.try_lock() else { return Vec::new() };
    if !*may_look {
        return Vec::new();
    }
    let frames = symbols::frames(innermost);
    frames.iter().filter(|frame| frame.line.is_some()).map(|frame| format!("    at {frame}")).collect()
}

/// The program's frames of these return addresses, as in "main (server.c:42)".
pub(crate) fn frames_of(addresses: &[u64]) -> Vec<String> {
    let Ok(may_look) = SYMBOLS.try_lock() else { return Vec::new() };
    if !*may_look {
        return Vec::new();
    }
    symbols::frames(addresses).iter().map(ToString::to_string).collect()
}

/// Looks for symbols, once no other thread does. `None`: this process may not.
pub(super) fn looking<T>(look: impl FnOnce() -> T) -> Option<T> {
    let may_look = SYMBOLS.lock().unwrap_or_else(PoisonError::into_inner);
    may_look.then(look)
}

/// Return addresses that are looked at.
const INNERMOST: usize = 4;
