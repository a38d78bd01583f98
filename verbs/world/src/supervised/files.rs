//! Calls on files, facts about file systems, and calls that ask for random bytes and processors.

use std::path::Path;

use syscalls::Sysno;

use super::machine::{EMPTY_FOLDERS, PROCESSORS, is_unsteady};
use super::serve::{CallOutcome, UNCHANGED};
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use super::tracee::{Registers, Tracee};
use crate::error::WorldError;

/// Offset of the five numbers of blocks and files in a `statfs` structure, in bytes, and the id behind them.
const NUMBERS_AT: u64 = 16;
/// Number of blocks and of files.
const BLOCKS: u64 = 1 << 28;
const FILES: u64 = 1 << 24;

impl Supervisor {
    /// Serves `statfs` and `fstatfs`.
    pub(crate) fn describe_file_system(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, structure, ..] = call.arguments();
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        if result == 0 {
            // Blocks: all, free, free for users. Files: all, free. The id of the file system.
            let numbers = [BLOCKS, BLOCKS / 2, BLOCKS / 2, FILES, FILES / 2, 1].map(u64::to_ne_bytes);
            // If the structure cannot be written, the call has reported it.
            let _ = self.tracee(id)?.write(structure.wrapping_add(NUMBERS_AT), numbers.as_flattened());
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Opens a file. If its contents may not repeat, the run notes a doubt.
    pub(crate) fn open(&mut self, id: ThreadId, call: Call, name: usize) -> Result<(), WorldError> {
        let address = call.arguments().get(name).copied().unwrap_or(0);
        let folder = if name == 0 { libc::AT_FDCWD } else { call.arguments()[0] as i32 };
        let path = self.path_of(id, folder, self.tracee(id)?.read_name(address));
        if path == "/dev/urandom" || path == "/dev/random" {
            return self.open_random(id, call);
        }
        if PSEUDO_TERMINALS.contains(&path.as_str()) {
            return self.answer(id, call, -i64::from(libc::ENOENT));
        }
        if let Some(text) = self.corrected(id, &path) {
            return self.open_text(id, call, text.as_bytes());
        }
        if let Some(opening) = self.fifo_opening(id, &call, &path) {
            return self.open_fifo(id, call, opening);
        }
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        if result >= 0 {
            // The name may be that of a link.
            let opened = self.opened_path(id, result).unwrap_or_else(|| path.clone());
            let paths = [path, opened];
            let unsteady = paths.iter().find(|path| is_unsteady(path) && !self.is_private(path));
            if let Some(path) = unsteady {
                self.doubt(id, &format!("read {path}"))?;
            }
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Reports whether a file is in a folder that only this world has.
    fn is_private(&self, path: &str) -> bool {
        let own = self.options.private_folders.iter().map(|folder| folder.as_path());
        own.chain(EMPTY_FOLDERS.map(Path::new)).any(|folder| Path::new(path).starts_with(folder))
    }

    /// Returns the whole path of a name, relative to a folder or to the current one; processes of the world
    /// have the name `self` in it.
    fn path_of(&self, id: ThreadId, folder: i32, name: String) -> String {
        let Some(thread) = self.threads.get(id) else { return name };
        let base = match folder {
            _ if name.starts_with('/') => String::new(),
            libc::AT_FDCWD => link(&format!("/proc/{}/cwd", thread.tracee.0)),
            folder => link(&format!("/proc/{}/fd/{folder}", thread.tracee.0)),
        };
        self.with_self(id, normalized(&format!("{base}/{name}")))
    }

    /// Returns the path of a file that a thread has opened.
    fn opened_path(&self, id: ThreadId, descriptor: i64) -> Option<String> {
        let tracee = self.threads.get(id)?.tracee;
        let path = link(&format!("/proc/{}/fd/{descriptor}", tracee.0));
        path.starts_with('/').then(|| self.with_self(id, path))
    }

    /// Replaces the number of a process of the world in a path below /proc by `self`, except where the file
    /// is of another process than that of this thread and the supervisor must find it.
    fn with_self(&self, id: ThreadId, path: String) -> String {
        let Some(inner) = path.strip_prefix("/proc/") else { return path };
        let (number, rest) = inner.split_once('/').unwrap_or((inner, ""));
        let Ok(number) = number.parse::<i32>() else { return path };
        let leader = self.threads.get(id).and_then(|thread| self.threads.processes.get(&thread.process));
        let own = leader.and_then(|process| Tracee(process.leader).number_inside());
        // Process 1 is none of the world's.
        if number == 1 || own != Some(number) && is_corrected(rest) {
            return path;
        }
        format!("/proc/self/{rest}")
    }

    /// Opens a file of random bytes, which come from the seed.
    fn open_random(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let mut bytes = vec![0; 1 << 16];
        if let Some(thread) = self.threads.get_mut(id) {
            thread.random.fill(&mut bytes);
        }
        self.open_text(id, call, &bytes)
    }

    /// Opens a file with these bytes instead of the one that the program names.
    fn open_text(&mut self, id: ThreadId, call: Call, bytes: &[u8]) -> Result<(), WorldError> {
        // The name is written below the stack, where the program has no data.
        let name = call.registers.rsp.wrapping_sub(1024) & !15;
        self.tracee(id)?.write(name, b"file\0")?;
        let as_memory = |registers: &mut Registers| {
            registers.orig_rax = Sysno::memfd_create as u64;
            (registers.rdi, registers.rsi) = (name, 0);
        };
        let CallOutcome::Result(result) = self.make(id, call, &as_memory)? else { return Ok(()) };
        if let Some(thread) = self.threads.get(id) {
            let file = self.files.descriptors.get(&thread.process).and_then(|all| all.get(result as i32));
            if let Some(file) = file {
                // The bytes are written at the beginning, without moving the program's read position.
                let _ = nix::sys::uio::pwrite(&file, bytes, 0);
            }
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    pub(crate) fn fill_random(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [address, length, ..] = call.arguments();
        let mut bytes = vec![0; length.min(MAX_RANDOM) as usize];
        let Some(thread) = self.threads.get_mut(id) else { return Ok(()) };
        thread.random.fill(&mut bytes);
        let done = thread.tracee.write(address, &bytes).map(|()| bytes.len() as i64);
        self.answer_done(id, call, done)
    }

    /// Returns all processors of the machine of every world.
    pub(crate) fn report_affinity(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, length, address, ..] = call.arguments();
        if length < 8 {
            return self.answer(id, call, -i64::from(libc::EINVAL));
        }
        let mask = (1_u64 << PROCESSORS) - 1;
        let done = self.tracee(id)?.write(address, &mask.to_ne_bytes()).map(|()| 8);
        self.answer_done(id, call, done)
    }

    /// Returns the processor that a thread is on: the first one, in every run.
    pub(crate) fn report_processor(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [processor, node, ..] = call.arguments();
        let tracee = self.tracee(id)?;
        let mut pointers = [processor, node].into_iter().filter(|pointer| *pointer != 0);
        let done = pointers.try_for_each(|pointer| tracee.write(pointer, &[0; 4]));
        self.answer_done(id, call, done.map(|()| 0))
    }

    /// Serves `get_mempolicy`: every address is on the first node, in every run.
    pub(crate) fn return_memory_policy(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        const NODE: u64 = 1;
        let [mode, _, _, _, flags, _] = call.arguments();
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        if result == 0 && flags & NODE != 0 && mode != 0 {
            // If the number cannot be written, the call has reported it.
            let _ = self.tracee(id)?.write(mode, &[0; 4]);
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Serves `kcmp`: objects are equal or not, and have no order.
    pub(crate) fn compare_objects(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        const WITHOUT_ORDER: i64 = 3;
        let CallOutcome::Result(made) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        let result = if made > 0 { WITHOUT_ORDER } else { made };
        let tracee = self.tracee(id)?;
        let after = tracee.registers()?;
        tracee.set_registers(Registers { rax: result as u64, ..after })?;
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Locks a file; waits here while another process has the lock.
    pub(crate) fn flock(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, operation, ..] = call.arguments();
        let looks_only = operation as i32 & libc::LOCK_NB != 0;
        let without_waiting = |registers: &mut Registers| registers.rsi |= libc::LOCK_NB as u64;
        let CallOutcome::Result(result) = self.make(id, call, &without_waiting)? else { return Ok(()) };
        if result == -i64::from(libc::EWOULDBLOCK) && !looks_only {
            return self.wait_for_lock(id, call);
        }
        self.turns.changes += 1;
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    fn wait_for_lock(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        self.wait_for_change(id, call, "the lock of a file", None)
    }

    /// Serves `fcntl`: a record lock that would wait is tried instead.
    pub(crate) fn fcntl(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, command, ..] = call.arguments();
        let tried = match command as i32 {
            libc::F_SETLKW => libc::F_SETLK,
            libc::F_OFD_SETLKW => libc::F_OFD_SETLK,
            _ => return self.make_and_resume(id, call, UNCHANGED),
        };
        let without_waiting = |registers: &mut Registers| registers.rsi = tried as u64;
        let CallOutcome::Result(result) = self.make(id, call, &without_waiting)? else { return Ok(()) };
        if [-i64::from(libc::EAGAIN), -i64::from(libc::EACCES)].contains(&result) {
            return self.wait_for_lock(id, call);
        }
        self.turns.changes += 1;
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }
}

/// Maximum number of random bytes that one call gives.
const MAX_RANDOM: u64 = 1 << 20;

/// Pseudo-terminals, which no world has: the kernel passes on what is written to them at a time of its own,
/// and programs that can use a pipe instead do so.
const PSEUDO_TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts/ptmx"];

/// Reports whether programs read a corrected copy of this file of a process.
fn is_corrected(name: &str) -> bool {
    matches!(name.rsplit('/').next(), Some("stat" | "status" | "maps"))
}

/// Returns the text of a link; empty if there is none.
fn link(path: &str) -> String {
    std::fs::read_link(path).map_or_else(|_| String::new(), |to| to.to_string_lossy().into_owned())
}

/// Removes empty components and `.` from an absolute path, and `..` with the component before it.
fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_the_same_in_each_spelling() {
        assert_eq!(normalized("//proc/./sys/../self//stat"), "/proc/self/stat");
        assert_eq!(normalized("/../x/"), "/x");
    }
}
