//! Watched words of memory, whose accesses by the calling thread are reported.
//!
//! The processor has four registers for that, so a thread watches two pieces of memory at a time, by two
//! words of each. At an access the kernel sends the thread SIGTRAP, whose handler records the call site of
//! the program; the checker takes the record with its next event, or its thread does from time to time.
//!
//! Nothing is watched while a debugger or a world traces the process, where the program handles SIGTRAP
//! itself or the thread blocks it, where the kernel refuses such events (perf_event_paranoid above 2, a
//! seccomp filter) or is older than Linux 5.18, and on processors other than x86-64.

mod handler;
mod pair;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use super::fork_generation::{Generation, InheritedOnce};
use super::{environment, files, world};
use pair::Pairs;

pub use handler::AccessCallback;
pub use pair::{FRAMES, WatchedWord};

/// Number of pairs of a thread: the processor has four registers.
const PAIRS_OF_THREAD: usize = 2;

/// The oldest kernel that does not end a process whose thread blocks the signal of a trap.
const OLDEST_KERNEL: [u32; 2] = [5, 18];

thread_local! {
    static THREAD_PAIRS: ThreadPairs = const { ThreadPairs::new() };
}

/// The pairs of a thread.
struct ThreadPairs {
    /// The process that has opened the pairs.
    of: Cell<Option<Generation>>,
    pairs: Cell<[Option<usize>; PAIRS_OF_THREAD]>,
    /// True if no further pair is available.
    is_refused: Cell<bool>,
}

impl Drop for ThreadPairs {
    fn drop(&mut self) {
        if self.is_own() {
            self.pairs.take().into_iter().flatten().for_each(|pair| Pairs::own().close(pair));
        }
    }
}

impl ThreadPairs {
    const fn new() -> ThreadPairs {
        ThreadPairs {
            of: Cell::new(None),
            pairs: Cell::new([None; PAIRS_OF_THREAD]),
            is_refused: Cell::new(false),
        }
    }

    fn is_own(&self) -> bool {
        self.of.get().is_some_and(Generation::is_own)
    }

    fn begin(&self, words: &[WatchedWord]) -> Option<u64> {
        if !self.is_own() {
            self.of.set(Some(Generation::own()));
            self.pairs.take();
            self.is_refused.set(false);
        }
        let all = Pairs::own();
        let mut own = self.pairs.get();
        let is_idle =
            |pair: &Option<usize>| pair.is_none_or(|pair| all.at(pair).is_some_and(|one| one.is_idle()));
        let slot = own.iter_mut().find(|pair| is_idle(pair))?;
        if slot.is_none() && !self.is_refused.get() {
            *slot = all.open();
        }
        let begun = slot.and_then(|pair| all.begin(pair, words));
        if begun.is_none() {
            // The program may have closed the descriptors, which are not given back then.
            self.is_refused.set(true);
            *slot = None;
        }
        self.pairs.set(own);
        begun
    }
}

/// Watches one or two words for accesses of the calling thread, which `look` examines, and returns the ID of
/// the watch; `None`: they are not watched. The caller of this, [`end`] and [`take`] ensures that no two
/// threads call them at the same time.
pub fn begin(look: AccessCallback, words: &[WatchedWord]) -> Option<u64> {
    static IS_POSSIBLE: InheritedOnce<bool> = InheritedOnce::new();
    let may_begin = *IS_POSSIBLE.get_or_init(|| is_possible() && handler::install(look));
    if !may_begin || !handler::catches_traps() {
        return None;
    }
    THREAD_PAIRS.try_with(|own| own.begin(words)).ok().flatten()
}

/// Ends a watch, of any thread. A recorded access of it is forgotten.
pub fn end(watch: u64) {
    if let Some(pairs) = Pairs::get_if_created() {
        pairs.end(watch);
    }
}

/// Takes a recorded access, which has ended its watch: the watch, and the index of the word. Return addresses
/// of the access replace those of the list, the innermost first.
pub fn take(frames: &mut Vec<u64>) -> Option<(u64, usize)> {
    Pairs::get_if_created()?.take(frames)
}

/// Gives up the watches of the parent in a child process.
pub fn forked() {
    Pairs::forked();
}

fn is_possible() -> bool {
    let is_traced = || {
        let status = files::fact_text("/proc/self/status").unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_none_or(|tracer| tracer.trim() != "0")
    };
    let is_new = || files::fact_text("/proc/sys/kernel/osrelease").is_ok_and(|kernel| is_new_enough(&kernel));
    // Valgrind executes other instructions than the program's, and loads libraries of its own first.
    let is_translated = || {
        let preloads = environment::variable("LD_PRELOAD").unwrap_or_default();
        preloads.to_string_lossy().contains("vgpreload")
    };
    cfg!(target_arch = "x86_64") && !is_translated() && !world::is_in_world() && is_new() && !is_traced()
}

/// Reports whether a kernel of this name is as new as [`OLDEST_KERNEL`].
fn is_new_enough(kernel: &str) -> bool {
    let mut numbers =
        kernel.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let version = [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
    version >= OLDEST_KERNEL
}
