//! Corrects what the kernel gives a new program of chance and clocks when a process executes one.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::initial_stack::correct_initial_stack;
use super::look::DeviceLooks;
use super::stop::{Stop, await_end, await_stop};
use super::supervisor::Supervisor;
use super::threads::ThreadId;
use super::tracee::Tracee;
use crate::error::WorldError;

/// The kind of an entry of the auxiliary vector that programs pass over.
const AT_IGNORE: u64 = 1;

impl Supervisor {
    /// Prepares a thread that is stopped in the call by which its process executed another program.
    /// Afterwards it is stopped before the first instruction of that program.
    pub(crate) fn became_program(&mut self, id: ThreadId) -> Result<(), WorldError> {
        let Some(thread) = self.threads.get_mut(id) else { return Ok(()) };
        let (process, tracee) = (thread.process, thread.tracee);
        thread.clear_child_tid = 0;
        let leader = self.threads.processes.get(&process).map_or(tracee.0, |one| one.leader);
        let path = std::fs::read_link(format!("/proc/{leader}/exe")).unwrap_or_default();
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        // All other threads of the process have ended, and this one has the id of the first.
        for other in self.threads.of_process(process) {
            if other == id {
                continue;
            }
            let ended = self.threads.threads.remove(&other);
            if let Some(ended) = ended.filter(|ended| ended.tracee.0 != leader) {
                match await_end(ended.tracee) {
                    Ok(_) | Err(Errno::ECHILD) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        let begins = self.is_preparing;
        if begins {
            self.begin_run(id);
        }
        refuse_other_processor(leader, &path)?;
        self.time.alarms.forget(process, false);
        // Descriptors with FD_CLOEXEC were closed.
        self.turns.changes += 1;
        self.network.delivery.may_be_pending();
        self.network.port_groups.may_have_changed();
        let mut random = [0; 16];
        if let Some(thread) = self.threads.get_mut(id) {
            thread.tracee = Tracee(leader);
            thread.random.fill(&mut random);
        }
        if let Some(process) = self.threads.processes.get_mut(&process) {
            process.program = name;
        }
        if begins {
            self.doubt_measured_computing(id)?;
        }
        self.end_vfork(process)?;
        // If the stack cannot be read, the program cannot begin either.
        let vdso = correct_initial_stack(Tracee(leader), &random).ok().flatten();
        finish_exec(Tracee(leader))?;
        self.replace_in_program(leader);
        let page = vdso.and_then(|(value, _)| self.install_clock_page(Tracee(leader), value));
        if let Some((_, kind_at)) = vdso.filter(|_| page.is_none()) {
            // Without the vDSO, the program makes calls to read clocks.
            let _ = Tracee(leader).write(kind_at, &AT_IGNORE.to_ne_bytes());
        }
        if let Some(process) = self.threads.processes.get_mut(&process) {
            process.page = page;
            process.devices = DeviceLooks::default();
        }
        Ok(())
    }
}

/// Refuses a program of 32 bits, whose calls have other numbers.
fn refuse_other_processor(leader: Pid, path: &Path) -> Result<(), WorldError> {
    /// Byte of an ELF file with its class, and the class of 64 bits.
    const CLASS_AT: usize = 4;
    const OF_64_BITS: u8 = 2;
    let mut head = [0; CLASS_AT + 1];
    let read = File::open(format!("/proc/{leader}/exe")).and_then(|mut file| file.read_exact(&mut head));
    if read.is_err() || head[CLASS_AT] == OF_64_BITS {
        return Ok(());
    }
    let sentence =
        "a world runs programs of 64 bits alone, and this is one of 32: use a build of it for x86-64";
    let error = std::io::Error::new(std::io::ErrorKind::Unsupported, sentence);
    Err(WorldError::Program { program: path.display().to_string(), error })
}

/// Continues to the end of the call.
fn finish_exec(tracee: Tracee) -> nix::Result<()> {
    loop {
        tracee.finish_call()?;
        match await_stop(tracee)? {
            Stop::CallEnd | Stop::Exited(_) => return Ok(()),
            _ => {}
        }
    }
}
