//! Serves a call of a thread, and waits for a signal that is then taken.

use nix::errno::Errno;

use super::rows::{SyscallClass, syscall_class};
use super::signals::ended_by_signal;
use super::stepper::{Stop, await_stop};
use super::supervisor::Supervisor;
use super::threads::{Activity, Call, ThreadId};
use super::tracee::{Registers, TIMES_OF_CHILD, Tracee, has_pending_signal};
use super::waits::{Wait, WaitFor, Woken};
use crate::error::WorldError;

impl Supervisor {
    /// Serves `rt_sigtimedwait`: waits here if no such signal is pending.
    fn wait_for_signal(&mut self, id: ThreadId, call: Call, woken: Option<Woken>) -> Result<(), WorldError> {
        let tracee = self.tracee(id)?;
        let [_, about, timeout, ..] = call.arguments();
        let timeout_ns = if timeout == 0 { None } else { tracee.read_timespec(timeout).ok() };
        if woken.is_none() {
            self.turns.sleeps.remove(&id);
            if let Some(ns) = timeout_ns {
                self.turns.sleeps.insert(id, self.time.clock.now_ns().saturating_add(ns));
            }
        }
        // A time of zero is put below the stack, where the program has no data.
        let zero = call.registers.rsp.wrapping_sub(1024) & !15;
        if tracee.write(zero, &[0; 16]).is_err() {
            return self.answer(id, call, -i64::from(libc::EFAULT));
        }
        let without_waiting = |registers: &mut Registers| registers.rdx = zero;
        let CallOutcome::Result(result) = self.make(id, call, &without_waiting)? else { return Ok(()) };
        let looks_only = timeout_ns == Some(0) || woken == Some(Woken::TimedOut);
        if result == -i64::from(libc::EAGAIN) && !looks_only {
            let until_ns = self.turns.sleeps.get(&id).copied();
            return self.wait_again(id, call, Wait::new(WaitFor::Signal, until_ns));
        }
        if result == i64::from(libc::SIGCHLD) && about != 0 {
            let times = [0; TIMES_OF_CHILD.end - TIMES_OF_CHILD.start];
            let _ = tracee.write(about.wrapping_add(TIMES_OF_CHILD.start as u64), &times);
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Serves a call, and lets the thread continue.
    pub(crate) fn serve(&mut self, id: ThreadId, call: Call, woken: Option<Woken>) -> Result<(), WorldError> {
        let [first, ..] = call.arguments();
        // A signal to the process may have ended the waits of several threads, of which only one took it.
        let woken = woken.filter(|why| {
            let tracee = self.threads.get(id).map(|thread| thread.tracee);
            *why != Woken::Interrupted || tracee.and_then(|tracee| ended_by_signal(tracee, &call)).is_some()
        });
        let Some(syscall_class) = syscall_class(call.number) else {
            self.doubt(id, &format!("made the call {}, which a world does not know", call.name()))?;
            self.turns.changes += 1;
            return self.make_and_resume(id, call, UNCHANGED);
        };
        let by_kernel = !matches!(
            syscall_class,
            SyscallClass::Futex | SyscallClass::Nanosleep | SyscallClass::ClockNanosleep
        );
        if woken == Some(Woken::Interrupted) && self.has_partial_call(id) {
            return self.end_partial_call(id, call);
        }
        if woken == Some(Woken::Interrupted) && by_kernel {
            // A signal is pending: the kernel does not wait, and decides how the call continues.
            return self.make_and_resume(id, call, UNCHANGED);
        }
        match syscall_class {
            SyscallClass::Passes | SyscallClass::SetTidAddress => {
                if syscall_class == SyscallClass::SetTidAddress
                    && let Some(thread) = self.threads.get_mut(id)
                {
                    thread.clear_child_tid = first;
                }
                self.make_and_resume(id, call, UNCHANGED)
            }
            SyscallClass::Changes => {
                self.turns.changes += 1;
                self.may_send(id, &call);
                self.make_and_resume(id, call, UNCHANGED)
            }
            SyscallClass::Doubtful => {
                self.doubt(id, &format!("made the call {}", call.name()))?;
                self.make_and_resume(id, call, UNCHANGED)
            }
            SyscallClass::Refuses(errno) => self.answer(id, call, -i64::from(errno)),
            _ => self.serve_wait(id, call, syscall_class, woken),
        }
    }

    /// Serves a call that may wait, or asks for the time.
    fn serve_wait(
        &mut self,
        id: ThreadId,
        call: Call,
        syscall_class: SyscallClass,
        woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        match syscall_class {
            SyscallClass::ClockGettime
            | SyscallClass::Gettimeofday
            | SyscallClass::Time
            | SyscallClass::ProcessorTime => self.report_time(id, call, syscall_class),
            SyscallClass::Nanosleep | SyscallClass::ClockNanosleep => {
                self.sleep(id, call, syscall_class, woken)
            }
            SyscallClass::TimerfdCreate => self.make_timer(id, call),
            SyscallClass::TimerfdSettime => self.set_timer(id, call),
            SyscallClass::TimerfdGettime => self.report_timer(id, call),
            SyscallClass::Alarm => self.set_alarm(id, call),
            SyscallClass::IntervalTimer => self.set_interval_timer(id, call),
            SyscallClass::TimerCreate => self.make_alarm(id, call),
            SyscallClass::TimerSettime => self.arm_alarm(id, call),
            SyscallClass::TimerQuery => self.report_alarm(id, call),
            SyscallClass::Poll | SyscallClass::Ppoll => self.poll(id, call, syscall_class, woken),
            SyscallClass::Select => self.select(id, call, woken),
            SyscallClass::EpollWait | SyscallClass::EpollPwait2 => {
                self.wait_for_epoll(id, call, syscall_class, woken)
            }
            SyscallClass::Reads => self.transfer(id, call, libc::POLLIN, None, woken),
            SyscallClass::Accepts => self.transfer(id, call, libc::POLLIN, None, woken),
            SyscallClass::Receives(flags) => self.transfer(id, call, libc::POLLIN, Some(flags), woken),
            SyscallClass::Writes => self.transfer(id, call, libc::POLLOUT, None, woken),
            SyscallClass::Sends(flags) => {
                self.network.sent += 1;
                self.bind_unbound(id, call)?;
                self.transfer(id, call, libc::POLLOUT, Some(flags), woken)
            }
            SyscallClass::Connects | SyscallClass::Listens => self.connect(id, call, syscall_class),
            SyscallClass::Futex => self.futex(id, call, woken),
            SyscallClass::Wait4 | SyscallClass::Waitid => self.wait_for_child(id, call, syscall_class, woken),
            SyscallClass::TakesSignal => self.wait_for_signal(id, call, woken),
            SyscallClass::Pauses => self.wait(id, call, Wait::new(WaitFor::Signal, None)),
            _ => self.serve_other(id, call, syscall_class, woken),
        }
    }

    /// Serves a call that has an effect, or returns facts that are the same in every run.
    fn serve_other(
        &mut self,
        id: ThreadId,
        call: Call,
        syscall_class: SyscallClass,
        woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        match syscall_class {
            SyscallClass::Hints => self.take_hint(id, call),
            SyscallClass::Binds => self.bind(id, call),
            SyscallClass::Socket => self.make_socket(id, call),
            SyscallClass::SetsOption => self.set_option(id, call),
            SyscallClass::ReturnsOption => self.return_option(id, call),
            SyscallClass::Controls => self.control(id, call),
            SyscallClass::MapsCode => self.map_code(id, call),
            SyscallClass::Exits | SyscallClass::ExitsGroup => self.exit(id, call),
            SyscallClass::Execs => self.execute(id, call),
            SyscallClass::SendsFile => self.send_file(id, call),
            SyscallClass::Splices => self.splice(id, call),
            SyscallClass::Semaphores => self.use_semaphores(id, call, woken),
            SyscallClass::SendsMessage | SyscallClass::ReceivesMessage => {
                self.use_messages(id, call, syscall_class)
            }
            SyscallClass::ControlsIpc(command) => self.control_ipc(id, call, command),
            SyscallClass::Kills => self.kill(id, call),
            SyscallClass::Getrandom => self.fill_random(id, call),
            SyscallClass::SchedYield => {
                self.count_idle_poll(id, &call);
                self.answer(id, call, 0)
            }
            SyscallClass::GetAffinity => self.report_affinity(id, call),
            SyscallClass::GetProcessor => self.report_processor(id, call),
            SyscallClass::GetPriority => self.report_niceness(id, call),
            SyscallClass::SetPriority => self.set_niceness(id, call),
            SyscallClass::MemoryPolicy => self.return_memory_policy(id, call),
            SyscallClass::Compares => self.compare_objects(id, call),
            SyscallClass::SetAffinity => self.answer(id, call, 0),
            SyscallClass::Opens(name) => self.open(id, call, name),
            SyscallClass::Flock => self.flock(id, call),
            SyscallClass::Fcntl => self.fcntl(id, call),
            SyscallClass::Stats(structure) => self.report_stat(id, call, structure),
            SyscallClass::Statx => self.report_statx(id, call),
            SyscallClass::StatsFileSystem => self.describe_file_system(id, call),
            SyscallClass::ReadsLink(buffer) => self.read_link(id, call, buffer),
            SyscallClass::ListsFolder => self.list_folder(id, call),
            SyscallClass::Sysinfo => self.report_sysinfo(id, call),
            SyscallClass::MakesSignalFile => {
                self.files.has_signal_files = true;
                self.make_and_resume(id, call, UNCHANGED)
            }
            _ => self.make_and_resume(id, call, UNCHANGED),
        }
    }

    /// Makes the thread wait in this call, before which it is stopped.
    pub(crate) fn wait(&mut self, id: ThreadId, call: Call, wait: Wait) -> Result<(), WorldError> {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.activity = Activity::Waiting(call, wait);
            self.turns.last_check.is_complete = false;
            let (process, tracee) = (thread.process, thread.tracee);
            if has_pending_signal(tracee.0.as_raw()) {
                self.interrupt_waits_of(Some(process));
            }
        }
        Ok(())
    }

    /// Counts a call that found nothing: an idle poll.
    pub(crate) fn count_idle_poll(&mut self, id: ThreadId, call: &Call) {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.polls.idle_polls = thread.polls.idle_polls.saturating_add(1);
        }
        self.park_if_idle(id, call.looked_for());
    }

