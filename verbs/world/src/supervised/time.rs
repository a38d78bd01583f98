//! Calls that ask for the time, or wait for it.

use nix::errno::Errno;
use syscalls::Sysno;

use super::rows::SyscallClass;
use super::serve::CallOutcome;
use super::signals::PollingThread;
use super::supervisor::Supervisor;
use super::threads::{Call, IDLE_THRESHOLD, ThreadId};
use super::tracee::Registers;
use super::waits::{Interest, Wait, WaitFor, Woken};
use crate::error::WorldError;

/// Maximum number of descriptors that are polled in one call; a call with more does not wait.
const MAX_DESCRIPTORS: u64 = 4096;

impl Supervisor {
    /// Serves a call that reads clocks. A thread that does nothing else polls idly.
    pub(crate) fn report_time(
        &mut self,
        id: ThreadId,
        call: Call,
        syscall_class: SyscallClass,
    ) -> Result<(), WorldError> {
        self.count_idle_poll(id, &call);
        let tracee = self.tracee(id)?;
        if self.page_of(id).is_some()
            && syscall_class != SyscallClass::ProcessorTime
            && let Some(thread) = self.threads.get_mut(id)
        {
            // The thread has read clocks many times without a call.
            thread.polls.idle_polls = thread.polls.idle_polls.saturating_add(IDLE_THRESHOLD);
        }
        self.park_if_idle(id, call.looked_for());
        let [first, second, ..] = call.arguments();
        let real_ns = self.time.clock.of(libc::CLOCK_REALTIME).unwrap_or(0);
        let done = match syscall_class {
            SyscallClass::ClockGettime => match self.time.clock.of(first as i32) {
                Some(ns) => tracee.write_timespec(second, ns).map(|()| 0),
                None => return self.report_other_clock(id, call),
            },
            SyscallClass::Gettimeofday if first == 0 => Ok(0),
            SyscallClass::Gettimeofday => {
                let (seconds, micros) = (real_ns / 1_000_000_000, real_ns % 1_000_000_000 / 1_000);
                tracee.write(first, &[seconds.to_ne_bytes(), micros.to_ne_bytes()].concat()).map(|()| 0)
            }
            SyscallClass::Time => {
                let seconds = real_ns / 1_000_000_000;
                let written = if first == 0 { Ok(()) } else { tracee.write(first, &seconds.to_ne_bytes()) };
                written.map(|()| seconds as i64)
            }
            // The processor time of threads, and everything derived from it, is not measured.
            _ if call.number == Sysno::times as u64 => {
                let ticks = (self.time.clock.now_ns() / 10_000_000) as i64;
                let written = if first == 0 { Ok(()) } else { tracee.write(first, &[0; 32]) };
                written.map(|()| ticks)
            }
            _ => tracee.write(second, &[0; 144]).map(|()| 0),
        };
        self.answer_done(id, call, done)
    }

    /// Serves a clock that belongs to one process or thread, or that does not exist.
    fn report_other_clock(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [clock, address, ..] = call.arguments();
        // Negative numbers are clocks of processes, threads and devices.
        if (clock as i32) < 0 {
            let done = self.tracee(id)?.write_timespec(address, self.time.clock.now_ns()).map(|()| 0);
            return self.answer_done(id, call, done);
        }
        self.answer(id, call, -i64::from(libc::EINVAL))
    }

    /// Makes a thread sleep.
    pub(crate) fn sleep(
        &mut self,
        id: ThreadId,
        call: Call,
        syscall_class: SyscallClass,
        woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        let tracee = self.tracee(id)?;
        let [first, second, third, fourth, ..] = call.arguments();
        if woken == Some(Woken::Interrupted) {
            let is_relative =
                syscall_class == SyscallClass::Nanosleep || second as i32 & libc::TIMER_ABSTIME == 0;
            let rest_at = if syscall_class == SyscallClass::Nanosleep { second } else { fourth };
            if is_relative && rest_at != 0 {
                let rest_ns = self
                    .turns
                    .sleeps
                    .get(&id)
                    .map_or(0, |until_ns| until_ns.saturating_sub(self.time.clock.now_ns()));
                let _ = tracee.write_timespec(rest_at, rest_ns);
            }
            return self.answer(id, call, -i64::from(libc::EINTR));
        }
        if woken.is_some() {
            return self.answer(id, call, 0);
        }
        let until_ns = if syscall_class == SyscallClass::Nanosleep {
            tracee.read_timespec(first).map(|ns| self.time.clock.now_ns().saturating_add(ns))
        } else if second as i32 & libc::TIMER_ABSTIME != 0 {
            tracee.read_timespec(third).map(|ns| self.time.clock.until(first as i32, ns))
        } else {
            tracee.read_timespec(third).map(|ns| self.time.clock.now_ns().saturating_add(ns))
        };
        match until_ns {
            Ok(until_ns) => {
                self.turns.sleeps.insert(id, until_ns);
                self.wait(id, call, Wait::new(WaitFor::Time, Some(until_ns)))
            }
            Err(errno) => self.answer(id, call, -i64::from(errno as i32)),
        }
    }

