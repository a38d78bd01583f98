//! The one processor of a world: its threads and the supervisor take turns there.
//!
//! Packets of the loopback interface wait in a queue of the processor that sent them, so that all that the
//! world and its supervisor send are in one queue.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread, as long as it is bound to one processor; what it starts is bound to it as well.
pub(crate) struct Bound {
    before: Option<CpuSet>,
}

impl Bound {
    /// Binds the calling thread to the processor that it is on: several worlds have several.
    pub(crate) fn here() -> Bound {
        let own = Pid::from_raw(0);
        let before = sched_getaffinity(own).ok();
        let mut here = CpuSet::new();
        let is_bound = before.is_some()
            && sched_getcpu().and_then(|number| here.set(number)).is_ok()
            && sched_setaffinity(own, &here).is_ok();
        Bound { before: before.filter(|_| is_bound) }
    }
}

impl Drop for Bound {
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
        let bound = Bound::here();
        assert_eq!(count(&sched_getaffinity(own).unwrap()), 1);
        drop(bound);
        assert_eq!(count(&sched_getaffinity(own).unwrap()), count(&before));
    }
}
