//! Threads and processes: how they are born and end, and who waits for them.

use std::fs;

use nix::errno::Errno;
use nix::unistd::Pid;
use syscalls::Sysno;

use super::memory::Word;
use super::readiness::Descriptors;
use super::rows::Service;
use super::serve::{AS_IT_IS, Made};
use super::signals::{ended_by_signal, field, signal_bit};
use super::stop::{Stop, await_end, await_stop};
use super::supervisor::Supervisor;
use super::threads::{Call, Doing, ThreadId};
use super::tracee::{Registers, Tracee};
use super::waits::{Wait, WaitFor, Woken};
use crate::ended::Exit;
use crate::error::WorldError;

impl Supervisor {
    /// A thread made another one, or a process, in this call.
    pub(crate) fn born(&mut self, parent: ThreadId, child: Pid, call: &Call) -> Result<(), WorldError> {
        let tracee = Tracee(child);
        // Its first stop, before its first instruction.
        while !matches!(await_stop(tracee)?, Stop::Quiet | Stop::Signal(_)) {}
        let Some(thread) = self.threads.get(parent) else { return Ok(()) };
        let (process, clear_word) = (thread.process, clear_word(thread.tracee, call));
        let seed = self.options.seed;
        let id = if field(child, "Tgid:") == Some(child.as_raw() as u64) {
            let program = self.threads.program(parent);
            let id = self.threads.add_process(child, Some(process), program, seed);
            let number = self.threads.get(id).map_or(0, |thread| thread.process);
            self.descriptors.insert(number, Descriptors::of(child));
            id
        } else {
            self.threads.add_thread(tracee, process, seed)
        };
        if let Some(thread) = self.threads.get_mut(id) {
            thread.clear_word = clear_word;
        }
        Ok(())
    }

    /// A thread, or its process, ends by its own call.
    pub(crate) fn exit(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [code, ..] = call.arguments();
        self.note(id, &call.name(), code as i64 & 0xff)?;
        let Some(thread) = self.threads.get(id) else { return Ok(()) };
        let (tracee, process) = (thread.tracee, thread.process);
        let locks = self.robust_locks(id);
        tracee.go_on(None)?;
        let own = self.threads.of_process(process);
        if call.number == Sysno::exit_group as u64 || own.len() == 1 {
            return self.end_process(process);
        }
        let is_leader = self.threads.processes.get(&process).is_some_and(|one| one.leader == tracee.0);
        if is_leader {
            await_standing_still(tracee.0);
        } else {
            await_end(tracee)?;
        }
        let through = own.iter().filter(|other| **other != id).find_map(|other| self.threads.get(*other));
        self.release_robust(through.map(|other| other.tracee), &locks);
        // The first thread of a process is there, without doing anything, until the others have gone.
        self.forget_thread(id, !is_leader);
        Ok(())
    }

    /// A thread has gone.
    pub(crate) fn gone(&mut self, id: ThreadId, exit: Exit) -> Result<(), WorldError> {
        let Some(process) = self.threads.get(id).map(|thread| thread.process) else { return Ok(()) };
        let others = self.threads.of_process(process).len() > 1;
        self.note(id, "gone", exit_word(exit))?;
        self.forget_thread(id, true);
        match exit {
            // A signal ends all threads.
            Exit::Signal(_) => self.end_process_as(process, Some(exit)),
            Exit::Code(_) if others => Ok(()),
            Exit::Code(_) => self.end_process_as(process, Some(exit)),
        }
    }

    /// A thread is no more: those that wait for its end go on.
    fn forget_thread(&mut self, id: ThreadId, _is_reaped: bool) {
        let Some(thread) = self.threads.threads.remove(&id) else { return };
        self.sleeps.remove(&id);
        if self.last == Some(id) {
            self.last = None;
        }
        if thread.clear_word != 0 {
            let word = Word::Own { process: thread.process, address: thread.clear_word };
            self.wake_word(word, 1, u32::MAX);
        }
    }

    fn end_process(&mut self, process: u32) -> Result<(), WorldError> {
        self.end_process_as(process, None)
    }

