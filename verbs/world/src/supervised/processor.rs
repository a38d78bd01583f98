//! The single processor of a world, on which its threads and the supervisor take turns.
//!
//! Packets of the loopback interface wait in a queue of the processor that sent them, so that everything that
//! the world and its supervisor send is in one queue.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// A guard that binds the calling thread to one processor; processes and threads that it starts are bound to
/// it as well.
pub(crate) struct PinnedThread {
    before: Option<CpuSet>,
}

impl PinnedThread {
    /// Binds the calling thread to the processor that it is on, so that several worlds have several
    /// processors.
    pub(crate) fn current() -> PinnedThread {
        let own = Pid::from_raw(0);
        let before = sched_getaffinity(own).ok();
        let mut current = CpuSet::new();
        let is_bound = before.is_some()
            && sched_getcpu().and_then(|number| current.set(number)).is_ok()
            && sched_setaffinity(own, &current).is_ok();
        PinnedThread { before: before.filter(|_| is_bound) }
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(Pid::from_raw(0), before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_to_one_processor_and_then_to_those_of_before() {
        let own = Pid::from_raw(0);
        let count = |set: &CpuSet| (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true)).count();
        let before = sched_getaffinity(own).unwrap();
        let bound = PinnedThread::current();
        assert_eq!(count(&sched_getaffinity(own).unwrap()), 1);
        drop(bound);
        assert_eq!(count(&sched_getaffinity(own).unwrap()), count(&before));
    }
}
