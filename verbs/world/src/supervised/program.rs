//! The stack that a program begins with, and what the kernel gives it of chance and clocks.
//!
//! The stack that a program begins with: numbers of arguments, pointers to arguments and environment, and the
//! auxiliary vector; the strings are above. The kernel puts all of it as far below the top as the strings are
//! long, so that addresses would depend on the environment and on the folder, which is in it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::look::DeviceLooks;
use super::stepper::{Stop, await_end, await_stop};
use super::supervisor::Supervisor;
use super::threads::ThreadId;
use super::tracee::{Registers, Tracee};
use crate::error::WorldError;

/// Maximum length of the initial stack that is read, in words of 8 bytes.
const MAX_WORDS: u64 = 1 << 20;
const AT_NULL: u64 = 0;
const AT_RANDOM: u64 = 25;
const AT_SYSINFO_EHDR: u64 = 33;
/// Stacks begin at multiples of this, in bytes. The kernel has mapped 128 KiB below the first address.
const STEP: u64 = 32 << 10;

/// Sets the random bytes of the auxiliary vector, and moves the stack down to an address that does not depend
/// on the lengths of strings. Returns the address of the kernel's own functions, and the address at which the
/// vector has it.
fn correct_initial_stack(tracee: Tracee, random: &[u8; 16]) -> nix::Result<Option<(u64, u64)>> {
    let registers = tracee.registers()?;
    let stack = registers.rsp;
    let at = |word: u64| stack.wrapping_add(word.wrapping_mul(8));
    let arguments = tracee.read_u64(stack)?;
    // Behind the arguments and their zero are the environment and its zero.
    let mut word = arguments.saturating_add(2);
    while word < MAX_WORDS && tracee.read_u64(at(word))? != 0 {
        word += 1;
    }
    word += 1;
    let mut vdso = None;
    while word < MAX_WORDS {
        let (kind, value) = (tracee.read_u64(at(word))?, tracee.read_u64(at(word + 1))?);
        match kind {
            AT_NULL => break,
            AT_SYSINFO_EHDR => vdso = Some((value, at(word))),
            AT_RANDOM => tracee.write(value, random)?,
            _ => {}
        }
        word += 2;
    }
    let down = if word < MAX_WORDS { move_down(tracee, registers, word + 2)? } else { 0 };
    Ok(vdso.map(|(value, kind_at)| (value, kind_at.wrapping_sub(down))))
}

/// Moves so many words from the top of the stack down to a multiple of `STEP`. Returns the distance: 0 if the
/// limit of the stack leaves no room.
fn move_down(tracee: Tracee, registers: Registers, words: u64) -> nix::Result<u64> {
    let start = registers.rsp & !(STEP - 1);
    let mut block = vec![0; words as usize * 8];
    tracee.read(registers.rsp, &mut block)?;
    if tracee.write(start, &block).is_err() {
        return Ok(0);
    }
    tracee.set_registers(Registers { rsp: start, ..registers })?;
    Ok(registers.rsp - start)
}

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
