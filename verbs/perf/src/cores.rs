//! Cores for threads that measure.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread on one core; on none in particular if `core` is none or the process may not use
/// it. The other threads of the process go where the scheduler puts them.
pub fn pin(core: Option<usize>) {
    let Some(core) = core.filter(|core| *core < CpuSet::MAX_CPU) else { return };
    let mut allowed = CpuSet::new();
    allowed.set(core);
    // A container that does not have this core measures unpinned.
    let _ = sched_setaffinity(None, &allowed);
}

/// Cores for the two ends of a measurement on this machine; none if there are fewer than two.
pub fn two() -> [Option<usize>; 2] {
    let Ok(allowed) = sched_getaffinity(None) else { return [None, None] };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    match (cores.next(), cores.next()) {
        (Some(first), Some(second)) => [Some(first), Some(second)],
        _ => [None, None],
    }
}
