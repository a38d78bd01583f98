//! What is done about a call of a thread.

use nix::errno::Errno;

use super::rows::{Service, service};
use super::signal_files::Asker;
use super::signals::ended_by_signal;
use super::stop::{Stop, await_stop};
use super::supervisor::Supervisor;
use super::threads::{Call, Doing, ThreadId};
use super::tracee::{Registers, Tracee};
use super::waits::{Interest, Wait, WaitFor, Woken};
use crate::error::WorldError;

/// What a call that was made came to.
pub(crate) enum Made {
    /// This result.
    Result(i64),
    /// The thread does not come back from it now.
    Away,
}

/// The call, as it is made: registers that are other than the program set them.
pub(crate) type Change<'a> = &'a dyn Fn(&mut Registers);

/// What the kernel has a call come to that is to begin anew: from ERESTARTSYS to ERESTART_RESTARTBLOCK, which
/// programs never see.
const TO_BEGIN_ANEW: std::ops::RangeInclusive<i64> = -516..=-512;

/// As it is.
pub(crate) const AS_IT_IS: Change<'static> = &|_| {};

impl Supervisor {
    /// Does what is to be done about a call, and lets the thread go on.
    pub(crate) fn serve(&mut self, id: ThreadId, call: Call, woken: Option<Woken>) -> Result<(), WorldError> {
        let [first, ..] = call.arguments();
        // A signal of the process may have ended the waits of several threads, and one of them took it.
        let woken = woken.filter(|why| {
            let tracee = self.threads.get(id).map(|thread| thread.tracee);
            *why != Woken::Interrupted || tracee.and_then(|tracee| ended_by_signal(tracee, &call)).is_some()
        });
        let Some(service) = service(call.number) else {
            self.doubt(id, &format!("made the call {}, which a world does not know", call.name()))?;
            self.changes += 1;
            return self.make_and_go(id, call, AS_IT_IS);
        };
        let by_kernel = !matches!(service, Service::Futex | Service::Nanosleep | Service::ClockNanosleep);
        if woken == Some(Woken::Interrupted) && by_kernel {
            // A signal is pending: the kernel does not wait, and says how the call goes on.
            return self.make_and_go(id, call, AS_IT_IS);
        }
        match service {
            Service::Passes | Service::SetTidAddress => {
                if service == Service::SetTidAddress
                    && let Some(thread) = self.threads.get_mut(id)
                {
                    thread.clear_word = first;
                }
                self.make_and_go(id, call, AS_IT_IS)
            }
            Service::Changes => {
                self.changes += 1;
                self.may_send(id, &call);
                self.make_and_go(id, call, AS_IT_IS)
            }
            Service::Doubtful => {
                self.doubt(id, &format!("made the call {}", call.name()))?;
                self.make_and_go(id, call, AS_IT_IS)
            }
            Service::Refuses(errno) => self.answer(id, call, -i64::from(errno)),
            _ => self.serve_wait(id, call, service, woken),
        }
    }

    /// The same of a call that may wait, or asks for the time.
    fn serve_wait(
        &mut self,
        id: ThreadId,
        call: Call,
        service: Service,
        woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        match service {
            Service::ClockGettime | Service::Gettimeofday | Service::Time | Service::ProcessorTime => {
                self.tell_time(id, call, service)
            }
            Service::Nanosleep | Service::ClockNanosleep => self.sleep(id, call, service, woken),
            Service::TimerfdCreate => self.make_timer(id, call),
            Service::TimerfdSettime => self.set_timer(id, call),
            Service::TimerfdGettime => self.tell_timer(id, call),
            Service::Alarm => self.set_alarm(id, call),
            Service::IntervalTimer => self.set_interval_timer(id, call),
            Service::TimerCreate => self.make_alarm(id, call),
            Service::TimerSettime => self.arm_alarm(id, call),
            Service::TimerTells => self.tell_alarm(id, call),
            Service::Poll | Service::Ppoll => self.poll(id, call, service, woken),
            Service::Select => self.select(id, call, woken),
            Service::EpollWait | Service::EpollPwait2 => self.wait_for_epoll(id, call, service, woken),
            Service::Reads => self.transfer(id, call, libc::POLLIN, None, woken),
            Service::Accepts => self.transfer(id, call, libc::POLLIN, None, woken),
            Service::Receives(flags) => self.transfer(id, call, libc::POLLIN, Some(flags), woken),
            Service::Writes => self.transfer(id, call, libc::POLLOUT, None, woken),
            Service::Sends(flags) => {
                self.sent += 1;
                self.bind_unbound(id, call)?;
                self.transfer(id, call, libc::POLLOUT, Some(flags), woken)
            }
            Service::Connects | Service::Listens => {
                self.bind_unbound(id, call)?;
                self.changes += 1;
                self.delivery.may_be_pending();
                self.make_and_go(id, call, AS_IT_IS)
            }
            Service::Futex => self.futex(id, call, woken),
            Service::Waits4 | Service::Waitid => self.wait_for_child(id, call, service, woken),
            Service::TakesSignal => self.wait_for_signal(id, call, woken),
            Service::Pauses => self.wait(id, call, Wait::new(WaitFor::Signal, None)),
            _ => self.serve_other(id, call, service),
        }
    }

