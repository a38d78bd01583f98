//! A process becomes another program: what the kernel tells it of chance and clocks is set right.

use nix::errno::Errno;

use super::stop::{Stop, await_end, await_stop};
use super::supervisor::Supervisor;
use super::threads::ThreadId;
use super::tracee::Tracee;
use crate::error::WorldError;

/// Kinds of entries of the auxiliary vector.
const AT_NULL: u64 = 0;
const AT_IGNORE: u64 = 1;
const AT_RANDOM: u64 = 25;
const AT_SYSINFO_EHDR: u64 = 33;
/// Words above the stack pointer that are looked through: arguments, environment and auxiliary vector.
const MOST_WORDS: u64 = 1 << 20;

impl Supervisor {
    /// The thread is stopped in the call by which its process has become another program. Afterwards it
    /// stands before the first instruction of that one.
    pub(crate) fn became_program(&mut self, id: ThreadId) -> Result<(), WorldError> {
        let Some(thread) = self.threads.get_mut(id) else { return Ok(()) };
        let (process, tracee) = (thread.process, thread.tracee);
        thread.clear_word = 0;
        let leader = self.threads.processes.get(&process).map_or(tracee.0, |one| one.leader);
        let path = std::fs::read_link(format!("/proc/{leader}/exe")).unwrap_or_default();
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        // All other threads of the process have gone, and this one has the number of the first.
        for other in self.threads.of_process(process) {
            if other == id {
                continue;
            }
            let gone = self.threads.threads.remove(&other);
            if let Some(gone) = gone.filter(|gone| gone.tracee.0 != leader) {
                match await_end(gone.tracee) {
                    Ok(_) | Err(Errno::ECHILD) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        self.alarms.forget(process, false);
        // Descriptors were closed with it.
        self.changes += 1;
        self.delivery.may_be_pending();
        let mut random = [0; 16];
        if let Some(thread) = self.threads.get_mut(id) {
            thread.tracee = Tracee(leader);
            thread.chance.fill(&mut random);
        }
        if let Some(process) = self.threads.processes.get_mut(&process) {
            process.program = name;
        }
        self.end_vfork(process)?;
        // If it cannot be read, the program does not begin either.
        let vdso = correct_auxiliary_vector(Tracee(leader), &random).ok().flatten();
        finish_exec(Tracee(leader))?;
        let page = vdso.and_then(|(value, _)| self.lay_clock_page(Tracee(leader), value));
        if let Some((_, kind_at)) = vdso.filter(|_| page.is_none()) {
            // The program makes calls to read clocks.
            let _ = Tracee(leader).write(kind_at, &AT_IGNORE.to_ne_bytes());
        }
        if let Some(process) = self.threads.processes.get_mut(&process) {
            process.page = page;
        }
        Ok(())
    }
}

/// Goes on to the end of the call.
fn finish_exec(tracee: Tracee) -> nix::Result<()> {
    loop {
        tracee.finish_call()?;
        match await_stop(tracee)? {
            Stop::CallEnd | Stop::Gone(_) => return Ok(()),
            _ => {}
        }
    }
}

/// Sets the random bytes. Returns where the kernel's own functions are, and where the vector says so.
fn correct_auxiliary_vector(tracee: Tracee, random: &[u8; 16]) -> nix::Result<Option<(u64, u64)>> {
    let stack = tracee.registers()?.rsp;
    let at = |word: u64| stack.wrapping_add(word.wrapping_mul(8));
    let arguments = tracee.read_u64(stack)?;
    // Behind the arguments and their zero: the environment and its zero.
    let mut word = arguments.saturating_add(2);
    while word < MOST_WORDS && tracee.read_u64(at(word))? != 0 {
        word += 1;
    }
    word += 1;
    let mut vdso = None;
    while word < MOST_WORDS {
        let (kind, value) = (tracee.read_u64(at(word))?, tracee.read_u64(at(word + 1))?);
        match kind {
            AT_NULL => break,
            AT_SYSINFO_EHDR => vdso = Some((value, at(word))),
            AT_RANDOM => tracee.write(value, random)?,
            _ => {}
        }
        word += 2;
    }
    Ok(vdso)
}
