//! Opening of FIFOs: an end that waits for the other one waits here, and not in the kernel.
//!
//! A thread that opens one end of a FIFO waits until another thread opens the other end. The kernel does not
//! wait if the call says that it must not. So the calls of both ends are made when both are there, the
//! reader's first, because a writer that must not wait needs a reader.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use syscalls::Sysno;

use super::serve::CallOutcome;
use super::supervisor::Supervisor;
use super::threads::{Activity, Call, ThreadId};
use super::tracee::Registers;
use super::waits::{FifoEnd, Wait, WaitFor};
use crate::error::WorldError;

/// A call that opens an end of a FIFO, and would wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FifoOpening {
    end: FifoEnd,
    flags: i32,
}

impl Supervisor {
    /// Returns what a call opens, if that is an end of a FIFO for which it would wait; `path` is the file's,
    /// as the program sees it.
    pub(crate) fn fifo_opening(&self, id: ThreadId, call: &Call, path: &str) -> Option<FifoOpening> {
        let [_, second, third, ..] = call.arguments();
        let flags = match Sysno::new(call.number as usize)? {
            Sysno::open => second as i32,
            Sysno::openat => third as i32,
            Sysno::creat => libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC,
            // The flags of `openat2` are in memory. Programs do not open FIFOs with it.
            _ => return None,
        };
        let writes = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => false,
            libc::O_WRONLY => true,
            _ => return None,
        };
        // Links in these folders lead to descriptors of the program: /dev/stdin, /proc/self/fd/3.
        let is_special = path.starts_with("/proc/") || path.starts_with("/dev/");
        let is_link = is_special && !path.starts_with("/dev/shm/");
        if is_link || flags & (libc::O_NONBLOCK | libc::O_PATH) != 0 {
            return None;
        }
        let thread = self.threads.get(id)?;
        let about = fs::metadata(format!("/proc/{}/root{path}", thread.tracee.0)).ok()?;
        let end = FifoEnd { file: (about.dev(), about.ino()), writes };
        about.file_type().is_fifo().then_some(FifoOpening { end, flags })
    }

    /// Serves the opening of an end of a FIFO.
    pub(crate) fn open_fifo(
        &mut self,
        id: ThreadId,
        call: Call,
        opening: FifoOpening,
    ) -> Result<(), WorldError> {
        let other = FifoEnd { writes: !opening.end.writes, ..opening.end };
        if self.is_open(other) {
            let Some(result) = self.open_end(id, call, opening.flags)? else { return Ok(()) };
            self.note(id, &call.name(), result)?;
            return self.go(id, None);
        }
        let Some(theirs) = self.opener_of(other) else {
            return self.wait(id, call, Wait::new(WaitFor::Fifo(opening.end, opening.flags), None));
        };
        let own = (id, call, opening.flags);
        let (reader, writer) = if opening.end.writes { (theirs, own) } else { (own, theirs) };
        for (opener, call, flags) in [reader, writer] {
            let Some(result) = self.open_end(opener, call, flags)? else { continue };
            self.note(opener, &call.name(), result)?;
            if let Some(thread) = self.threads.get_mut(opener) {
                thread.activity = Activity::Program;
            }
        }
        self.go(id, None)
    }

    /// Makes a call that opens an end of a FIFO, without a wait. Returns its result; `None` if the thread
    /// does not return from it.
    fn open_end(&mut self, id: ThreadId, call: Call, flags: i32) -> Result<Option<i64>, WorldError> {
        let without_waiting = |registers: &mut Registers| {
            let flags = (flags | libc::O_NONBLOCK) as u64;
            match Sysno::new(call.number as usize) {
                Some(Sysno::openat) => registers.rdx = flags,
                Some(Sysno::creat) => {
                    registers.orig_rax = Sysno::open as u64;
                    (registers.rsi, registers.rdx) = (flags, registers.rsi);
                }
                _ => registers.rsi = flags,
            }
        };
        self.turns.changes += 1;
        let CallOutcome::Result(result) = self.make(id, call, &without_waiting)? else { return Ok(None) };
        let process = self.threads.get(id).map_or(0, |thread| thread.process);
        let file = i32::try_from(result).ok().filter(|descriptor| *descriptor >= 0);
        let file = file.and_then(|descriptor| self.files.descriptors.get(&process)?.get(descriptor));
        if let Some(file) = file {
            // The flag is that of the open file, which the program has.
            let flags = OFlag::from_bits_retain(flags & !libc::O_NONBLOCK);
            let _ = fcntl(&file, FcntlArg::F_SETFL(flags));
        }
        Ok(Some(result))
    }

    /// Returns a thread that waits in a call which opens this end of a FIFO, with the call and its flags.
    fn opener_of(&self, end: FifoEnd) -> Option<(ThreadId, Call, i32)> {
        self.threads.threads.iter().find_map(|(id, thread)| match &thread.activity {
            Activity::Waiting(call, Wait { on: WaitFor::Fifo(waited, flags), .. }) if *waited == end => {
                Some((*id, *call, *flags))
            }
            _ => None,
        })
    }

    /// Reports whether a process of the world has this end of a FIFO open.
    fn is_open(&self, end: FifoEnd) -> bool {
        self.threads.processes.values().any(|process| {
            let folder = format!("/proc/{}", process.leader);
            let descriptors = fs::read_dir(format!("{folder}/fd")).into_iter().flatten().flatten();
            descriptors.filter(|one| is_file(one, end.file)).any(|one| {
                let about = format!("{folder}/fdinfo/{}", one.file_name().to_string_lossy());
                match access_mode(&fs::read_to_string(about).unwrap_or_default()) {
                    Some(libc::O_RDWR) => true,
                    Some(libc::O_WRONLY) => end.writes,
                    Some(_) => !end.writes,
                    None => false,
                }
            })
        })
    }
}

/// Reports whether an entry of a folder of descriptors is of this file.
fn is_file(entry: &fs::DirEntry, file: (u64, u64)) -> bool {
    fs::metadata(entry.path()).is_ok_and(|about| (about.dev(), about.ino()) == file)
}

/// Returns how a file was opened, from the text in /proc about its descriptor.
fn access_mode(about: &str) -> Option<i32> {
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"))?.trim();
    Some(i32::from_str_radix(flags, 8).ok()? & libc::O_ACCMODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_a_descriptor_is_in_its_text() {
        let about = |flags: &str| format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t13\n");
        assert_eq!(access_mode(&about("0100001")), Some(libc::O_WRONLY));
        assert_eq!(access_mode(&about("02104000")), Some(libc::O_RDONLY));
        assert_eq!((access_mode(&about("0100002")), access_mode("pos: 0\n")), (Some(libc::O_RDWR), None));
    }
}
