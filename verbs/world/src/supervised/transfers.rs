//! Calls that move bytes or messages by descriptors: they are made when they need not wait in the kernel.
//!
//! A write that is longer than the room in a pipe or a stream would wait in the kernel for its reader, which
//! is another thread of the world. It is made in parts.

use std::os::fd::{AsFd as _, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use syscalls::Sysno;

use super::moved_bytes::digest;
use super::readiness::{is_of_network, is_outside, is_pipe, is_pipe_or_stream};
use super::serve::{CallOutcome, UNCHANGED};
use super::signals::{PollingThread, SIGNALS, clear_times, file_kind};
use super::supervisor::Supervisor;
use super::threads::{Call, PartialCall, ThreadId};
use super::tracee::{Registers, Tracee};
use super::waits::{Interest, Wait, WaitFor, Woken};
use crate::error::WorldError;

/// Number of bytes that always fit into a pipe or stream that is writable.
const ALWAYS_FIT: u64 = 4096;
/// Maximum number of parts of a vector, as in the kernel.
const MAX_IOVECS: u64 = 1024;

impl Supervisor {
    /// Serves reads, writes, receives, sends and accepts: makes the call when the descriptor is ready.
    pub(crate) fn transfer(
        &mut self,
        id: ThreadId,
        call: Call,
        events: i16,
        flags: Option<usize>,
        woken: Option<Woken>,
    ) -> Result<(), WorldError> {
        let arguments = call.arguments();
        let descriptor = arguments[0] as i32;
        if woken == Some(Woken::TimedOut) {
            return self.answer(id, call, -i64::from(libc::EAGAIN));
        }
        let is_dontwait = flags
            .and_then(|flags| arguments.get(flags))
            .is_some_and(|flags| *flags as i32 & libc::MSG_DONTWAIT != 0);
        let interest = Interest { descriptor, events };
        let Some(thread) = self.threads.get(id) else { return Ok(()) };
        let descriptors = self.files.descriptors.get(&thread.process);
        let polling_thread = PollingThread::new(thread.tracee, self.files.has_signal_files);
        // A reader outside of the world makes room by itself, so that the call may wait in the kernel.
        let file = descriptors.and_then(|all| all.get(descriptor));
        let never_waits = is_dontwait || file.is_some_and(|file| moves_nothing(&call, &file));
        let must_wait = !never_waits
            && descriptors.is_some_and(|all| all.would_wait(polling_thread, interest))
            && !(events == libc::POLLOUT && self.writes_outside(id, &call));
        let is_long = events == libc::POLLOUT
            && !is_dontwait
            && length(thread.tracee, thread.partial_call.as_ref().map_or(&call, |part| &part.original))
                .is_some_and(|length| length > ALWAYS_FIT);
        let blocking = descriptors.filter(|_| is_long).and_then(|all| all.blocking(descriptor));
        let blocking = blocking.filter(|file| is_pipe_or_stream(file.as_fd()) && !is_outside(file.as_fd()));
        if must_wait {
            let timeout_ns = descriptors.and_then(|all| all.timeout_ns(interest));
            let until_ns = timeout_ns.map(|ns| self.time.clock.now_ns().saturating_add(ns));
            let mut wait = Wait::new(WaitFor::Descriptors(vec![interest]), until_ns);
            wait.checked_at_change = self.turns.changes;
            return self.wait(id, call, wait);
        }
        if let Some(file) = blocking {
            return self.write_partially(id, call, &file);
        }
        match self.make(id, call, UNCHANGED)? {
            CallOutcome::Result(result) => {
                if result == -i64::from(libc::EAGAIN) {
                    self.count_idle_poll(id, &call);
                } else {
                    self.may_send(id, &call);
                    self.reset_idle_polls(id);
                    self.turns.changes += 1;
                }
                // The kernel's answer about its interfaces has a length that depends on the kernel.
                let is_of_kernel = events == libc::POLLIN && flags.is_some() && result > 0 && {
                    let process = self.threads.get(id).map(|thread| &thread.process);
                    let descriptors = process.and_then(|process| self.files.descriptors.get(process));
                    descriptors.is_some_and(|all| all.speaks_with_kernel(descriptor))
                };
                if is_of_kernel {
                    self.note(id, &call.name(), 1)?;
                    return self.go(id, None);
                }
                let tracee = self.tracee(id)?;
                self.clear_times_of_signals(id, &call, result);
                self.note_bytes(id, &call.name(), digest(tracee, &call, result), result)?;
                self.go(id, None)
            }
            CallOutcome::NotReturned => Ok(()),
        }
    }

    /// Clears the processor times in what a call has read of signals.
    fn clear_times_of_signals(&self, id: ThreadId, call: &Call, result: i64) {
        let [descriptor, buffer, ..] = call.arguments();
        if !self.files.has_signal_files || call.number != Sysno::read as u64 {
            return;
        }
        let file = self.file(id, i64::from(descriptor as i32));
        let is_one = file.is_some_and(|file| file_kind(file.as_fd()).as_deref() == Some(SIGNALS));
        if let Some(thread) = self.threads.get(id).filter(|_| is_one) {
            let _ = clear_times(thread.tracee, buffer, result);
        }
    }

    /// Makes a write that would wait in the kernel, as far as it is possible now, and waits for the rest.
    fn write_partially(&mut self, id: ThreadId, call: Call, file: &OwnedFd) -> Result<(), WorldError> {
        let made = self.make_nonblocking(id, call, file)?;
        let CallOutcome::Result(result) = made else { return Ok(()) };
        let Some(thread) = self.threads.get_mut(id) else { return Ok(()) };
        let mut part = thread.partial_call.take().unwrap_or(PartialCall { original: call, done: 0 });
        let would_wait = result == -i64::from(libc::EAGAIN);
        part.done = part.done.saturating_add(u64::try_from(result).unwrap_or(0));
        let tracee = thread.tracee;
        let rest = if would_wait { Some(call.registers) } else { remaining_call(tracee, &part, file) };
        let goes_on = (would_wait || result > 0) && rest.is_some();
        if goes_on && is_of_network(file.as_fd()) {
            // The kernel sizes the buffers of a connection by real time.
            self.doubt(id, "wrote more into a TCP connection than its buffers hold")?;
        }
        if result > 0 {
            self.turns.changes += 1;
            self.may_send(id, &call);
        }
        let Some(registers) = rest.filter(|_| goes_on) else {
            let original = if part.done > 0 { part.done as i64 } else { result };
            return self.finish_partial_call(id, &part.original, original);
        };
        if let Some(thread) = self.threads.get_mut(id) {
            thread.partial_call = (part.done > 0).then_some(part);
        }
        let descriptor = descriptor_written(&call);
        let interest = Interest { descriptor, events: libc::POLLOUT };
        let mut wait = Wait::new(WaitFor::Descriptors(vec![interest]), None);
        wait.checked_at_change = if would_wait { self.turns.changes } else { 0 };
        self.wait_again(id, Call { number: registers.orig_rax, registers }, wait)
    }

    /// Makes the call while the file is non-blocking. No other thread of the world runs meanwhile.
    fn make_nonblocking(
        &mut self,
        id: ThreadId,
        call: Call,
        file: &OwnedFd,
    ) -> Result<CallOutcome, WorldError> {
        let flags = fcntl(file, FcntlArg::F_GETFL).map(OFlag::from_bits_retain)?;
        fcntl(file, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let made = self.make(id, call, UNCHANGED);
        fcntl(file, FcntlArg::F_SETFL(flags))?;
        made
    }

    /// Ends a call whose last part was made, with this result.
    fn finish_partial_call(&mut self, id: ThreadId, original: &Call, result: i64) -> Result<(), WorldError> {
        let tracee = self.tracee(id)?;
        let after = tracee.registers()?;
        let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = original.registers;
        tracee.set_registers(Registers { rdi, rsi, rdx, r10, r8, r9, rax: result as u64, ..after })?;
        self.reset_idle_polls(id);
        self.note_bytes(id, &original.name(), digest(tracee, original, result), result)?;
        self.go(id, None)
    }

    /// Reports whether a part of its call is done.
    pub(crate) fn has_partial_call(&self, id: ThreadId) -> bool {
        self.threads.get(id).is_some_and(|thread| thread.partial_call.is_some())
    }

    /// Ends a call that a signal interrupts after a part: the program gets the number of bytes.
    pub(crate) fn end_partial_call(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let part = self.threads.get_mut(id).and_then(|thread| thread.partial_call.take());
        let (original, done) = part.map_or((call, 0), |part| (part.original, part.done));
        self.answer(id, original, done as i64)
    }

    /// Reports whether this call writes into a file that the world was given from outside, such as its
    /// standard output.
    pub(crate) fn writes_outside(&self, id: ThreadId, call: &Call) -> bool {
        let [first, ..] = call.arguments();
        let is_write = [Sysno::write, Sysno::writev].iter().any(|one| *one as u64 == call.number);
        let process = self.threads.get(id).map(|thread| thread.process);
        let descriptors = process.and_then(|process| self.files.descriptors.get(&process));
        let file = descriptors.and_then(|all| all.get(first as i32));
        is_write && file.is_some_and(|file| is_outside(file.as_fd()))
    }

    /// Serves `sendfile`, which waits for room as a write does.
    pub(crate) fn send_file(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        self.turns.changes += 1;
        let process = self.threads.get(id).map(|thread| thread.process);
        let descriptors = process.and_then(|process| self.files.descriptors.get(&process));
        let file = descriptors.and_then(|all| all.blocking(descriptor_written(&call)));
        match file.filter(|file| is_pipe_or_stream(file.as_fd()) && !is_outside(file.as_fd())) {
            Some(file) => self.write_partially(id, call, &file),
            None => {
                self.may_send(id, &call);
                self.make_and_resume(id, call, UNCHANGED)
            }
        }
    }

    /// Serves `splice`, `tee` and `vmsplice`: tries, and waits unless the call is non-blocking.
    pub(crate) fn splice(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let no_wait = u64::from(libc::SPLICE_F_NONBLOCK);
        let is_long = call.number == Sysno::splice as u64;
        let [_, _, _, fourth, _, sixth] = call.arguments();
        let flags = if is_long { sixth } else { fourth };
        let tried = |registers: &mut Registers| {
            if is_long {
                registers.r9 |= no_wait;
            } else {
                registers.r10 |= no_wait;
            }
        };
        let CallOutcome::Result(result) = self.make(id, call, &tried)? else { return Ok(()) };
        if result == -i64::from(libc::EAGAIN) && flags & no_wait == 0 {
            return self.wait_for_change(id, call, "room or bytes in a pipe", None);
        }
        self.turns.changes += 1;
        self.network.delivery.may_be_pending();
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Makes a call that found nothing wait, until something has changed.
    pub(crate) fn wait_for_change(
        &mut self,
        id: ThreadId,
        call: Call,
        what: &'static str,
        until_ns: Option<u64>,
    ) -> Result<(), WorldError> {
        let mut wait = Wait::new(WaitFor::Change(what), until_ns);
        wait.checked_at_change = self.turns.changes;
        self.wait_again(id, call, wait)
    }
}

/// Returns the descriptor that a call writes to.
const fn descriptor_written(call: &Call) -> i32 {
    call.registers.rdi as i32
}

/// Reports whether a call moves no bytes, so that the kernel lets it wait for none: a program asks in this
/// way whether it may read at all.
fn moves_nothing(call: &Call, file: &OwnedFd) -> bool {
    let is = |one: Sysno| one as u64 == call.number;
    let never_waits = if is(Sysno::read) {
        is_pipe_or_stream(file.as_fd())
    } else {
        is(Sysno::write) && is_pipe(file.as_fd())
    };
    call.registers.rdx == 0 && never_waits
}

/// Returns the number of bytes that a call writes; `None` if it is no call that can be continued.
fn length(tracee: Tracee, call: &Call) -> Option<u64> {
    let [_, second, third, fourth, ..] = call.arguments();
    match Sysno::new(call.number as usize)? {
        Sysno::write | Sysno::sendto => Some(third),
        Sysno::sendfile => Some(fourth),
        _ => {
            let iovecs = iovecs(tracee, call, second)?;
            Some(iovecs.iter().fold(0, |all: u64, (_, length)| all.saturating_add(*length)))
        }
    }
}

/// Returns the parts of the vector that a call writes: address and length.
fn iovecs(tracee: Tracee, call: &Call, second: u64) -> Option<Vec<(u64, u64)>> {
    let (vector, count) = match Sysno::new(call.number as usize)? {
        Sysno::writev => (second, call.registers.rdx),
        // The vector is in a `msghdr`.
        Sysno::sendmsg => {
            (tracee.read_u64(second.wrapping_add(16)).ok()?, tracee.read_u64(second.wrapping_add(24)).ok()?)
        }
        _ => return None,
    };
    let part = |index: u64| {
        let at = vector.wrapping_add(index * 16);
        Some((tracee.read_u64(at).ok()?, tracee.read_u64(at.wrapping_add(8)).ok()?))
    };
    (0..count.min(MAX_IOVECS)).map(part).collect()
}

/// Returns the registers by which the rest of a call is made; `None` if there is no rest.
fn remaining_call(tracee: Tracee, part: &PartialCall, file: &OwnedFd) -> Option<Registers> {
    let PartialCall { original, done } = *part;
    let length = length(tracee, &original)?;
    if done >= length {
        return None;
    }
    let all = original.registers;
    match Sysno::new(original.number as usize)? {
        Sysno::write | Sysno::sendto => {
            Some(Registers { rsi: all.rsi.wrapping_add(done), rdx: length - done, ..all })
        }
        // Into a pipe, the kernel sends as much as there is room for, once.
        Sysno::sendfile if is_pipe(file.as_fd()) => None,
        Sysno::sendfile => Some(Registers { r10: length - done, ..all }),
        number => {
            let mut before = 0_u64;
            let iovecs = iovecs(tracee, &original, all.rsi)?;
            let (address, length) = iovecs.into_iter().find_map(|(address, length)| {
                let skipped = done.saturating_sub(before);
                before = before.saturating_add(length);
                (skipped < length).then(|| (address.wrapping_add(skipped), length - skipped))
            })?;
            let plain = Registers { rsi: address, rdx: length, ..all };
            Some(if number == Sysno::writev {
                Registers { orig_rax: Sysno::write as u64, ..plain }
            } else {
                // Its flags are the third argument; ancillary data went with the first bytes.
                Registers { orig_rax: Sysno::sendto as u64, r10: all.rdx, r8: 0, r9: 0, ..plain }
            })
        }
    }
}
