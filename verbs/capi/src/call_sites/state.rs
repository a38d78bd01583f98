//! The checker, the setting whether programs are checked, call sites of log messages, and results that a
//! program uses too early.
//!
//! Results of READs and atomics that the program uses before it has polled the completion: hardware
//! breakpoints detect the accesses of the thread that has posted.

use std::mem;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::check::{Checker, DeviceTag, Watchpoints, holding, holds_checker};
use pumice_device::memory::{fill_mapped, on_demand_is_available, read_mapped, read_registered};
use pumice_device::outside::data_watch::{self, FRAMES, WatchedWord};
use pumice_device::outside::fork_generation::PerProcess;

use super::{preload, stack};
use crate::call_sites::current_call::{current, device_at, name_of};
use crate::platform;
use crate::platform::current_pid;

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static SETTING: AtomicU8 = AtomicU8::new(UNKNOWN);
/// The checker of this process; in a child it has the state of the parent's.
pub(crate) static CHECKER: PerProcess<Arc<Mutex<Checker>>> = PerProcess::new(|before| {
    // After a system call that forks without the C library, another thread of the parent may hold it for
    // ever.
    let inherited = before.and_then(|before| before.try_lock().ok()).map(|mut known| {
        let mut checker = mem::replace(&mut *known, new_checker());
        checker.forked();
        checker
    });
    Arc::new(Mutex::new(inherited.unwrap_or_else(new_checker)))
});

/// Reports whether programs are checked.
#[inline]
pub(crate) fn is_on() -> bool {
    match SETTING.load(Ordering::Relaxed) {
        OFF => false,
        ON => true,
        _ => decide(),
    }
}

#[cold]
fn decide() -> bool {
    let is_on = platform::settings().is_ok_and(|settings| settings.check.is_some());
    if is_on {
        checker();
    }
    SETTING.store(if is_on { ON } else { OFF }, Ordering::Relaxed);
    is_on
}

/// Returns the checker of this process.
pub(crate) fn checker() -> &'static Arc<Mutex<Checker>> {
    &CHECKER
}

fn new_checker() -> Checker {
    let settings = platform::settings().ok().and_then(|settings| settings.check.as_ref());
    let checks_performance = settings.is_some_and(|settings| settings.checks_performance);
    let mut checker =
        Checker::new(stack::capture, checks_performance).with_wait_counter(preload::outside_calls);
    if on_demand_is_available() {
        checker.set_memory_reader(|ranges, out| read_mapped(current_pid(), ranges, out));
        // SAFETY: the checker asks for payload of requests that the device has taken, which is in registered
        // memory, and which the device itself copies now.
        checker.set_mapped_memory_reader(|ranges, out| unsafe { read_registered(ranges, out) });
    }
    checker.set_stack_source(stack::stack_bounds);
    checker.set_watchpoints(WATCHPOINTS);
    if settings.is_some_and(|settings| settings.poisons) {
        checker.set_poisoner(fill_mapped);
    }
    checker
}

pub(crate) fn lock() -> MutexGuard<'static, Checker> {
    checker().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the device with this index among the devices, for the checker.
pub(crate) fn of_device(index: Option<usize>) -> DeviceTag {
    let Some(index) = index else { return DeviceTag::default() };
    // There are at most 16 devices.
    DeviceTag { index: u8::try_from(index).unwrap_or_default(), name: name_of(index) }
}

/// Calls the checker as [`with_checker`] does, about the object at this address, which determines the device.
pub(crate) fn with_checker_of(address: usize, run: impl FnOnce(&mut Checker)) {
    if is_on() {
        // The device is determined before the checker is locked.
        let device = of_device(device_at(address));
        with_checker(|checker| run(checker.on(device)));
    }
}

/// Calls the checker, if there is one. The function must not call the device.
#[inline]
pub(crate) fn with_checker(run: impl FnOnce(&mut Checker)) {
    if is_on() {
        holding(|| run(&mut lock()));
    }
}

/// Functions with which the checker watches memory.
const WATCHPOINTS: Watchpoints = Watchpoints { begin, end: data_watch::end, take: data_watch::take };

fn begin(words: &[WatchedWord]) -> Option<u64> {
    // The signal handler may not search for them.
    stack::prepare_ranges();
    data_watch::begin(collect_frames, words)
}

/// Resets the watchpoints in a forked child.
pub(crate) fn forked() {
    data_watch::forked();
}

/// Collects the frames of an access, in a signal handler, in the middle of the program's own code or of this
/// library's: accesses of the library are not the program's. Where accesses of the C library do not count, it
/// may have read memory beside the result.
fn collect_frames(
    instruction: usize,
    its_stack: usize,
    by_library: bool,
    frames: &mut [u64; FRAMES],
) -> usize {
    let at = instruction as u64;
    let library = stack::c_library();
    let is_ours = current().is_some() || holds_checker() || stack::is_own(at);
    if is_ours || (!by_library && library.contains(&at)) {
        return 0;
    }
    let count = stack::unwind_trap(at, its_stack as u64, frames).min(FRAMES);
    // Functions of the C library are not the program's own: the call site is in their caller.
    let known = frames.get(..count).unwrap_or_default();
    let own = known.iter().position(|address| !library.contains(address)).unwrap_or(0);
    if known.get(own).is_none_or(|caller| stack::is_own(*caller)) {
        return 0;
    }
    frames.copy_within(own..count, 0);
    remove_own_frames(frames, count - own)
}

/// Removes the frames of this library, which are below frames of the program that it calls back.
fn remove_own_frames(frames: &mut [u64; FRAMES], count: usize) -> usize {
    let mut retained = 0;
    for from in 0..count {
        if let Some(address) = frames.get(from).copied().filter(|address| !stack::is_own(*address))
            && let Some(to) = frames.get_mut(retained)
        {
            *to = address;
            retained += 1;
        }
    }
    retained
}

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
    let frames = stack::frames(innermost);
    frames.iter().filter(|frame| frame.line.is_some()).map(|frame| format!("    at {frame}")).collect()
}

/// Returns the program's frames of these return addresses, as in "main (server.c:42)".
pub(crate) fn frames_of(addresses: &[u64]) -> Vec<String> {
    let Ok(may_search) = SYMBOLS.try_lock() else { return Vec::new() };
    if !*may_search {
        return Vec::new();
    }
    stack::frames(addresses).iter().map(ToString::to_string).collect()
}

/// Runs a search for symbols, once no other thread does. Returns `None` if this process may not.
pub(crate) fn with_symbols<T>(search: impl FnOnce() -> T) -> Option<T> {
    let may_search = SYMBOLS.lock().unwrap_or_else(PoisonError::into_inner);
    may_search.then(search)
}

/// Number of return addresses that are examined.
const INNERMOST: usize = 4;
