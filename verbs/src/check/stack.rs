//! Call stacks of the calling thread, and their symbols.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use pumice_device::check::MAX_FRAMES;
use pumice_device::check::recorded::Frame;
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;

/// Maximum number of frames that are examined: those of the device come first.
const MAX_DEPTH: usize = 128;
/// Maximum number of return addresses whose owner is cached.
const MAX_CACHED_SYMBOLS: usize = 1 << 16;
/// Prefixes of the functions between the program's calls and the checker.
const OWN_MODULES: [&str; 15] = [
    "pumice_verbs::",
    "pumice_device::",
    "pumice_analysis::",
    "pumice_recording::",
    "pumice_engine::",
    "pumice_memory::",
    "pumice_fabric::",
    "pumice_faults::",
    "pumice_model::",
    "pumice_platform::",
    "pumice_transport::",
    "backtrace::",
    "core::",
    "alloc::",
    "std::",
];
/// Functions below the program's, which start it.
const STARTUP_FUNCTIONS: [&str; 4] =
    ["std::sys::backtrace::__rust_begin_short_backtrace", "std::rt::lang_start", "__libc_start", "_start"];

/// Cached owners of return addresses: true for the device or the standard library.
static SYMBOL_CACHE: PerProcess<Mutex<HashMap<u64, bool>>> = PerProcess::new(|_| Mutex::default());

/// Resolves a symbol once, outside of all locks, because the first time takes long.
pub(super) fn prepare() {
    capture(&mut Vec::new());
}

/// Puts the return addresses of the program's frames into `addresses`, innermost first.
pub(super) fn capture(addresses: &mut Vec<u64>) {
    let mut all = Vec::new();
    backtrace::trace(|frame| {
        all.push(frame.ip().addr() as u64);
        all.len() < MAX_DEPTH
    });
    let mut known = SYMBOL_CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_own = |address: &u64| {
        if let Some(is_own) = known.get(address) {
            return *is_own;
        }
        let is_own = outermost_name(*address).is_some_and(|name| is_device_frame(&name));
        if known.len() < MAX_CACHED_SYMBOLS {
            known.insert(*address, is_own);
        }
        is_own
    };
    let first = all.iter().position(|address| !is_own(address)).unwrap_or(all.len());
    addresses.extend(all.iter().skip(first).take(MAX_FRAMES));
}

/// Returns the name of the function that was not inlined.
fn outermost_name(address: u64) -> Option<String> {
    let mut outermost = None;
    backtrace::resolve(pointer(address), |symbol| {
        outermost = symbol.name().map(|name| format!("{name:#}"));
    });
    outermost
}

fn pointer(address: u64) -> *mut c_void {
    ptr::without_provenance_mut(address as usize)
}

/// Reports whether a function belongs to the device, as in "crate::device::Device::call" and
/// "<crate::device::DeviceInner as Drop>::drop".
fn is_device_frame(name: &str) -> bool {
    let name = name.trim_start_matches(['<', '&', '*', '(', '[']).trim_start_matches("mut ");
    OWN_MODULES.iter().any(|own| name.starts_with(own))
}

/// Returns the frames of return addresses, including inlined functions, without those of the device and those
/// before `main`.
pub(super) fn frames(addresses: &[u64]) -> Vec<Frame> {
    let mut frames: Vec<Frame> = addresses.iter().flat_map(|address| at(*address)).collect();
    let named = |frame: &Frame| frame.function.clone().unwrap_or_default();
    let is_before = |frame: &Frame| STARTUP_FUNCTIONS.iter().any(|known| named(frame).starts_with(known));
    if let Some(end) = frames.iter().position(is_before) {
        frames.truncate(end);
    }
    let first = frames.iter().position(|frame| !is_device_frame(&named(frame))).unwrap_or(0);
    frames.drain(..first);
    let last = frames.iter().rposition(|frame| !is_device_frame(&named(frame)));
    frames.truncate(last.map_or(0, |last| last + 1));
    frames
}

fn at(address: u64) -> Vec<Frame> {
    let program = outside::environment::own_path().to_string_lossy().into_owned();
    let unknown = Frame { object: program, offset: address, ..Frame::default() };
    let mut found = Vec::new();
    backtrace::resolve(pointer(address), |symbol| {
        found.push(Frame {
            function: symbol.name().map(|name| format!("{name:#}")),
            file: symbol.filename().map(|file| file.to_string_lossy().into_owned()),
            line: symbol.lineno(),
            ..unknown.clone()
        });
    });
    if found.is_empty() {
        found.push(unknown);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_device_are_distinguished_from_those_of_programs() {
        for (name, is_own) in [
            ("pumice_verbs::device::calls::Device::call", true),
            ("<pumice_verbs::objects::completion::CqInner as core::ops::drop::Drop>::drop", true),
            ("core::ptr::drop_in_place", true),
            ("check_planted::cq_too_small", false),
            ("pumice_perf::session::run", false),
            ("<my::Pumice as Drop>::drop", false),
        ] {
            assert_eq!(is_device_frame(name), is_own, "{name}");
        }
    }
}
