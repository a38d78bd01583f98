//! Timers that are descriptors: each is an `eventfd`, into which the supervisor writes.

use std::os::fd::{AsFd as _, OwnedFd};

use super::readiness::is_readable;
use super::tracee::is_same_file;

/// A timer.
#[derive(Debug)]
struct Timer {
    file: OwnedFd,
    clock: i32,
    next_ns: Option<u64>,
    interval_ns: u64,
}

/// All timers that are descriptors.
#[derive(Debug, Default)]
pub(crate) struct Timers(Vec<Timer>);

impl Timers {
    pub(crate) fn add(&mut self, file: OwnedFd, clock: i32) {
        self.0.push(Timer { file, clock, next_ns: None, interval_ns: 0 });
    }

    fn of(&mut self, file: &OwnedFd) -> Option<&mut Timer> {
        self.0.iter_mut().find(|timer| is_same_file(&timer.file, file))
    }

    /// Returns the clock of the timer behind a descriptor.
    pub(crate) fn clock(&mut self, file: &OwnedFd) -> Option<i32> {
        self.of(file).map(|timer| timer.clock)
    }

    /// Returns when the timer fires next, and its interval; `None` if the file is no timer.
    pub(crate) fn state(&mut self, file: &OwnedFd) -> Option<(Option<u64>, u64)> {
        self.of(file).map(|timer| (timer.next_ns, timer.interval_ns))
    }

    /// Sets the time of the next firing and the interval; expirations that were counted are discarded.
    pub(crate) fn set(&mut self, file: &OwnedFd, next_ns: Option<u64>, interval_ns: u64) {
        if let Some(timer) = self.of(file) {
            (timer.next_ns, timer.interval_ns) = (next_ns, interval_ns);
            let mut count = [0; 8];
            if is_readable(timer.file.as_fd()) {
                let _ = nix::unistd::read(&timer.file, &mut count);
            }
        }
    }

    /// Returns the time at which the next timer fires.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.0.iter().filter_map(|timer| timer.next_ns).min()
    }

    /// Fires the timers that are due, and returns whether any did.
    pub(crate) fn fire(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        for timer in &mut self.0 {
            let Some(next_ns) = timer.next_ns.filter(|next_ns| *next_ns <= now_ns) else { continue };
            let more = (now_ns - next_ns).checked_div(timer.interval_ns).unwrap_or(0);
            timer.next_ns = (timer.interval_ns > 0).then(|| next_ns + (more + 1) * timer.interval_ns);
            let _ = nix::unistd::write(&timer.file, &(more + 1).to_ne_bytes());
            any = true;
        }
        any
    }
}
