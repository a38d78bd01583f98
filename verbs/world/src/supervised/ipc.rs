//! Semaphores and message queues of System V: calls that would wait in the kernel are tried, and tried again
//! when something has changed.

use syscalls::Sysno;

use super::rows::SyscallClass;
use super::serve::{CallOutcome, UNCHANGED};
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use super::tracee::Registers;
use super::waits::Woken;
use crate::error::WorldError;

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

impl Supervisor {
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