    /// All threads of a process have gone, or are about to; `known`: how its first thread ended, if that is
    /// known.
    fn end_process_as(&mut self, process: u32, known: Option<Exit>) -> Result<(), WorldError> {
        let Some(leader) = self.threads.processes.get(&process).map(|one| one.leader) else { return Ok(()) };
        let mut exit = known;
        let own = self.threads.of_process(process);
        let tracees: Vec<(ThreadId, Tracee)> =
            own.iter().filter_map(|id| Some((*id, self.threads.get(*id)?.tracee))).collect();
        // The first thread goes last.
        for (_, tracee) in tracees.iter().filter(|(_, tracee)| tracee.0 != leader) {
            match await_end(*tracee) {
                Ok(_) | Err(Errno::ECHILD) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        match await_end(Tracee(leader)) {
            Ok(end) => exit = Some(end),
            Err(Errno::ECHILD) => {}
            Err(errno) => return Err(errno.into()),
        }
        for (id, _) in tracees {
            self.forget_thread(id, true);
        }
        self.descriptors.remove(&process);
        self.alarms.forget(process, true);
        self.changes += 1;
        // Its connections have ended.
        self.delivery.may_be_pending();
        self.wake_shared_words();
        let parent = self.threads.processes.get_mut(&process).and_then(|one| {
            one.has_ended = true;
            one.parent
        });
        if parent.is_none() {
            self.exit = exit.or(Some(Exit::Code(0)));
            return Ok(());
        }
        self.end_vfork(process)?;
        self.threads.processes.remove(&process);
        let waiting = self.threads.threads.values_mut().filter(|thread| Some(thread.process) == parent);
        for thread in waiting {
            if let Doing::Waiting(call, Wait { on: WaitFor::Child, .. }) = thread.doing {
                thread.doing = Doing::Woken(call, Woken::Ready);
            }
        }
        self.interrupt_waits();
        Ok(())
    }

    /// This process runs a program of its own, or has ended: its maker goes on, if it waits for that. It may
    /// have made other processes before, which do not end its wait.
    pub(crate) fn end_vfork(&mut self, child: u32) -> Result<(), WorldError> {
        let waits = |doing: &Doing| matches!(doing, Doing::InVfork(awaited) if *awaited == child);
        let maker = self.threads.threads.iter().find(|(_, thread)| waits(&thread.doing));
        let Some((id, tracee)) = maker.map(|(id, thread)| (*id, thread.tracee)) else { return Ok(()) };
        loop {
            match await_stop(tracee)? {
                Stop::CallEnd => break,
                Stop::Gone(exit) => return self.gone(id, exit),
                _ => tracee.finish_call()?,
            }
        }
        let result = tracee.registers()?.rax as i64;
        self.note(id, "vfork", result)?;
        if let Some(thread) = self.threads.get_mut(id) {
            thread.doing = Doing::Program;
        }
        Ok(())
    }

    /// `wait4` and `waitid`: looks, and waits here if no child has ended.
    pub(crate) fn wait_for_child(
        &mut self,
        id: ThreadId,
        call: Call,
        service: Service,
        _woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        let [_, _, third, fourth, ..] = call.arguments();
        let is_wait4 = service == Service::Waits4;
        let no_wait = libc::WNOHANG as u64;
        let looks_only = (if is_wait4 { third } else { fourth }) & no_wait != 0;
        let without_waiting = |registers: &mut Registers| {
            if is_wait4 {
                registers.rdx |= no_wait;
            } else {
                registers.r10 |= no_wait;
            }
        };
        let Made::Result(result) = self.make(id, call, &without_waiting)? else { return Ok(()) };
        // `waitid` says in the result's structure which child it is.
        let found_none = result == 0
            && (is_wait4 || third == 0 || self.tracee(id)?.read_u32(third.wrapping_add(12)) == Ok(0));
        if found_none && !looks_only {
            return self.wait_again(id, call, Wait::new(WaitFor::Child, None));
        }
        if found_none {
            self.in_vain(id);
        } else {
            self.not_in_vain(id);
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// A thread sends a signal.
    pub(crate) fn kill(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        self.changes += 1;
        let [_, second, third, ..] = call.arguments();
        let of_thread = [Sysno::tgkill, Sysno::rt_tgsigqueueinfo].map(|one| one as u64);
        let signal = if of_thread.contains(&call.number) { third } else { second } as i32;
        let Made::Result(result) = self.make(id, call, AS_IT_IS)? else { return Ok(()) };
        self.note(id, &call.name(), result)?;
        if signal == libc::SIGKILL && result == 0 {
            self.end_killed(id)?;
        }
        self.interrupt_waits();
        self.go(id, None)
    }

    /// Processes that were killed outright end now.
    fn end_killed(&mut self, killer: ThreadId) -> Result<(), WorldError> {
        let own = self.threads.get(killer).map(|thread| thread.process);
        let all: Vec<(u32, Pid)> =
            self.threads.processes.iter().map(|(number, one)| (*number, one.leader)).collect();
        for (process, leader) in all {
            let pending = field(leader, "ShdPnd:").unwrap_or(0);
            let is_killed = pending & signal_bit(libc::SIGKILL) != 0
                || state(leader).is_none_or(|state| "ZX".contains(state));
            if is_killed && Some(process) != own {
                self.end_process(process)?;
            }
        }
        Ok(())
    }

    /// Waits of threads to which a signal can be delivered end.
    pub(crate) fn interrupt_waits(&mut self) {
        for thread in self.threads.threads.values_mut() {
            let Doing::Waiting(call, _) = &thread.doing else { continue };
            let Some(why) = ended_by_signal(thread.tracee, call) else { continue };
            thread.doing = Doing::Woken(*call, why);
            thread.vain = 0;
        }
    }
}

/// Waits until the first thread of a process has done all that it does at its end, though other threads of
/// the process are there: then nothing tells of it.
fn await_standing_still(leader: Pid) {
    while state(leader).is_some_and(|state| !"ZX".contains(state)) {
        std::thread::yield_now();
    }
}

fn exit_word(exit: Exit) -> i64 {
    match exit {
        Exit::Code(code) => i64::from(code),
        Exit::Signal(signal) => -i64::from(signal),
    }
}

/// The letter of the state that a thread is in.
fn state(thread: Pid) -> Option<char> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("State:"))?.trim().chars().next()
}

/// The word that the end of the thread that this call makes sets to 0.
fn clear_word(tracee: Tracee, call: &Call) -> u64 {
    let [first, _, _, fourth, ..] = call.arguments();
    let (flags, word) = if call.number == Sysno::clone3 as u64 {
        (tracee.read_u64(first).unwrap_or(0), tracee.read_u64(first.wrapping_add(16)).unwrap_or(0))
    } else if call.number == Sysno::clone as u64 {
        (first, fourth)
    } else {
        (0, 0)
    };
    if flags & libc::CLONE_CHILD_CLEARTID as u64 != 0 { word } else { 0 }
}
