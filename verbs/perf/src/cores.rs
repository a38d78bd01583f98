//! Cores for threads that measure.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to one core; to none if `core` is `None` or the process may not use it. The
/// scheduler places the other threads of the process.
pub fn pin(core: Option<usize>) {
    let Some(core) = core.filter(|core| *core < CpuSet::MAX_CPU) else { return };
    let mut allowed = CpuSet::new();
    allowed.set(core);
    // In a container that does not have this core, the thread is not pinned.
    let _ = sched_setaffinity(None, &allowed);
}

/// Returns cores for the two ends of a measurement on this machine; `None` if there are fewer than two.
pub fn two() -> [Option<usize>; 2] {
    let Ok(allowed) = sched_getaffinity(None) else { return [None, None] };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    match (cores.next(), cores.next()) {
        (Some(first), Some(second)) => [Some(first), Some(second)],
        _ => [None, None],
    }
}