    /// Resets the count of idle polls, because the call found something.
    pub(crate) fn reset_idle_polls(&mut self, id: ThreadId) {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.polls.idle_polls = 0;
        }
        if self.found_something(id) {
            self.turns.occasions.everywhere();
        }
    }

    pub(crate) fn tracee(&self, id: ThreadId) -> Result<Tracee, WorldError> {
        self.threads.get(id).map(|thread| thread.tracee).ok_or_else(|| Errno::ESRCH.into())
    }

    /// Skips the call: the program sees this result, and continues.
    pub(crate) fn answer(&mut self, id: ThreadId, call: Call, result: i64) -> Result<(), WorldError> {
        self.answer_noted(id, call, result, result)
    }

    /// Skips the call, and notes another number than the result, because the result is the kernel's.
    pub(crate) fn answer_noted(
        &mut self,
        id: ThreadId,
        call: Call,
        result: i64,
        noted: i64,
    ) -> Result<(), WorldError> {
        self.note(id, &call.name(), noted)?;
        match self.tracee(id)?.answer(&call.registers, result) {
            Ok(()) | Err(Errno::ESRCH) => self.go(id, None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Skips the call, with the result of an access to the program's memory: EFAULT if that failed.
    pub(crate) fn answer_done(
        &mut self,
        id: ThreadId,
        call: Call,
        done: nix::Result<i64>,
    ) -> Result<(), WorldError> {
        self.answer(id, call, done.unwrap_or_else(|errno| -i64::from(errno as i32)))
    }

    /// Makes the call, and lets the program continue.
    pub(crate) fn make_and_resume(
        &mut self,
        id: ThreadId,
        call: Call,
        change: RegisterChange<'_>,
    ) -> Result<(), WorldError> {
        match self.make(id, call, change)? {
            CallOutcome::Result(result) => {
                self.note(id, &call.name(), result)?;
                self.go(id, None)
            }
            CallOutcome::NotReturned => Ok(()),
        }
    }

    /// Makes the call. Afterwards the registers are as the program set them, except for the result.
    pub(crate) fn make(
        &mut self,
        id: ThreadId,
        call: Call,
        change: RegisterChange<'_>,
    ) -> Result<CallOutcome, WorldError> {
        let tracee = self.tracee(id)?;
        let mut registers = call.registers;
        change(&mut registers);
        if arguments_of(&registers) != arguments_of(&call.registers) {
            let _ = tracee.set_registers(registers);
        }
        let mut is_restarting = false;
        loop {
            match tracee.finish_call() {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
            match await_stop(tracee)? {
                Stop::CallEnd => {
                    let after = tracee.registers()?;
                    let result = after.rax as i64;
                    // The supervisor stopped the thread as it began the call, and there was no signal: the
                    // kernel restarts the call, which is a stop of its own.
                    if RESTART_ERRORS.contains(&result) && ended_by_signal(tracee, &call).is_none() {
                        is_restarting = true;
                        continue;
                    }
                    if std::mem::take(&mut is_restarting) && result == -i64::from(libc::ENOSYS) {
                        continue;
                    }
                    self.restore(tracee, &call, after)?;
                    return Ok(CallOutcome::Result(result));
                }
                Stop::NewChild(child, waits) => {
                    self.child_created(id, child, &call)?;
                    if waits {
                        let mut processes = self.threads.processes.iter();
                        let child_created = processes.find(|(_, process)| process.leader == child);
                        let number = child_created.map_or(0, |(number, _)| *number);
                        let _ = tracee.finish_call();
                        if let Some(thread) = self.threads.get_mut(id) {
                            thread.activity = Activity::InVfork(number);
                        }
                        return Ok(CallOutcome::NotReturned);
                    }
                }
                Stop::Exec => {
                    self.became_program(id)?;
                    return Ok(CallOutcome::Result(0));
                }
                Stop::Exited(exit) => {
                    self.thread_exited(id, exit)?;
                    return Ok(CallOutcome::NotReturned);
                }
                Stop::Spinning => {}
                // A reader outside of the world takes its own time.
                Stop::Stuck if self.writes_outside(id, &call) => {}
                Stop::Stuck => {
                    self.doubt(id, &format!("waits in the kernel in {}", call.name()))?;
                    // The call may wait for another thread, which cannot be found out.
                    return Err(self.deadlock_error(format!("  {} waits in the kernel", call.name())));
                }
                Stop::Call(_) | Stop::Signal(_) | Stop::NoEvent | Stop::Preempted => {}
            }
        }
    }

    /// Restores registers of arguments that were changed for the call.
    fn restore(&self, tracee: Tracee, call: &Call, after: Registers) -> Result<(), WorldError> {
        let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = call.registers;
        // A program that has just begun has registers of its own.
        let is_same = after.rip == call.registers.rip;
        let (_, arguments) = arguments_of(&after);
        if is_same && arguments != [rdi, rsi, rdx, r10, r8, r9] {
            tracee.set_registers(Registers { rdi, rsi, rdx, r10, r8, r9, ..after })?;
        }
        Ok(())
    }

    /// Makes the thread wait after a call that found nothing; the thread makes the call again when it
    /// continues.
    pub(crate) fn wait_again(&mut self, id: ThreadId, call: Call, wait: Wait) -> Result<(), WorldError> {
        let tracee = self.tracee(id)?;
        // The syscall instruction is two bytes long.
        let again = Registers { rip: call.registers.rip - 2, rax: call.number, ..call.registers };
        match tracee.set_registers(again) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.go(id, None)?;
        let Some(thread) = self.threads.get_mut(id) else { return Ok(()) };
        match thread.activity {
            Activity::Call(same) if same.number == call.number => self.wait(id, same, wait),
            _ => Ok(()),
        }
    }
}

/// The result of making a call.
pub(crate) enum CallOutcome {
    /// The call returned this result.
    Result(i64),
    /// The thread does not return from the call now.
    NotReturned,
}

/// A change of the registers with which the call is made.
pub(crate) type RegisterChange<'a> = &'a dyn Fn(&mut Registers);

/// Results of a call that the kernel restarts, from ERESTARTSYS to ERESTART_RESTARTBLOCK, which programs
/// never see.
const RESTART_ERRORS: std::ops::RangeInclusive<i64> = -516..=-512;

/// No change of the registers.
pub(crate) const UNCHANGED: RegisterChange<'static> = &|_| {};

/// Returns the number of a call, and its arguments.
const fn arguments_of(registers: &Registers) -> (u64, [u64; 6]) {
    let Registers { orig_rax, rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
    (orig_rax, [rdi, rsi, rdx, r10, r8, r9])
}
