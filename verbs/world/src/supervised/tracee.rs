//! The ptrace operations on one thread: the only file that accesses registers and memory of another process.

use std::io::{IoSlice, IoSliceMut};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use super::system::clear_times_of_child;

/// The registers of a stopped thread.
pub(crate) type Registers = libc::user_regs_struct;

/// Maximum length of a name that is read, in bytes.
const MAX_NAME: usize = 4096;

/// A traced thread, by its id in the supervisor's PID namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tracee(pub(crate) Pid);

impl Tracee {
    pub(crate) fn registers(self) -> nix::Result<Registers> {
        ptrace::getregs(self.0)
    }

    pub(crate) fn set_registers(self, registers: Registers) -> nix::Result<()> {
        ptrace::setregs(self.0, registers)
    }

    /// Skips the call before which the thread is stopped; the program sees this result.
    pub(crate) fn answer(self, registers: &Registers, result: i64) -> nix::Result<()> {
        let skipped = Registers { orig_rax: u64::MAX, rax: result as u64, ..*registers };
        self.set_registers(skipped)
    }

    /// Steps the thread back to before the call at which it is stopped, if it is, so that it makes the call
    /// when it continues.
    pub(crate) fn step_back(self) -> nix::Result<()> {
        let registers = self.registers()?;
        let is_of_call = registers.orig_rax != u64::MAX;
        // Before a call, the kernel has this value in the register of the result.
        if !is_of_call || registers.rax as i64 != -i64::from(libc::ENOSYS) {
            return Ok(());
        }
        // The syscall instruction is two bytes long.
        let rip = registers.rip.wrapping_sub(2);
        self.set_registers(Registers { rip, rax: registers.orig_rax, orig_rax: u64::MAX, ..registers })
    }

    /// Returns the id of the thread in its own PID namespace.
    pub(crate) fn number_inside(self) -> Option<i32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers.split_whitespace().last()?.parse().ok()
    }

    /// Returns the processor time that the thread has used, in ns; 0 if it has ended.
    pub(crate) fn processor_ns(self) -> u64 {
        let path = format!("/proc/{}/schedstat", self.0);
        let known = std::fs::read_to_string(path).unwrap_or_default();
        known.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
    }

    /// Returns the signal that has ended this thread, if it is the first of a process and its parent has not
    /// waited for the other threads: until then the kernel gives no notice of its end.
    pub(crate) fn fatal_signal(self) -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        // The name of the program is in parentheses, and may have any characters.
        let mut fields = stat.rsplit_once(") ")?.1.split_whitespace();
        let is_zombie = fields.next() == Some("Z");
        let threads: u32 = fields.nth(16)?.parse().ok()?;
        let code: i32 = fields.nth(31)?.parse().ok()?;
        let signal = code & 0x7f;
        (is_zombie && threads > 1 && signal != 0).then_some(signal)
    }

    /// Continues, with a signal if one is to be delivered.
    pub(crate) fn resume(self, signal: Option<Signal>) -> nix::Result<()> {
        ptrace::cont(self.0, signal)
    }

    /// Continues to the end of its call.
    pub(crate) fn finish_call(self) -> nix::Result<()> {
        ptrace::syscall(self.0, None)
    }

    /// Continues by one instruction.
    pub(crate) fn step(self) -> nix::Result<()> {
        ptrace::step(self.0, None)
    }

    /// Stops the thread, wherever it is.
    pub(crate) fn interrupt(self) -> nix::Result<()> {
        ptrace::interrupt(self.0)
    }

    /// Returns the message of the event at which the thread is stopped.
    pub(crate) fn event_message(self) -> nix::Result<u64> {
        ptrace::getevent(self.0).map(|message| message as u64)
    }

    /// Clears the processor times in the signal at which the thread is stopped, if it is about a child.
    pub(crate) fn clear_times_of_child(self) -> nix::Result<()> {
        let mut about = ptrace::getsiginfo(self.0)?;
        clear_times_of_child(&mut about);
        ptrace::setsiginfo(self.0, &about)
    }

    /// Reads the thread's memory; EFAULT where there is none.
    pub(crate) fn read(self, address: u64, into: &mut [u8]) -> nix::Result<()> {
        if into.is_empty() {
            return Ok(());
        }
        let remote = [RemoteIoVec { base: address as usize, len: into.len() }];
        let wanted = into.len();
        let done = process_vm_readv(self.0, &mut [IoSliceMut::new(into)], &remote)?;
        if done == wanted { Ok(()) } else { Err(Errno::EFAULT) }
    }

    /// Writes the thread's memory; EFAULT where it cannot be written.
    pub(crate) fn write(self, address: u64, bytes: &[u8]) -> nix::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let remote = [RemoteIoVec { base: address as usize, len: bytes.len() }];
        let done = process_vm_writev(self.0, &[IoSlice::new(bytes)], &remote)?;
        if done == bytes.len() { Ok(()) } else { Err(Errno::EFAULT) }
    }

    /// Writes where the program itself may not write, such as code.
    pub(crate) fn put_code(self, address: u64, bytes: &[u8]) -> nix::Result<()> {
        for (index, part) in bytes.chunks(8).enumerate() {
            let at = address.wrapping_add(index as u64 * 8);
            let mut word = if part.len() < 8 { self.read_u64(at)?.to_ne_bytes() } else { [0; 8] };
            for (to, from) in word.iter_mut().zip(part) {
                *to = *from;
            }
            ptrace::write(self.0, at as ptrace::AddressType, i64::from_ne_bytes(word))?;
        }
        Ok(())
    }

    pub(crate) fn read_u32(self, address: u64) -> nix::Result<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    pub(crate) fn read_u64(self, address: u64) -> nix::Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Reads a name that ends with a zero byte, as far as it can be read.
    pub(crate) fn read_name(self, address: u64) -> String {
        let mut name = Vec::new();
        while name.len() < MAX_NAME {
            // A read does not cross the end of a page, because the next page may not be mapped.
            let from = address.wrapping_add(name.len() as u64);
            let mut part = vec![0; (4096 - (from % 4096) as usize).min(256)];
            if self.read(from, &mut part).is_err() {
                break;
            }
            match part.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    name.extend(part.into_iter().take(end));
                    break;
                }
                None => name.extend(part),
            }
        }
        String::from_utf8_lossy(&name).into_owned()
    }

    /// Reads a duration in a `timespec`, in ns; negative ones are 0.
    pub(crate) fn read_timespec(self, address: u64) -> nix::Result<u64> {
        let seconds = self.read_u64(address)? as i64;
        let nanos = self.read_u64(address.wrapping_add(8))? as i64;
        if seconds < 0 || !(0..1_000_000_000).contains(&nanos) {
            return Ok(0);
        }
        Ok((seconds as u64).saturating_mul(1_000_000_000).saturating_add(nanos as u64))
    }

    pub(crate) fn write_timespec(self, address: u64, ns: u64) -> nix::Result<()> {
        let mut bytes = [0; 16];
        let (seconds, nanos) = bytes.split_at_mut(8);
        seconds.copy_from_slice(&(ns / 1_000_000_000).to_ne_bytes());
        nanos.copy_from_slice(&(ns % 1_000_000_000).to_ne_bytes());
        self.write(address, &bytes)
    }
}
