//! `execve` from a process of several threads: all but one of them end, and that one takes the id of the
//! first.

use nix::errno::Errno;

use super::serve::UNCHANGED;
use super::stop::{Stop, poll_stop};
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use super::tracee::Tracee;
use crate::error::WorldError;

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
