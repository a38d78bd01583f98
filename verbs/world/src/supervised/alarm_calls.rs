//! Calls for timers that send signals: `alarm`, `setitimer`, `timer_create`.

use syscalls::Sysno;

use super::clock::Alarm;
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use super::tracee::{Tracee, queue_signal};
use crate::error::WorldError;

/// Kinds of notification of a `sigevent`.
const NO_SIGNAL: i32 = 1;
const TO_THREAD: i32 = 4;
/// Maximum number of timers of one process.
const MAX_TIMERS: usize = 1024;

impl Supervisor {
    fn process_of(&self, id: ThreadId) -> u32 {
        self.threads.get(id).map_or(0, |thread| thread.process)
    }

    /// Serves `alarm`, which returns what was left of the previous one, in seconds, rounded up.
    pub(crate) fn set_alarm(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let (now_ns, process) = (self.time.clock.now_ns(), self.process_of(id));
        let [seconds, ..] = call.arguments();
        let alarm = self.time.alarms.plain(process);
        let left_ns = alarm.next_ns.map_or(0, |next_ns| next_ns.saturating_sub(now_ns));
        let after_ns = (seconds & 0xffff_ffff) * 1_000_000_000;
        (alarm.next_ns, alarm.interval_ns) = ((after_ns > 0).then(|| now_ns + after_ns), 0);
        self.answer(id, call, left_ns.div_ceil(1_000_000_000) as i64)
    }

    /// Serves `setitimer` and `getitimer` of the real-time clock; the other clocks measure processor time,
    /// which no world measures.
    pub(crate) fn set_interval_timer(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [which, second, third, ..] = call.arguments();
        if which as i32 != libc::ITIMER_REAL {
            self.doubt(id, &format!("made the call {} for processor time", call.name()))?;
            return self.make_and_resume(id, call, super::serve::UNCHANGED);
        }
        let sets = call.number == Sysno::setitimer as u64;
        let (new, old) = if sets { (second, third) } else { (0, second) };
        let (tracee, process, now_ns) = (self.tracee(id)?, self.process_of(id), self.time.clock.now_ns());
        let alarm = self.time.alarms.plain(process);
        let left_ns = alarm.next_ns.map_or(0, |next_ns| next_ns.saturating_sub(now_ns));
        let mut done = write_timeval(tracee, old, alarm.interval_ns)
            .and_then(|()| write_timeval(tracee, old.wrapping_add(16), left_ns).map(|()| 0));
        if old == 0 {
            done = Ok(0);
        }
        if sets && done.is_ok() {
            let read = || Ok((read_timeval(tracee, new)?, read_timeval(tracee, new.wrapping_add(16))?));
            match if new == 0 { Ok((0, 0)) } else { read() } {
                Ok((interval_ns, after_ns)) => {
                    alarm.next_ns = (after_ns > 0).then(|| now_ns.saturating_add(after_ns));
                    alarm.interval_ns = interval_ns;
                }
                Err(errno) => done = Err(errno),
            }
        }
        self.answer_done(id, call, done)
    }

    /// Serves `timer_create`.
    pub(crate) fn make_alarm(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [clock, event, number_at, ..] = call.arguments();
        let (tracee, process) = (self.tracee(id)?, self.process_of(id));
        if self.time.alarms.alarms.len() >= MAX_TIMERS {
            return self.answer(id, call, -i64::from(libc::EAGAIN));
        }
        let number = self.time.alarms.made;
        let read = || -> nix::Result<(u64, i32, i32, i32)> {
            if event == 0 {
                return Ok((number as u64, libc::SIGALRM, 0, 0));
            }
            let value = tracee.read_u64(event)?;
            let word = |offset: u64| tracee.read_u32(event.wrapping_add(offset)).map(|word| word as i32);
            Ok((value, word(8)?, word(12)?, word(16)?))
        };
        let done = read().and_then(|said| tracee.write(number_at, &number.to_ne_bytes()).map(|()| said));
        let done = done.map(|(value, signal, notify, thread)| {
            self.time.alarms.made += 1;
            self.time.alarms.alarms.push(Alarm {
                process,
                number: Some(number),
                clock: clock as i32,
                signal: if notify & 3 == NO_SIGNAL { 0 } else { signal },
                value,
                thread: (notify & TO_THREAD != 0).then_some(thread),
                next_ns: None,
                interval_ns: 0,
            });
            0
        });
        self.answer_done(id, call, done)
    }