    /// Makes a timer: a descriptor to which the supervisor writes.
    pub(crate) fn make_timer(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [clock, flags, ..] = call.arguments();
        let as_event = |registers: &mut Registers| {
            registers.orig_rax = Sysno::eventfd2 as u64;
            (registers.rdi, registers.rsi) = (0, flags);
        };
        let CallOutcome::Result(result) = self.make(id, call, &as_event)? else { return Ok(()) };
        let process = self.threads.get(id).map_or(0, |thread| thread.process);
        if let Some(file) = i32::try_from(result)
            .ok()
            .filter(|descriptor| *descriptor >= 0)
            .and_then(|descriptor| self.files.descriptors.get(&process)?.get(descriptor))
        {
            self.time.timers.add(file, clock as i32);
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    pub(crate) fn set_timer(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [descriptor, flags, new, old, ..] = call.arguments();
        let done = self.set_timer_of(id, descriptor as i32, flags as i32, new, old);
        self.turns.changes += 1;
        self.answer_done(id, call, done.map(|()| 0))
    }

    fn set_timer_of(
        &mut self,
        id: ThreadId,
        descriptor: i32,
        flags: i32,
        new: u64,
        old: u64,
    ) -> nix::Result<()> {
        let thread = self.threads.get(id).ok_or(Errno::ESRCH)?;
        let (tracee, process) = (thread.tracee, thread.process);
        let file =
            self.files.descriptors.get(&process).and_then(|all| all.get(descriptor)).ok_or(Errno::EBADF)?;
        let clock = self.time.timers.clock(&file).ok_or(Errno::EINVAL)?;
        let (interval_ns, first_ns) =
            (tracee.read_timespec(new)?, tracee.read_timespec(new.wrapping_add(16))?);
        if old != 0 {
            self.write_timer(tracee, &file, old)?;
        }
        let now_ns = self.time.clock.now_ns();
        let next_ns = match first_ns {
            0 => None,
            at_ns if flags & libc::TFD_TIMER_ABSTIME != 0 => Some(self.time.clock.until(clock, at_ns)),
            after_ns => Some(now_ns.saturating_add(after_ns)),
        };
        self.time.timers.set(&file, next_ns, interval_ns);
        Ok(())
    }

    pub(crate) fn report_timer(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [descriptor, address, ..] = call.arguments();
        let process = self.threads.get(id).map_or(0, |thread| thread.process);
        let file = self.files.descriptors.get(&process).and_then(|all| all.get(descriptor as i32));
        let tracee = self.tracee(id)?;
        let done = file.ok_or(Errno::EBADF).and_then(|file| self.write_timer(tracee, &file, address));
        self.answer_done(id, call, done.map(|()| 0))
    }

    fn write_timer(
        &mut self,
        tracee: super::tracee::Tracee,
        file: &std::os::fd::OwnedFd,
        address: u64,
    ) -> nix::Result<()> {
        let (next_ns, interval_ns) = self.time.timers.state(file).ok_or(Errno::EINVAL)?;
        let left_ns = next_ns.map_or(0, |next_ns| next_ns.saturating_sub(self.time.clock.now_ns()).max(1));
        tracee.write_timespec(address, interval_ns)?;
        tracee.write_timespec(address.wrapping_add(16), left_ns)
    }

    /// Serves `poll` and `ppoll`.
    pub(crate) fn poll(
        &mut self,
        id: ThreadId,
        call: Call,
        syscall_class: SyscallClass,
        woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        let tracee = self.tracee(id)?;
        let [list, count, timeout, ..] = call.arguments();
        let timeout_ns = match syscall_class {
            SyscallClass::Ppoll if timeout == 0 => None,
            SyscallClass::Ppoll => tracee.read_timespec(timeout).ok(),
            _ => u64::try_from(timeout as i32).ok().map(|millis| millis * 1_000_000),
        };
        let mut bytes = vec![0; (count.min(MAX_DESCRIPTORS) * 8) as usize];
        let read = tracee.read(list, &mut bytes);
        let interests = bytes.chunks_exact(8).filter_map(|entry| {
            let descriptor = i32::from_ne_bytes(entry.get(..4)?.try_into().ok()?);
            let events = i16::from_ne_bytes(entry.get(4..6)?.try_into().ok()?);
            Some(Interest { descriptor, events })
        });
        let interests: Vec<Interest> = interests.filter(|interest| interest.descriptor >= 0).collect();
        let looks_only = timeout_ns == Some(0) || count > MAX_DESCRIPTORS || read.is_err();
        let without_waiting = |registers: &mut Registers| {
            registers.orig_rax = Sysno::poll as u64;
            registers.rdx = 0;
        };
        self.look(id, call, (interests, timeout_ns, looks_only), woken, &without_waiting)
    }

    /// Serves `select` and `pselect6`.
    pub(crate) fn select(
        &mut self,
        id: ThreadId,
        call: Call,
        woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        let tracee = self.tracee(id)?;
        let [count, reads, writes, excepts, timeout, _] = call.arguments();
        let is_plain = call.number == Sysno::select as u64;
        let timeout_ns = match timeout {
            0 => None,
            at if is_plain => {
                let (seconds, micros) = (tracee.read_u64(at), tracee.read_u64(at.wrapping_add(8)));
                let ns = |seconds: u64, micros: u64| {
                    seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1_000))
                };
                seconds.ok().zip(micros.ok()).map(|(seconds, micros)| ns(seconds, micros))
            }
            at => tracee.read_timespec(at).ok(),
        };
        let mut interests = Vec::new();
        for (set, events) in [(reads, libc::POLLIN), (writes, libc::POLLOUT), (excepts, libc::POLLPRI)] {
            let mut bits = vec![0; (count.min(1024) as usize).div_ceil(64) * 8];
            if set == 0 || tracee.read(set, &mut bits).is_err() {
                continue;
            }
            for descriptor in 0..count.min(1024) as i32 {
                let byte = bits.get(descriptor as usize / 8).copied().unwrap_or(0);
                if byte & (1 << (descriptor % 8)) != 0 {
                    interests.push(Interest { descriptor, events });
                }
            }
        }
        // A time of zero is put below the stack, where the program has no data.
        let zero = call.registers.rsp.wrapping_sub(1024) & !15;
        let looks_only = timeout_ns == Some(0) || tracee.write(zero, &[0; 16]).is_err();
        let without_waiting = |registers: &mut Registers| {
            registers.orig_rax = Sysno::select as u64;
            registers.r8 = zero;
        };
        self.look(id, call, (interests, timeout_ns, looks_only), woken, &without_waiting)
    }

