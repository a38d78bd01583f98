//! The processors that threads may run on.

use rustix::thread::{CpuSet, sched_getaffinity};

/// Reports whether the kernel lets this thread run on a processor, by its number; true for any if the kernel
/// does not say.
pub fn may_run_on(processor: u32) -> bool {
    let Ok(processor) = usize::try_from(processor) else { return false };
    processor < CpuSet::MAX_CPU && sched_getaffinity(None).map_or(true, |allowed| allowed.is_set(processor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_run_somewhere_and_nowhere_else() {
        assert!((0..1024).any(may_run_on));
        assert!(!may_run_on(0xffff) && !may_run_on(u32::MAX));
    }
}
