//! Calls on files, and what programs ask about chance and processors.

use std::path::Path;

use syscalls::Sysno;

use super::machine::{EMPTY_FOLDERS, PROCESSORS, is_unsteady};
use super::serve::{AS_IT_IS, Made};
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use super::tracee::Registers;
use super::waits::{Wait, WaitFor};
use crate::error::WorldError;

/// Random bytes that one call gives at most.
const MOST_RANDOM: u64 = 1 << 20;

/// The kernel hands on what is written to a pseudo-terminal in its own time: no world has any, and programs
/// that could do with a pipe take one.
const PSEUDO_TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts/ptmx"];

impl Supervisor {
    /// Opens a file. What it says may not repeat: then the run says so.
    pub(crate) fn open(&mut self, id: ThreadId, call: Call, name: usize) -> Result<(), WorldError> {
        let address = call.arguments().get(name).copied().unwrap_or(0);
        let path = self.tracee(id)?.read_name(address);
        if path == "/dev/urandom" || path == "/dev/random" {
            return self.open_random(id, call);
        }
        if PSEUDO_TERMINALS.contains(&path.as_str()) {
            return self.answer(id, call, -i64::from(libc::ENOENT));
        }
        if let Some(text) = self.corrected(id, &path) {
            return self.open_text(id, call, text.as_bytes());
        }
        let Made::Result(result) = self.make(id, call, AS_IT_IS)? else { return Ok(()) };
        if result >= 0 && is_unsteady(&path) && !self.is_private(&path) {
            self.doubt(id, &format!("read {path}"))?;
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Whether a file is in a folder that only this world has.
    fn is_private(&self, path: &str) -> bool {
        let own = self.options.private_folders.iter().map(|folder| folder.as_path());
        own.chain(EMPTY_FOLDERS.map(Path::new)).any(|folder| Path::new(path).starts_with(folder))
    }

    /// A file of random bytes is one that the seed has written.
    fn open_random(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let mut bytes = vec![0; 1 << 16];
        if let Some(thread) = self.threads.get_mut(id) {
            thread.chance.fill(&mut bytes);
        }
        self.open_text(id, call, &bytes)
    }

    /// The program gets a file with these bytes instead of the one that it names.
    fn open_text(&mut self, id: ThreadId, call: Call, bytes: &[u8]) -> Result<(), WorldError> {
        // Below the stack, where nothing of the program's is.
        let name = call.registers.rsp.wrapping_sub(1024) & !15;
        self.tracee(id)?.write(name, b"file\0")?;
        let as_memory = |registers: &mut Registers| {
            registers.orig_rax = Sysno::memfd_create as u64;
            (registers.rdi, registers.rsi) = (name, 0);
        };
        let Made::Result(result) = self.make(id, call, &as_memory)? else { return Ok(()) };
        if let Some(thread) = self.threads.get(id) {
            let file = self.descriptors.get(&thread.process).and_then(|all| all.get(result as i32));
            if let Some(file) = file {
                // Written at its beginning, without moving what the program reads next.
                let _ = nix::sys::uio::pwrite(&file, bytes, 0);
            }
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    pub(crate) fn give_random(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [address, length, ..] = call.arguments();
        let mut bytes = vec![0; length.min(MOST_RANDOM) as usize];
        let Some(thread) = self.threads.get_mut(id) else { return Ok(()) };
        thread.chance.fill(&mut bytes);
        let done = thread.tracee.write(address, &bytes).map(|()| bytes.len() as i64);
        self.answer_done(id, call, done)
    }

    /// All processors of the machine of every world.
    pub(crate) fn tell_affinity(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, length, address, ..] = call.arguments();
        if length < 8 {
            return self.answer(id, call, -i64::from(libc::EINVAL));
        }
        let mask = (1_u64 << PROCESSORS) - 1;
        let done = self.tracee(id)?.write(address, &mask.to_ne_bytes()).map(|()| 8);
        self.answer_done(id, call, done)
    }

    /// The processor that a thread is on: the first one, in every run.
    pub(crate) fn tell_processor(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [processor, node, ..] = call.arguments();
        let tracee = self.tracee(id)?;
        let mut places = [processor, node].into_iter().filter(|place| *place != 0);
        let done = places.try_for_each(|place| tracee.write(place, &[0; 4]));
        self.answer_done(id, call, done.map(|()| 0))
    }

    /// Locks a file; waits here while another one has it.
    pub(crate) fn flock(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, operation, ..] = call.arguments();
        let looks_only = operation as i32 & libc::LOCK_NB != 0;
        let without_waiting = |registers: &mut Registers| registers.rsi |= libc::LOCK_NB as u64;
        let Made::Result(result) = self.make(id, call, &without_waiting)? else { return Ok(()) };
        if result == -i64::from(libc::EWOULDBLOCK) && !looks_only {
            return self.wait_for_lock(id, call);
        }
        self.changes += 1;
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    fn wait_for_lock(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let mut wait = Wait::new(WaitFor::Lock, None);
        wait.looked_at = self.changes;
        self.wait_again(id, call, wait)
    }

    /// `fcntl`: locks of records that would wait are tried instead.
    pub(crate) fn fcntl(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, command, ..] = call.arguments();
        let tried = match command as i32 {
            libc::F_SETLKW => libc::F_SETLK,
            libc::F_OFD_SETLKW => libc::F_OFD_SETLK,
            _ => return self.make_and_go(id, call, AS_IT_IS),
        };
        let without_waiting = |registers: &mut Registers| registers.rsi = tried as u64;
        let Made::Result(result) = self.make(id, call, &without_waiting)? else { return Ok(()) };
        if [-i64::from(libc::EAGAIN), -i64::from(libc::EACCES)].contains(&result) {
            return self.wait_for_lock(id, call);
        }
        self.changes += 1;
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }
}
