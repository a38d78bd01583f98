//! The clock of a world, its timers that send signals, and its single processor.
//!
//! Packets of the loopback interface wait in a queue of the processor that sent them, so that everything that
//! the world and its supervisor send is in one queue.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// A timer of a process that sends signals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alarm {
    pub(crate) process: u32,
    /// Id of the timer; `None` for that of `alarm` and `setitimer`.
    pub(crate) number: Option<i32>,
    pub(crate) clock: i32,
    /// Signal that it sends; 0 for none.
    pub(crate) signal: i32,
    /// Value that the signal carries.
    pub(crate) value: u64,
    /// Thread that gets the signal, by its id inside of the world; `None` for any thread of the process.
    pub(crate) thread: Option<i32>,
    pub(crate) next_ns: Option<u64>,
    pub(crate) interval_ns: u64,
}

/// All timers that send signals.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    pub(crate) alarms: Vec<Alarm>,
    /// Number of timers that `timer_create` has made so far.
    pub(crate) made: i32,
}

/// A signal that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DueSignal {
    pub(crate) process: u32,
    pub(crate) thread: Option<i32>,
    pub(crate) signal: i32,
    pub(crate) value: u64,
    /// Id of the timer; 0 for that of `alarm`.
    pub(crate) number: i32,
}

impl Alarms {
    pub(crate) fn get(&mut self, process: u32, number: Option<i32>) -> Option<&mut Alarm> {
        self.alarms.iter_mut().find(|alarm| alarm.process == process && alarm.number == number)
    }

    /// Returns the timer of `alarm` and `setitimer`, which is made if it does not exist.
    pub(crate) fn plain(&mut self, process: u32) -> &mut Alarm {
        let known = self.alarms.iter().position(|alarm| alarm.process == process && alarm.number.is_none());
        let index = known.unwrap_or_else(|| {
            self.alarms.push(Alarm {
                process,
                number: None,
                clock: libc::CLOCK_REALTIME,
                signal: libc::SIGALRM,
                value: 0,
                thread: None,
                next_ns: None,
                interval_ns: 0,
            });
            self.alarms.len() - 1
        });
        &mut self.alarms[index]
    }

    /// Removes the timers of a process that has ended or executes another program: timers of `timer_create`
    /// do not survive that.
    pub(crate) fn forget(&mut self, process: u32, has_ended: bool) {
        self.alarms.retain(|alarm| alarm.process != process || (alarm.number.is_none() && !has_ended));
    }

    /// Returns the time at which the next signal is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.alarms.iter().filter_map(|alarm| alarm.next_ns).min()
    }

    /// Takes the signals that are due.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Vec<DueSignal> {
        let mut due = Vec::new();
        for alarm in &mut self.alarms {
            let Some(next_ns) = alarm.next_ns.filter(|next_ns| *next_ns <= now_ns) else { continue };
            let interval_ns = alarm.interval_ns;
            // Missed expirations are not sent again.
            let missed = (now_ns - next_ns).checked_div(interval_ns).unwrap_or(0);
            alarm.next_ns = (interval_ns > 0).then(|| next_ns + (missed + 1) * interval_ns);
            if alarm.signal != 0 {
                let Alarm { process, thread, signal, value, .. } = *alarm;
                due.push(DueSignal { process, thread, signal, value, number: alarm.number.unwrap_or(0) });
            }
        }
        due
    }
}

/// Start of the clock of every world, in ns since 1970: a Tuesday of 2026, at noon.
const BEGIN_REAL_NS: u64 = 1_790_078_400_000_000_000;
/// Time for which the machine of every world has been up when the world begins, in ns.
const BEGIN_UP_NS: u64 = 1_000_000_000_000;

/// The time as all processes of the world see it. It advances when a thread makes a call, and when all
/// threads wait.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// Time since the beginning of the world, in ns.
    now_ns: u64,
}

impl Clock {
    /// Returns the time since the world began, in ns.
    pub(crate) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the real time at which the world began, in ns since 1970.
    pub(crate) const fn begin_real_ns(&self) -> u64 {
        BEGIN_REAL_NS
    }

    /// Advances the time.
    pub(crate) const fn pass(&mut self, ns: u64) {
        self.now_ns = self.now_ns.saturating_add(ns);
    }

    /// Sets the time to `at_ns`, unless it is later already.
    pub(crate) const fn reach(&mut self, at_ns: u64) {
        if at_ns > self.now_ns {
            self.now_ns = at_ns;
        }
    }

    /// Returns what a clock of the kernel shows, or `None` if all processes do not share that clock.
    pub(crate) const fn of(&self, id: i32) -> Option<u64> {
        match id {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => {
                Some(BEGIN_REAL_NS + self.now_ns)
            }
            libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_BOOTTIME => Some(BEGIN_UP_NS + self.now_ns),
            // The processor time of a thread is taken to be all time.
            libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID => Some(self.now_ns),
            _ => None,
        }
    }

    /// Returns the time, since the world began, at which a clock of the kernel shows `shown_ns`.
    pub(crate) fn until(&self, id: i32, shown_ns: u64) -> u64 {
        let base_ns = self.of(id).map_or(0, |shown_now| shown_now - self.now_ns);
        shown_ns.saturating_sub(base_ns)
    }

    /// Returns the value of the processor's time stamp counter, which counts ns.
    pub(crate) const fn cycles(&self) -> u64 {
        BEGIN_UP_NS + self.now_ns
    }
}

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
    fn an_alarm_with_an_interval_expires_again() {
        let mut alarms = Alarms::default();
        let alarm = alarms.plain(1);
        (alarm.next_ns, alarm.interval_ns) = (Some(10), 20);
        assert!(alarms.take_due(9).is_empty());
        assert_eq!(alarms.take_due(10).len(), 1);
        assert_eq!(alarms.next_ns(), Some(30));
        assert_eq!(alarms.take_due(75).len(), 1);
        assert_eq!(alarms.next_ns(), Some(90));
        alarms.forget(1, false);
        assert_eq!(alarms.next_ns(), Some(90));
        alarms.forget(1, true);
        assert_eq!(alarms.next_ns(), None);
    }

    #[test]
    fn every_clock_moves_with_the_one_clock() {
        let mut clock = Clock::default();
        let before = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].map(|id| clock.of(id).unwrap());
        clock.pass(5);
        clock.reach(3);
        clock.reach(7);
        let after = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].map(|id| clock.of(id).unwrap());
        assert_eq!([after[0] - before[0], after[1] - before[1]], [7, 7]);
        assert_eq!(clock.until(libc::CLOCK_REALTIME, after[0] + 10), 17);
        assert_eq!(clock.of(99), None);
    }

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
