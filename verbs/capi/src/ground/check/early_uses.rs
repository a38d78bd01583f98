//! Results of READs and atomics that the program uses before it has polled the completion: breakpoints of the
//! processor see the accesses of the thread that has posted.

use pumice_device::check::{Watchpoints, holds_checker};
use pumice_device::outside::data_watch::{self, FRAMES, Word};

use super::stack;
use crate::ground::gate;

/// How the checker watches memory.
pub(super) const WATCHPOINTS: Watchpoints =
    Watchpoints { begin, end: data_watch::end, take: data_watch::take };

fn begin(words: &[Word]) -> Option<u64> {
    // The handler of signals may not look for them.
    stack::prepare_ranges();
    data_watch::begin(look, words)
}

/// This process is a child.
pub(super) fn forked() {
    data_watch::forked();
}

/// In a handler of signals, in the middle of the program's own code, or of this library's: what the library
/// does with the memory is not the program's doing. Where the C library's accesses do not count, it may have
/// looked at what lies beside the result.
fn look(instruction: usize, its_stack: usize, by_library: bool, frames: &mut [u64; FRAMES]) -> usize {
    let at = instruction as u64;
    let library = stack::c_library();
    let is_ours = gate::current().is_some() || holds_checker() || stack::is_own(at);
    if is_ours || (!by_library && library.contains(&at)) {
        return 0;
    }
    let count = stack::unwind_trap(at, its_stack as u64, frames).min(FRAMES);
    // Functions of the C library are not the program's own: their caller is where it is.
    let known = frames.get(..count).unwrap_or_default();
    let own = known.iter().position(|address| !library.contains(address)).unwrap_or(0);
    if known.get(own).is_none_or(|caller| stack::is_own(*caller)) {
        return 0;
    }
    frames.copy_within(own..count, 0);
    without_own(frames, count - own)
}

/// Takes the frames of this library out, which are below frames of the program that it calls back.
fn without_own(frames: &mut [u64; FRAMES], count: usize) -> usize {
    let mut kept = 0;
    for from in 0..count {
        if let Some(address) = frames.get(from).copied().filter(|address| !stack::is_own(*address))
            && let Some(to) = frames.get_mut(kept)
        {
            *to = address;
            kept += 1;
        }
    }
    kept
}
