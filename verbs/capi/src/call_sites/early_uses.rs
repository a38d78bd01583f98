//! Results of READs and atomics that the program uses before it has polled the completion: hardware
//! breakpoints detect the accesses of the thread that has posted.

use pumice_device::check::{Watchpoints, holds_checker};
use pumice_device::outside::data_watch::{self, FRAMES, WatchedWord};

use super::stack;
use crate::call_sites::current_call::current;

/// Functions with which the checker watches memory.
pub(crate) const WATCHPOINTS: Watchpoints =
    Watchpoints { begin, end: data_watch::end, take: data_watch::take };

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