    /// The same of a call that does something, or tells something that is the same in every run.
    fn serve_other(&mut self, id: ThreadId, call: Call, service: Service) -> Result<(), WorldError> {
        match service {
            Service::Hints => self.take_hint(id, call),
            Service::Binds => self.bind(id, call),
            Service::Socket => self.make_socket(id, call),
            Service::Exits | Service::ExitsGroup => self.exit(id, call),
            Service::Kills => self.kill(id, call),
            Service::Getrandom => self.give_random(id, call),
            Service::SchedYield => {
                self.in_vain(id);
                self.answer(id, call, 0)
            }
            Service::GetAffinity => self.tell_affinity(id, call),
            Service::GetProcessor => self.tell_processor(id, call),
            Service::SetAffinity => self.answer(id, call, 0),
            Service::Opens(name) => self.open(id, call, name),
            Service::Flock => self.flock(id, call),
            Service::Fcntl => self.fcntl(id, call),
            Service::Stats(structure) => self.tell_file(id, call, structure),
            Service::Statx => self.tell_file_at_length(id, call),
            Service::ReadsLink(buffer) => self.read_link(id, call, buffer),
            Service::ListsFolder => self.list_folder(id, call),
            Service::Sysinfo => self.tell_machine(id, call),
            Service::MakesSignalFile => {
                self.has_signal_files = true;
                self.make_and_go(id, call, AS_IT_IS)
            }
            _ => self.make_and_go(id, call, AS_IT_IS),
        }
    }

