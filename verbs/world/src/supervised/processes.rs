//! Threads and processes: their creation, their end, and waits for it; `execve` of several threads.
//!
//! `execve` from a process of several threads: all but one of them end, and that one takes the id of the
//! first.

use std::fs;

use nix::errno::Errno;
use nix::unistd::Pid;
use syscalls::Sysno;

use super::readiness::Descriptors;
use super::rows::SyscallClass;
use super::serve::{CallOutcome, UNCHANGED};
use super::signals::{ended_by_signal, field, signal_bit};
use super::stepper::{Stop, await_end, await_stop, poll_stop};
use super::supervisor::Supervisor;
use super::threads::{Activity, Call, ThreadId};
use super::tracee::{Registers, Tracee};
use super::waits::{FutexKey, Wait, WaitFor, Woken};
use crate::error::{Exit, WorldError};

impl Supervisor {
    /// Makes a call that executes another program in the calling thread's process.
    pub(crate) fn execute(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let Some(thread) = self.threads.get(id) else { return Ok(()) };
        let (caller, process) = (thread.tracee, thread.process);
        let leader = self.threads.processes.get(&process).map_or(caller, |one| Tracee(one.leader));
        let own = self.threads.of_process(process);
        let others: Vec<Tracee> = own
            .iter()
            .filter(|other| **other != id)
            .filter_map(|other| self.threads.get(*other).map(|thread| thread.tracee))
            .filter(|other| *other != leader)
            .collect();
        if caller == leader && others.is_empty() {
            return self.make_and_resume(id, call, UNCHANGED);
        }
        match caller.finish_call() {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
        let result = match await_exec(caller, leader, &others)? {
            Stop::Exec => {
                self.became_program(id)?;
                0
            }
            Stop::Exited(exit) => return self.thread_exited(id, exit),
            _ => caller.registers()?.rax as i64,
        };
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Adds a thread or a process that a thread made in this call.
    pub(crate) fn child_created(
        &mut self,
        parent: ThreadId,
        child: Pid,
        call: &Call,
    ) -> Result<(), WorldError> {
        let tracee = Tracee(child);
        // The first stop of the child is before its first instruction.
        while !matches!(await_stop(tracee)?, Stop::NoEvent | Stop::Signal(_)) {}
        let Some(thread) = self.threads.get(parent) else { return Ok(()) };
        let (process, clear_child_tid) = (thread.process, clear_child_tid(thread.tracee, call));
        let seed = self.options.seed;
        let id = if field(child, "Tgid:") == Some(child.as_raw() as u64) {
            let program = self.threads.program(parent);
            let id = self.threads.add_process(child, Some(process), program, seed);
            let number = self.threads.get(id).map_or(0, |thread| thread.process);
            self.files.descriptors.insert(number, Descriptors::of(child));
            id
        } else {
            self.threads.add_thread(tracee, process, seed)
        };
        if let Some(thread) = self.threads.get_mut(id) {
            thread.clear_child_tid = clear_child_tid;
        }
        Ok(())
    }

    /// Ends a thread, or its process, by its own call.
    pub(crate) fn exit(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [code, ..] = call.arguments();
        self.note(id, &call.name(), code as i64 & 0xff)?;
        let Some(thread) = self.threads.get(id) else { return Ok(()) };
        let (tracee, process) = (thread.tracee, thread.process);
        let locks = self.robust_locks(id);
        tracee.resume(None)?;
        let own = self.threads.of_process(process);
        if call.number == Sysno::exit_group as u64 || own.len() == 1 {
            return self.end_process(process);
        }
        let is_leader = self.threads.processes.get(&process).is_some_and(|one| one.leader == tracee.0);
        if is_leader {
            await_zombie(tracee.0);
        } else {
            await_end(tracee)?;
        }
        let through = own.iter().filter(|other| **other != id).find_map(|other| self.threads.get(*other));
        self.release_robust(through.map(|other| other.tracee), &locks);
        // The first thread of a process stays, without running, until the others have ended.
        self.forget_thread(id, !is_leader);
        Ok(())
    }

    /// Notes the end of a thread.
    pub(crate) fn thread_exited(&mut self, id: ThreadId, exit: Exit) -> Result<(), WorldError> {
        let Some(process) = self.threads.get(id).map(|thread| thread.process) else { return Ok(()) };
        let others = self.threads.of_process(process).len() > 1;
        self.note(id, "gone", exit_code_or_signal(exit))?;
        self.forget_thread(id, true);
        match exit {
            // A signal ends all threads of the process.
            Exit::Signal(_) => self.end_process_as(process, Some(exit)),
            Exit::Code(_) if others => Ok(()),
            Exit::Code(_) => self.end_process_as(process, Some(exit)),
        }
    }

    /// Removes a thread that has ended, and wakes those that wait for its end.
    fn forget_thread(&mut self, id: ThreadId, _is_reaped: bool) {
        let Some(thread) = self.threads.threads.remove(&id) else { return };
        self.turns.sleeps.remove(&id);
        if self.turns.last == Some(id) {
            self.turns.last = None;
        }
        if thread.clear_child_tid != 0 {
            let word = FutexKey::Private { process: thread.process, address: thread.clear_child_tid };
            self.wake_futex(word, 1, u32::MAX);
        }
    }

    fn end_process(&mut self, process: u32) -> Result<(), WorldError> {
        self.end_process_as(process, None)
    }

    /// Ends a process whose threads have all ended, or are about to; `known` is the end of its first thread,
    /// if it is known.
    fn end_process_as(&mut self, process: u32, known: Option<Exit>) -> Result<(), WorldError> {
        let Some(leader) = self.threads.processes.get(&process).map(|one| one.leader) else { return Ok(()) };
        let mut exit = known;
        let own = self.threads.of_process(process);
        let tracees: Vec<(ThreadId, Tracee)> =
            own.iter().filter_map(|id| Some((*id, self.threads.get(*id)?.tracee))).collect();
        // The first thread ends last.
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
        self.files.descriptors.remove(&process);
        self.time.alarms.forget(process, true);
        self.turns.changes += 1;
        // Its connections have ended.
        self.network.delivery.may_be_pending();
        self.network.port_groups.may_have_changed();
        self.wake_shared_futexes();
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
            if let Activity::Waiting(call, Wait { on: WaitFor::Child, .. }) = thread.activity {
                thread.activity = Activity::Woken(call, Woken::Ready);
            }
        }
        self.interrupt_waits();
        Ok(())
    }

    /// Ends the wait of the parent in `vfork`, because this child executes another program, or has ended.
    /// Other children of that parent do not end its wait.
    pub(crate) fn end_vfork(&mut self, child: u32) -> Result<(), WorldError> {
        let waits = |activity: &Activity| matches!(activity, Activity::InVfork(awaited) if *awaited == child);
        let maker = self.threads.threads.iter().find(|(_, thread)| waits(&thread.activity));
        let Some((id, tracee)) = maker.map(|(id, thread)| (*id, thread.tracee)) else { return Ok(()) };
        loop {
            match await_stop(tracee)? {
                Stop::CallEnd => break,
                Stop::Exited(exit) => return self.thread_exited(id, exit),
                _ => tracee.finish_call()?,
            }
        }
        let result = tracee.registers()?.rax as i64;
        self.note(id, "vfork", result)?;
        if let Some(thread) = self.threads.get_mut(id) {
            thread.activity = Activity::Program;
        }
        Ok(())
    }

    /// Serves `wait4` and `waitid`: waits here if no child has ended.
    pub(crate) fn wait_for_child(
        &mut self,
        id: ThreadId,
        call: Call,
        syscall_class: SyscallClass,
        _woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        let [_, _, third, fourth, fifth, _] = call.arguments();
        let is_wait4 = syscall_class == SyscallClass::Wait4;
        let no_wait = libc::WNOHANG as u64;
        let looks_only = (if is_wait4 { third } else { fourth }) & no_wait != 0;
        // `waitid` reports the child in a structure. If the program wants none, it is put below the stack,
        // where the program has no data.
        let below_stack = call.registers.rsp.wrapping_sub(1024) & !15;
        let report_address = if third == 0 { below_stack } else { third };
        let without_waiting = |registers: &mut Registers| {
            if is_wait4 {
                registers.rdx |= no_wait;
            } else {
                registers.r10 |= no_wait;
                registers.rdx = report_address;
            }
        };
        let CallOutcome::Result(result) = self.make(id, call, &without_waiting)? else { return Ok(()) };
        let child_at = report_address.wrapping_add(CHILD_IN_SIGINFO);
        let found_none = result == 0 && (is_wait4 || self.tracee(id)?.read_u32(child_at) == Ok(0));
        if found_none && !looks_only {
            return self.wait_again(id, call, Wait::new(WaitFor::Child, None));
        }
        if found_none {
            self.count_idle_poll(id, &call);
        } else {
            self.reset_idle_polls(id);
            // The resources that the child has used are not measured.
            let used_at = if is_wait4 { fourth } else { fifth };
            if result >= 0 && used_at != 0 {
                let _ = self.tracee(id)?.write(used_at, &[0; USAGE_BYTES]);
            }
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Serves the sending of a signal by a thread.
    pub(crate) fn kill(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        self.turns.changes += 1;
        let [_, second, third, ..] = call.arguments();
        let of_thread = [Sysno::tgkill, Sysno::rt_tgsigqueueinfo].map(|one| one as u64);
        let signal = if of_thread.contains(&call.number) { third } else { second } as i32;
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        self.note(id, &call.name(), result)?;
        if signal == libc::SIGKILL && result == 0 {
            self.end_killed(id)?;
        }
        self.interrupt_waits();
        self.go(id, None)
    }

    /// Notes the end of processes that SIGKILL has ended.
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

    /// Ends the waits of threads to which a signal can be delivered. Returns whether there are any.
    pub(crate) fn interrupt_waits(&mut self) -> bool {
        self.interrupt_waits_of(None)
    }

    /// Does the same for the threads of one process, or of all. A thread that begins to wait changes what
    /// signals of its process can do, and nothing for others.
    pub(crate) fn interrupt_waits_of(&mut self, process: Option<u32>) -> bool {
        let mut interrupts = false;
        for thread in self.threads.threads.values_mut() {
            let Activity::Waiting(call, _) = &thread.activity else { continue };
            if process.is_some_and(|process| thread.process != process) {
                continue;
            }
            let Some(why) = ended_by_signal(thread.tracee, call) else { continue };
            thread.activity = Activity::Woken(*call, why);
            thread.polls.idle_polls = 0;
            interrupts = true;
        }
        interrupts
    }
}

/// Waits until the call of `caller` has failed (`CallEnd`), or its process executes another program (`Exec`),
/// which its first thread, `leader`, reports. The kernel ends the other threads before, and waits until their
/// tracer has reaped each.
fn await_exec(caller: Tracee, leader: Tracee, others: &[Tracee]) -> nix::Result<Stop> {
    loop {
        for other in others {
            // ECHILD means that the supervisor has reaped it.
            let _ = poll_stop(*other);
        }
        for thread in [leader, caller] {
            match poll_stop(thread) {
                // The caller gives its id up before it takes that of the first thread.
                Ok(None) | Err(Errno::ECHILD) => {}
                Ok(Some(stop @ (Stop::Exec | Stop::CallEnd | Stop::Exited(_)))) => return Ok(stop),
                // A signal is deferred until the call has ended.
                Ok(Some(_)) => thread.finish_call()?,
                Err(errno) => return Err(errno),
            }
        }
        std::thread::yield_now();
    }
}

/// Length of a `rusage`, in bytes.
const USAGE_BYTES: usize = 144;
/// Offset of `si_pid` in a `siginfo_t`, in bytes.
const CHILD_IN_SIGINFO: u64 = std::mem::offset_of!(ChildSignalInfo, child) as u64;

/// The beginning of a `siginfo_t` about a child, as the kernel lays it out on 64-bit machines.
#[repr(C)]
struct ChildSignalInfo {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    child: i32,
}

/// Waits until the first thread of a process has finished its exit although other threads of the process
/// still exist, of which ptrace gives no notice.
fn await_zombie(leader: Pid) {
    while state(leader).is_some_and(|state| !"ZX".contains(state)) {
        std::thread::yield_now();
    }
}

fn exit_code_or_signal(exit: Exit) -> i64 {
    match exit {
        Exit::Code(code) => i64::from(code),
        Exit::Signal(signal) => -i64::from(signal),
    }
}

/// Returns the letter of a thread's state.
fn state(thread: Pid) -> Option<char> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("State:"))?.trim().chars().next()
}

/// Returns the word that is set to 0 at the end of the thread that this call makes.
fn clear_child_tid(tracee: Tracee, call: &Call) -> u64 {
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