    /// Serves `timer_settime`.
    pub(crate) fn arm_alarm(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [number, flags, new, old, ..] = call.arguments();
        let (tracee, process) = (self.tracee(id)?, self.process_of(id));
        let said = tracee
            .read_timespec(new)
            .and_then(|interval_ns| Ok((interval_ns, tracee.read_timespec(new.wrapping_add(16))?)));
        let now_ns = self.time.clock.now_ns();
        let Some(alarm) = self.time.alarms.get(process, Some(number as i32)).copied() else {
            return self.answer(id, call, -i64::from(libc::EINVAL));
        };
        let done = said.and_then(|(interval_ns, at_ns)| {
            if old != 0 {
                write_state(tracee, old, alarm, now_ns)?;
            }
            let next_ns = match at_ns {
                0 => None,
                at_ns if flags as i32 & libc::TIMER_ABSTIME != 0 => {
                    Some(self.time.clock.until(alarm.clock, at_ns))
                }
                after_ns => Some(now_ns.saturating_add(after_ns)),
            };
            if let Some(alarm) = self.time.alarms.get(process, Some(number as i32)) {
                (alarm.next_ns, alarm.interval_ns) = (next_ns, interval_ns);
            }
            Ok(0)
        });
        self.answer_done(id, call, done)
    }

    /// Serves `timer_gettime`, `timer_getoverrun` and `timer_delete`.
    pub(crate) fn report_alarm(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [number, address, ..] = call.arguments();
        let (tracee, process, now_ns) = (self.tracee(id)?, self.process_of(id), self.time.clock.now_ns());
        let number = Some(number as i32);
        let Some(alarm) = self.time.alarms.get(process, number).copied() else {
            return self.answer(id, call, -i64::from(libc::EINVAL));
        };
        let done = match Sysno::new(call.number as usize) {
            Some(Sysno::timer_gettime) => write_state(tracee, address, alarm, now_ns).map(|()| 0),
            Some(Sysno::timer_delete) => {
                self.time.alarms.alarms.retain(|one| one.process != process || one.number != number);
                Ok(0)
            }
            _ => Ok(0),
        };
        self.answer_done(id, call, done)
    }

    /// Sends the signals that are due, and returns whether there were any.
    pub(crate) fn send_due_signals(&mut self) -> bool {
        let due = self.time.alarms.take_due(self.time.clock.now_ns());
        for one in &due {
            let Some(leader) = self.threads.processes.get(&one.process).map(|process| process.leader) else {
                continue;
            };
            let own = self.threads.of_process(one.process);
            let tracees = own.iter().filter_map(|id| Some(self.threads.get(*id)?.tracee));
            let inside = |tracee: &Tracee| one.thread.is_some() && tracee.number_inside() == one.thread;
            let thread = tracees.into_iter().find(inside).map(|tracee| tracee.0);
            let thread = thread.map(nix::unistd::Pid::as_raw);
            queue_signal(leader.as_raw(), thread, one.signal, one.number, one.value);
        }
        !due.is_empty()
    }
}

fn write_state(tracee: Tracee, at: u64, alarm: Alarm, now_ns: u64) -> nix::Result<()> {
    let left_ns = alarm.next_ns.map_or(0, |next_ns| next_ns.saturating_sub(now_ns).max(1));
    tracee.write_timespec(at, alarm.interval_ns)?;
    tracee.write_timespec(at.wrapping_add(16), left_ns)
}

fn read_timeval(tracee: Tracee, at: u64) -> nix::Result<u64> {
    let (seconds, micros) = (tracee.read_u64(at)?, tracee.read_u64(at.wrapping_add(8))?);
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1_000)))
}

fn write_timeval(tracee: Tracee, at: u64, ns: u64) -> nix::Result<()> {
    let (seconds, micros) = (ns / 1_000_000_000, ns % 1_000_000_000 / 1_000);
    tracee.write(at, &[seconds.to_ne_bytes(), micros.to_ne_bytes()].concat())
}