    /// The thread waits in this call, before which it is stopped.
    pub(crate) fn wait(&mut self, id: ThreadId, call: Call, wait: Wait) -> Result<(), WorldError> {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.doing = Doing::Waiting(call, wait);
        }
        self.interrupt_waits();
        Ok(())
    }

    /// The call found nothing.
    pub(crate) fn in_vain(&mut self, id: ThreadId) {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.vain = thread.vain.saturating_add(1);
        }
    }

    /// The call came to something.
    pub(crate) fn not_in_vain(&mut self, id: ThreadId) {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.vain = 0;
        }
    }

    pub(crate) fn tracee(&self, id: ThreadId) -> Result<Tracee, WorldError> {
        self.threads.get(id).map(|thread| thread.tracee).ok_or_else(|| Errno::ESRCH.into())
    }

    /// The call is not made: the program sees this result, and goes on.
    pub(crate) fn answer(&mut self, id: ThreadId, call: Call, result: i64) -> Result<(), WorldError> {
        self.answer_noted(id, call, result, result)
    }

    /// The same, where what is noted is another number, because that one is the kernel's.
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

    /// The same, with what was done in its memory: EFAULT if that failed.
    pub(crate) fn answer_done(
        &mut self,
        id: ThreadId,
        call: Call,
        done: nix::Result<i64>,
    ) -> Result<(), WorldError> {
        self.answer(id, call, done.unwrap_or_else(|errno| -i64::from(errno as i32)))
    }

    /// The call is made, and the program goes on.
    pub(crate) fn make_and_go(
        &mut self,
        id: ThreadId,
        call: Call,
        change: Change<'_>,
    ) -> Result<(), WorldError> {
        match self.make(id, call, change)? {
            Made::Result(result) => {
                self.note(id, &call.name(), result)?;
                self.go(id, None)
            }
            Made::Away => Ok(()),
        }
    }

    /// The call is made. Then the registers are as the program set them, but for the result.
    pub(crate) fn make(&mut self, id: ThreadId, call: Call, change: Change<'_>) -> Result<Made, WorldError> {
        let tracee = self.tracee(id)?;
        let mut registers = call.registers;
        change(&mut registers);
        if arguments_of(&registers) != arguments_of(&call.registers) {
            let _ = tracee.set_registers(registers);
        }
        let mut begins_anew = false;
        loop {
            match tracee.finish_call() {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
            match await_stop(tracee)? {
                Stop::CallEnd => {
                    let after = tracee.registers()?;
                    let result = after.rax as i64;
                    // The supervisor stopped the thread as it began the call, and no signal came: the kernel
                    // lets the call begin anew, which is a stop of its own.
                    if TO_BEGIN_ANEW.contains(&result) && ended_by_signal(tracee, &call).is_none() {
                        begins_anew = true;
                        continue;
                    }
                    if std::mem::take(&mut begins_anew) && result == -i64::from(libc::ENOSYS) {
                        continue;
                    }
                    self.restore(tracee, &call, after)?;
                    return Ok(Made::Result(result));
                }
                Stop::Born(child, waits) => {
                    self.born(id, child, &call)?;
                    if waits {
                        let mut processes = self.threads.processes.iter();
                        let born = processes.find(|(_, process)| process.leader == child);
                        let number = born.map_or(0, |(number, _)| *number);
                        let _ = tracee.finish_call();
                        if let Some(thread) = self.threads.get_mut(id) {
                            thread.doing = Doing::InVfork(number);
                        }
                        return Ok(Made::Away);
                    }
                }
                Stop::Exec => {
                    self.became_program(id)?;
                    return Ok(Made::Result(0));
                }
                Stop::Gone(exit) => {
                    self.gone(id, exit)?;
                    return Ok(Made::Away);
                }
                Stop::Spins => {}
                Stop::Stuck => {
                    self.doubt(id, &format!("waits in the kernel in {}", call.name()))?;
                    // What it waits for may be another thread: that cannot be known.
                    return Err(self.cannot_go_on(format!("  {} waits in the kernel", call.name())));
                }
                Stop::Call(_) | Stop::Signal(_) | Stop::Quiet => {}
            }
        }
    }

    /// Registers of arguments that were other than the program set them are as they were.
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

    /// A call was made that found nothing: the thread makes it again when it goes on, and waits before.
    pub(crate) fn wait_again(&mut self, id: ThreadId, call: Call, wait: Wait) -> Result<(), WorldError> {
        let tracee = self.tracee(id)?;
        // The instruction that makes a call is two bytes long.
        let again = Registers { rip: call.registers.rip - 2, rax: call.number, ..call.registers };
        match tracee.set_registers(again) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.go(id, None)?;
        let Some(thread) = self.threads.get_mut(id) else { return Ok(()) };
        match thread.doing {
            Doing::Call(same) if same.number == call.number => self.wait(id, same, wait),
            _ => Ok(()),
        }
    }

    /// Reads, writes, receives, sends, accepts: makes the call when the descriptor is ready.
    fn transfer(
        &mut self,
        id: ThreadId,
        call: Call,
        events: i16,
        flags: Option<usize>,
        woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        let arguments = call.arguments();
        let descriptor = arguments[0] as i32;
        if woken == Some(Woken::TimedOut) {
            return self.answer(id, call, -i64::from(libc::EAGAIN));
        }
        let asks_not_to_wait = flags
            .and_then(|flags| arguments.get(flags))
            .is_some_and(|flags| *flags as i32 & libc::MSG_DONTWAIT != 0);
        let interest = Interest { descriptor, events };
        let Some(thread) = self.threads.get(id) else { return Ok(()) };
        let descriptors = self.descriptors.get(&thread.process);
        let asker = Asker::new(thread.tracee, self.has_signal_files);
        let must_wait = !asks_not_to_wait && descriptors.is_some_and(|all| all.would_wait(asker, interest));
        if must_wait {
            let timeout_ns = descriptors.and_then(|all| all.timeout_ns(interest));
            let until_ns = timeout_ns.map(|ns| self.clock.now_ns().saturating_add(ns));
            let mut wait = Wait::new(WaitFor::Descriptors(vec![interest]), until_ns);
            wait.looked_at = self.changes;
            return self.wait(id, call, wait);
        }
        match self.make(id, call, AS_IT_IS)? {
            Made::Result(result) => {
                if result == -i64::from(libc::EAGAIN) {
                    self.in_vain(id);
                } else {
                    self.may_send(id, &call);
                    self.not_in_vain(id);
                    self.changes += 1;
                }
                // What the kernel says of its interfaces is as long as this kernel has it.
                let is_of_kernel = events == libc::POLLIN && flags.is_some() && result > 0 && {
                    let process = self.threads.get(id).map(|thread| &thread.process);
                    let descriptors = process.and_then(|process| self.descriptors.get(process));
                    descriptors.is_some_and(|all| all.speaks_with_kernel(descriptor))
                };
                self.note(id, &call.name(), if is_of_kernel { 1 } else { result })?;
                self.go(id, None)
            }
            Made::Away => Ok(()),
        }
    }
}

/// The number of a call, and its arguments.
const fn arguments_of(registers: &Registers) -> (u64, [u64; 6]) {
    let Registers { orig_rax, rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
    (orig_rax, [rdi, rsi, rdx, r10, r8, r9])
}
