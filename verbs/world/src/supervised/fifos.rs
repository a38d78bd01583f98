//! Opening of FIFOs, and semaphores and message queues of System V.
//!
//! Semaphores and message queues of System V: calls that would wait in the kernel are tried, and tried again
//! when something has changed.
//!
//! A thread that opens one end of a FIFO waits until another thread opens the other end. The kernel does not
//! wait if the call says that it must not. So the calls of both ends are made when both are there, the
//! reader's first, because a writer that must not wait needs a reader.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use syscalls::Sysno;

use super::rows::SyscallClass;
use super::serve::{CallOutcome, UNCHANGED};
use super::supervisor::Supervisor;
use super::threads::{Activity, Call, ThreadId};
use super::tracee::Registers;
use super::waits::{FifoEnd, Wait, WaitFor, Woken};
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

    /// Serves `semop` and `semtimedop`.
    pub(crate) fn use_semaphores(
        &mut self,
        id: ThreadId,
        call: Call,
        woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        let [_, operations, count, timeout, ..] = call.arguments();
        let tracee = self.tracee(id)?;
        let mut bytes = vec![0; count.min(MAX_OPERATIONS) as usize * OPERATION_BYTES];
        if count > MAX_OPERATIONS || tracee.read(operations, &mut bytes).is_err() {
            return self.make_and_resume(id, call, UNCHANGED);
        }
        if woken.is_none() {
            self.turns.sleeps.remove(&id);
            if call.number == Sysno::semtimedop as u64 && timeout != 0 {
                let until_ns = tracee.read_timespec(timeout)?.saturating_add(self.time.clock.now_ns());
                self.turns.sleeps.insert(id, until_ns);
            }
        }
        let flags = |bytes: &[u8]| bytes.get(NO_WAIT_AT).copied().unwrap_or(0);
        let may_wait = bytes.chunks_exact(OPERATION_BYTES).any(|one| flags(one) & NO_WAIT == 0);
        let mut tried = bytes.clone();
        for byte in tried.chunks_exact_mut(OPERATION_BYTES).filter_map(|one| one.get_mut(NO_WAIT_AT)) {
            *byte |= NO_WAIT;
        }
        // If the program's memory is read-only, the call may wait in the kernel, which the run then reports.
        let _ = tracee.write(operations, &tried);
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        let _ = tracee.write(operations, &bytes);
        let is_over = woken == Some(Woken::TimedOut);
        if result == -i64::from(libc::EAGAIN) && may_wait && !is_over {
            let until_ns = self.turns.sleeps.get(&id).copied();
            return self.wait_for_change(id, call, "a semaphore", until_ns);
        }
        self.end_ipc(id, call, result)
    }

    /// Serves `msgsnd` and `msgrcv`.
    pub(crate) fn use_messages(
        &mut self,
        id: ThreadId,
        call: Call,
        syscall_class: SyscallClass,
    ) -> Result<(), WorldError> {
        let [_, _, _, fourth, fifth, _] = call.arguments();
        let no_wait = libc::IPC_NOWAIT as u64;
        let sends = syscall_class == SyscallClass::SendsMessage;
        let (flags, count_idle_poll) = if sends { (fourth, libc::EAGAIN) } else { (fifth, libc::ENOMSG) };
        let tried = |registers: &mut Registers| {
            if sends {
                registers.r10 |= no_wait;
            } else {
                registers.r8 |= no_wait;
            }
        };
        let CallOutcome::Result(result) = self.make(id, call, &tried)? else { return Ok(()) };
        if result == -i64::from(count_idle_poll) && flags & no_wait == 0 {
            let what = if sends { "room in a queue of messages" } else { "a message of a queue" };
            return self.wait_for_change(id, call, what, None);
        }
        self.end_ipc(id, call, result)
    }

    /// Serves `semctl`, `msgctl` and `shmctl`, whose command is the argument with this index.
    pub(crate) fn control_ipc(&mut self, id: ThreadId, call: Call, command: usize) -> Result<(), WorldError> {
        // Commands that return times, and facts about the whole machine: of all kinds, and of each.
        const OF_ALL: [i32; 2] = [libc::IPC_STAT, 3];
        let of_kind = match Sysno::new(call.number as usize) {
            Some(Sysno::semctl) => [18, 19, 20],
            Some(Sysno::msgctl) => [11, 12, 13],
            _ => [13, 14, 15],
        };
        let buffer = call.arguments().get(command + 1).copied().unwrap_or(0);
        let command = call.arguments().get(command).copied().unwrap_or(0) as i32 & 0xff;
        let is_segment = Sysno::new(call.number as usize) == Some(Sysno::shmctl) && command == libc::IPC_STAT;
        if is_segment {
            let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
            if result >= 0 {
                // If the times cannot be written, the call has reported it.
                let _ =
                    self.tracee(id)?.write(buffer.wrapping_add(SEGMENT_TIMES_AT), &[0; SEGMENT_TIMES_BYTES]);
            }
            return self.end_ipc(id, call, result);
        }
        if Sysno::new(call.number as usize) == Some(Sysno::shmctl) && command == SEGMENT_LIMITS {
            let limits: Vec<u8> = KERNEL_LIMITS.iter().flat_map(|limit| limit.to_ne_bytes()).collect();
            let written = self.tracee(id)?.write(buffer, &limits);
            return self.answer_done(id, call, written.map(|()| 0));
        }
        if OF_ALL.iter().chain(&of_kind).any(|one| *one == command) {
            self.doubt(id, &format!("asked for times by {}", call.name()))?;
        }
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        self.end_ipc(id, call, result)
    }

    /// Ends the call: other threads may now have a different result.
    fn end_ipc(&mut self, id: ThreadId, call: Call, result: i64) -> Result<(), WorldError> {
        if result >= 0 {
            self.turns.changes += 1;
            self.reset_idle_polls(id);
        } else {
            self.count_idle_poll(id, &call);
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
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

/// Maximum number of operations on semaphores in one call, as in the kernel.
const MAX_OPERATIONS: u64 = 500;
/// Length of a `sembuf`, in bytes: number, operation and flags, of two bytes each.
const OPERATION_BYTES: usize = 6;
/// Offset of the byte of a `sembuf` with the flag IPC_NOWAIT.
const NO_WAIT_AT: usize = 5;
/// Offset of the times of the last attachment, detachment and change in a `shmid_ds`, in bytes.
const SEGMENT_TIMES_AT: u64 = 56;
/// Length of these times, in bytes. They are 0 in every world: real time has no part in a run.
const SEGMENT_TIMES_BYTES: usize = 24;
/// The command of `shmctl` that asks for limits, IPC_INFO.
const SEGMENT_LIMITS: i32 = 3;
/// A `shminfo` with Linux's own limits: largest segment, smallest one, segments of the system and of a process,
/// pages of all; four words are unused. The index of the last segment, which the call returns, is 0 in every world.
const KERNEL_LIMITS: [u64; 9] = [u64::MAX - (1 << 24), 1, 4096, 4096, u64::MAX - (1 << 24), 0, 0, 0, 0];
const NO_WAIT: u8 = (libc::IPC_NOWAIT >> 8) as u8;

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