    /// Serves `epoll_wait`, `epoll_pwait` and `epoll_pwait2`.
    pub(crate) fn wait_for_epoll(
        &mut self,
        id: ThreadId,
        call: Call,
        syscall_class: SyscallClass,
        woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        let [descriptor, _, _, timeout, ..] = call.arguments();
        let timeout_ns = match syscall_class {
            SyscallClass::EpollPwait2 if timeout == 0 => None,
            SyscallClass::EpollPwait2 => self.tracee(id)?.read_timespec(timeout).ok(),
            _ => u64::try_from(timeout as i32).ok().map(|millis| millis * 1_000_000),
        };
        let interests = vec![Interest { descriptor: descriptor as i32, events: libc::POLLIN }];
        let without_waiting = |registers: &mut Registers| {
            registers.orig_rax = Sysno::epoll_wait as u64;
            registers.r10 = 0;
        };
        self.look(id, call, (interests, timeout_ns, timeout_ns == Some(0)), woken, &without_waiting)
    }

    /// Polls descriptors without waiting in the kernel; waits here, if none is ready.
    fn look(
        &mut self,
        id: ThreadId,
        call: Call,
        (interests, timeout_ns, looks_only): (Vec<Interest>, Option<u64>, bool),
        woken: Option<Woken>,
        without_waiting: &dyn Fn(&mut Registers),
    ) -> Result<(), WorldError> {
        if woken.is_none() {
            // What woke the thread may have gone by the time it polls: it then waits for the rest of the
            // time.
            let until_ns = timeout_ns.map(|ns| self.time.clock.now_ns().saturating_add(ns));
            self.turns.sleeps.remove(&id);
            self.turns.sleeps.extend(until_ns.map(|until_ns| (id, until_ns)));
        }
        let Some(thread) = self.threads.get(id) else { return Ok(()) };
        let polling_thread = PollingThread::new(thread.tracee, self.files.has_signal_files);
        let descriptors = self.files.descriptors.get(&thread.process);
        let mut wait = Wait::new(WaitFor::Descriptors(interests), self.turns.sleeps.get(&id).copied());
        wait.checked_at_change = self.turns.changes;
        if woken.is_none() && !looks_only {
            let WaitFor::Descriptors(interests) = &wait.on else { return Ok(()) };
            if descriptors.is_some_and(|all| !all.any_is_ready(polling_thread, interests)) {
                return self.wait(id, call, wait);
            }
        }
        let CallOutcome::Result(result) = self.make(id, call, without_waiting)? else { return Ok(()) };
        if result == 0 && woken != Some(Woken::TimedOut) && !looks_only {
            // What woke the thread has gone.
            return self.wait_again(id, call, wait);
        }
        // A descriptor may stay ready, and the thread poll it again and again: only its use of the descriptor
        // shows that the poll was not idle.
        if result == 0 {
            self.count_idle_poll(id, &call);
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }
}
