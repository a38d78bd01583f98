//! The ptrace operations on one thread, the supervisor's own system calls, and programs that read the time
//! stamp counter.
//!
//! Programs that read the time stamp counter (`rdtsc`, `rdtscp`): the processor raises a fault, and the
//! supervisor answers with the world's clock.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// Reports whether two descriptors of the supervisor refer to one open file.
pub(crate) fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> bool {
    const KCMP_FILE: i32 = 0;
    let own = std::process::id();
    let (one, other) = (one.as_raw_fd(), other.as_raw_fd());
    // SAFETY: all arguments are numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, one, other) == 0 }
}

/// Returns the address of a thread's list of robust locks; `None` if it is unknown.
pub(crate) fn robust_list(thread: i32) -> Option<u64> {
    let (mut head, mut length) = (0_u64, 0_usize);
    // SAFETY: the kernel writes one address and one length, into these variables.
    let done = unsafe { libc::syscall(libc::SYS_get_robust_list, thread, &raw mut head, &raw mut length) };
    (done == 0).then_some(head)
}

/// Reports whether a signal is pending for a stopped thread, or for its process.
pub(crate) fn has_pending_signal(thread: i32) -> bool {
    const PTRACE_PEEKSIGINFO: libc::c_uint = 0x4209;
    const OF_PROCESS: u32 = 1;
    #[repr(C)]
    struct Asked {
        first: u64,
        flags: u32,
        count: i32,
    }
    [0, OF_PROCESS].into_iter().any(|flags| {
        let asked = Asked { first: 0, flags, count: 1 };
        // SAFETY: a `siginfo_t` of zero bytes is valid.
        let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel reads the first structure and writes at most one of the second, both of which
        // live during the call.
        let count = unsafe { libc::ptrace(PTRACE_PEEKSIGINFO, thread, &raw const asked, &raw mut found) };
        // An error does not say that there is none.
        count != 0
    })
}

/// Makes the group of a socket choose by this filter. Returns whether that succeeded.
pub(crate) fn attach_steering(socket: i32, filter: &[libc::sock_filter]) -> bool {
    let Ok(len) = u16::try_from(filter.len()) else { return false };
    let mut filter = filter.to_vec();
    let whole = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: the filter has the length given, and lives during the call.
    let done = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const whole).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    done == 0
}

/// Makes the kernel choose in the group of a socket. Groups without a filter stay as they are.
pub(crate) fn detach_steering(socket: i32) {
    let unused = 0_i32;
    // SAFETY: the value lives during the call, and has the length given.
    unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_DETACH_REUSEPORT_BPF,
            (&raw const unused).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
}

/// Part of a `siginfo_t` about a child with the processor time that it has used, in bytes.
pub(crate) const TIMES_OF_CHILD: std::ops::Range<usize> = 32..48;

/// Clears the processor times in a signal about a child.
pub(crate) fn clear_times_of_child(about: &mut libc::siginfo_t) {
    let bytes: *mut u8 = (&raw mut *about).cast();
    // SAFETY: the structure is longer than these bytes, and any bytes are valid there.
    unsafe { bytes.add(TIMES_OF_CHILD.start).write_bytes(0, TIMES_OF_CHILD.len()) };
}

/// The beginning of a `siginfo_t` of a timer.
#[repr(C)]
pub(crate) struct TimerInfo {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    timer: i32,
    overrun: i32,
    value: u64,
    rest: [u64; 12],
}

/// Sends the signal of a timer to a process, or to one of its threads.
pub(crate) fn queue_signal(leader: i32, thread: Option<i32>, signal: i32, timer: i32, value: u64) {
    let info =
        TimerInfo { signal, errno: 0, code: libc::SI_TIMER, pad: 0, timer, overrun: 0, value, rest: [0; 12] };
    let info = &raw const info;
    match thread {
        // SAFETY: the structure is as long as what the kernel reads, and lives during the call.
        Some(thread) => unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, leader, thread, signal, info) },
        // SAFETY: the same as above.
        None => unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, leader, signal, info) },
    };
}

/// A timer whose ticks interrupt the waits of the thread that created it.
pub(crate) struct TickTimer(Option<libc::timer_t>);

impl TickTimer {
    /// Starts a tick every `us` microseconds. If no timer is available, nothing is interrupted.
    pub(crate) fn every(us: i64) -> TickTimer {
        extern "C" fn tick(_: i32) {}
        let action = SigAction::new(SigHandler::Handler(tick), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing.
        if unsafe { sigaction(Signal::SIGALRM, &action) }.is_err() {
            return TickTimer(None);
        }
        // SAFETY: a `sigevent` of zero bytes is valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGALRM;
        event.sigev_notify_thread_id = nix::unistd::gettid().as_raw();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: the structure is initialized, and the timer is written to a variable of this function.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } != 0 {
            return TickTimer(None);
        }
        let time = libc::timespec { tv_sec: us / 1_000_000, tv_nsec: us % 1_000_000 * 1_000 };
        let interval = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: the timer is valid, and the value lives during the call.
        unsafe { libc::timer_settime(timer, 0, &raw const interval, std::ptr::null_mut()) };
        TickTimer(Some(timer))
    }
}

impl Drop for TickTimer {
    fn drop(&mut self) {
        if let Some(timer) = self.0 {
            // SAFETY: `every` created the timer, and it is deleted once.
            unsafe { libc::timer_delete(timer) };
        }
    }
}

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

/// Emulates the instruction, if the thread is stopped at one, and returns whether it is.
pub(crate) fn answer(tracee: Tracee, cycles: u64) -> nix::Result<bool> {
    let registers = tracee.registers()?;
    let mut code = [0; 3];
    // The instruction may be the last one of its page.
    if tracee.read(registers.rip, &mut code).is_err() && tracee.read(registers.rip, &mut code[..2]).is_err() {
        return Ok(false);
    }
    let (length, is_with_number) = match code {
        [0x0f, 0x31, _] => (2, false),
        [0x0f, 0x01, 0xf9] => (3, true),
        _ => return Ok(false),
    };
    let answered = Registers {
        rip: registers.rip + length,
        rax: cycles & 0xffff_ffff,
        rdx: cycles >> 32,
        rcx: if is_with_number { 0 } else { registers.rcx },
        ..registers
    };
    tracee.set_registers(answered)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_one_open_file_are_distinguished_from_others() {
        let (one, other) = nix::unistd::pipe().unwrap();
        let again = one.try_clone().unwrap();
        assert!(is_same_file(&one, &again) && !is_same_file(&one, &other));
        assert_eq!(size_of::<TimerInfo>(), size_of::<libc::siginfo_t>());
    }
}
