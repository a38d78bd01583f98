//! Runs a thread by a number of instructions of its program, and waits for threads to stop.
//!
//! Only instructions of the program count, and not those of the C library and of pumice. The thread runs
//! through their functions in one go, up to a breakpoint where they return to the program. So the same number
//! of instructions leads to the same place in every run.

use std::cell::Cell;
use std::fs;
use std::rc::Rc;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::threads::{Call, Preemption};
use super::tracee::{Registers, Tracee};
use crate::error::{CodeLocation, Exit};
use crate::options::MAX_PREEMPTION_STEPS;

/// The reason why a thread stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The thread is about to make a call.
    Call(Box<Call>),
    /// The call has been made.
    CallEnd,
    /// A signal is about to be delivered.
    Signal(Signal),
    /// The thread made a thread or a process with this id; true if it waits in the kernel for it (vfork).
    NewChild(Pid, bool),
    /// The process executes another program now.
    Exec,
    /// The thread is new, or the supervisor stopped it.
    NoEvent,
    /// The thread has come to the instruction at which it rests.
    Preempted,
    /// The thread has ended.
    Exited(Exit),
    /// The thread has used the processor for long without a call, and is still running.
    Spinning,
    /// The thread has waited in the kernel for long, and is still waiting.
    Stuck,
}

/// Time between two ticks of the watchdog, in us.
pub(crate) const TICK_US: i64 = 2_000;
/// Number of ticks without any processor time after which a thread counts as stuck.
const STUCK_TICKS: u32 = 15_000;

/// Waits until a thread stops.
///
/// # Errors
/// It is no thread of this supervisor.
pub(crate) fn await_stop(tracee: Tracee) -> nix::Result<Stop> {
    await_stop_within(tracee, u64::MAX)
}

/// Waits until a thread stops, or has used the processor for `spin_ns` without a call, which gives
/// `Stop::Spins`.
fn await_stop_within(tracee: Tracee, spin_ns: u64) -> nix::Result<Stop> {
    // The load of the machine does not count: only the processor time of the thread itself does.
    let (mut at_first_tick, mut ticks) = (None, 0);
    let status = loop {
        match waitpid(tracee.0, Some(WaitPidFlag::__WALL)) {
            Err(Errno::EINTR) => {
                if let Some(signal) = tracee.fatal_signal() {
                    return Ok(Stop::Exited(Exit::Signal(signal)));
                }
                let now_ns = tracee.processor_ns();
                let used_ns = now_ns.saturating_sub(*at_first_tick.get_or_insert(now_ns));
                ticks += 1;
                if used_ns >= spin_ns {
                    return Ok(Stop::Spinning);
                }
                if ticks >= STUCK_TICKS && used_ns == 0 {
                    return Ok(Stop::Stuck);
                }
            }
            other => break other?,
        }
    };
    stop_of(tracee, status)
}

/// Returns why a thread has stopped, without waiting; `None` if it has not.
///
/// # Errors
/// It is no thread of this supervisor (ECHILD).
pub(crate) fn poll_stop(tracee: Tracee) -> nix::Result<Option<Stop>> {
    match waitpid(tracee.0, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => Ok(None),
        Ok(status) => stop_of(tracee, status).map(Some),
        Err(errno) => Err(errno),
    }
}

/// Converts a status of `waitpid` to a stop.
fn stop_of(tracee: Tracee, status: WaitStatus) -> nix::Result<Stop> {
    Ok(match status {
        WaitStatus::Exited(_, code) => Stop::Exited(Exit::Code(code)),
        WaitStatus::Signaled(_, signal, _) => Stop::Exited(Exit::Signal(signal as i32)),
        WaitStatus::PtraceSyscall(_) => Stop::CallEnd,
        WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_SECCOMP) => {
            let registers = tracee.registers()?;
            Stop::Call(Box::new(Call { number: registers.orig_rax, registers }))
        }
        WaitStatus::PtraceEvent(
            _,
            _,
            event @ (libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE),
        ) => {
            let born = Pid::from_raw(i32::try_from(tracee.event_message()?).unwrap_or(0));
            Stop::NewChild(born, event == libc::PTRACE_EVENT_VFORK)
        }
        WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXEC) => Stop::Exec,
        WaitStatus::Stopped(_, signal) => Stop::Signal(signal),
        _ => Stop::NoEvent,
    })
}

/// Waits until a thread has ended, and continues it from all other stops.
pub(crate) fn await_end(tracee: Tracee) -> nix::Result<Exit> {
    loop {
        match await_stop(tracee)? {
            Stop::Exited(exit) => return Ok(exit),
            Stop::Spinning | Stop::Stuck => {}
            // The thread was killed, so only its end can follow.
            _ => tracee
                .resume(None)
                .or_else(|errno| if errno == Errno::ESRCH { Ok(()) } else { Err(errno) })?,
        }
    }
}

/// Beginnings of the names of files whose instructions do not count.
const UNCOUNTED: [&str; 8] =
    ["ld-linux", "ld-musl", "libc.so", "libpthread", "libm.so", "libpumice", "libibverbs", "librdmacm"];
/// Maximum number of single steps: an instruction that repeats itself takes many.
const MAX_STEPS: u64 = 4 * MAX_PREEMPTION_STEPS;
/// Maximum number of single steps of a run: each stops the program.
pub(crate) const MAX_RUN_STEPS: u64 = 1 << 17;
/// Maximum number of bytes of the stack in which a return address is searched.
const MAX_STACK: usize = 1 << 15;
/// Number of bytes that are read at a time, which do not cross the end of a page.
const STACK_PART: u64 = 1 << 12;
/// Maximum number of breakpoints: a stack also has addresses of calls that have ended.
const MAX_BREAKPOINTS: usize = 4;
/// The instruction of a breakpoint.
const BREAKPOINT: [u8; 1] = [0xcc];

/// The code of a process whose instructions count.
#[derive(Debug)]
pub(crate) struct ProgramCode(Vec<(u64, u64)>);

impl ProgramCode {
    pub(crate) fn of(tracee: Tracee) -> ProgramCode {
        let maps = fs::read_to_string(format!("/proc/{}/maps", tracee.0)).unwrap_or_default();
        ProgramCode(maps.lines().filter_map(counted_range).collect())
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        self.0.iter().any(|(start, end)| (*start..*end).contains(&address))
    }

    /// Returns the addresses at which functions that the thread is in may return to the program, the
    /// innermost first.
    fn return_addresses(&self, tracee: Tracee, stack: u64) -> Vec<u64> {
        let mut found = Vec::new();
        let mut at = stack;
        while found.len() < MAX_BREAKPOINTS && at.wrapping_sub(stack) < MAX_STACK as u64 {
            let mut part = vec![0; (STACK_PART - at % STACK_PART) as usize];
            if tracee.read(at, &mut part).is_err() {
                break;
            }
            for word in part.as_chunks::<8>().0 {
                let address = u64::from_ne_bytes(*word);
                let is_new = self.contains(address) && !found.contains(&address);
                if is_new && found.len() < MAX_BREAKPOINTS && follows_call(tracee, address) {
                    found.push(address);
                }
            }
            at += part.len() as u64;
        }
        found
    }
}

/// Returns the range of addresses of a line of a process's map, if it is code that counts.
fn counted_range(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()?.contains('x');
    let path = fields.nth(3)?;
    let name = path.rsplit('/').next()?;
    let is_counted =
        is_code && path.starts_with('/') && !UNCOUNTED.iter().any(|begin| name.starts_with(begin));
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    is_counted.then_some((hex(start)?, hex(end)?))
}

/// Reports whether the instruction before this address is a call.
fn follows_call(tracee: Tracee, address: u64) -> bool {
    /// Length of a call of a relative address, and of the longest call by memory.
    const RELATIVE: usize = 5;
    const LONGEST: usize = 7;
    let mut before = [0; LONGEST];
    if tracee.read(address.wrapping_sub(LONGEST as u64), &mut before).is_err() {
        return false;
    }
    let is_indirect = |length: usize| {
        let call = before.get(LONGEST - length..).unwrap_or_default();
        matches!(call, [0xff, modes, ..] if modes >> 3 & 7 == 2)
    };
    before[LONGEST - RELATIVE] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(is_indirect)
}

/// Returns the instruction of the program at which a thread is, or the call from which it has not returned.
pub(crate) fn location_of(tracee: Tracee) -> Option<CodeLocation> {
    let code = ProgramCode::of(tracee);
    let Registers { rip, rsp, .. } = tracee.registers().ok()?;
    let address = match code.contains(rip) {
        true => rip,
        false => code.return_addresses(tracee, rsp).first()?.wrapping_sub(1),
    };
    let maps = fs::read_to_string(format!("/proc/{}/maps", tracee.0)).ok()?;
    maps.lines().find_map(|line| {
        let (start, _) = counted_range(line).filter(|(start, end)| (*start..*end).contains(&address))?;
        let mut fields = line.split_whitespace().skip(2);
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let file = fields.nth(2)?.into();
        Some(CodeLocation { file, offset: address - start + offset })
    })
}

/// A thread on its way to a preemption.
#[derive(Debug)]
pub(crate) struct Stepper {
    code: ProgramCode,
    left: u64,
    steps: u64,
    /// Number of single steps that the run may still make.
    run_steps_left: Rc<Cell<u64>>,
    /// Address of the instruction that the thread was about to run at the last step.
    last: u64,
    /// Addresses of breakpoints, with the byte that each replaces; none while the thread runs one instruction
    /// after the other.
    breakpoints: Vec<(u64, [u8; 1])>,
}

impl Stepper {
    /// Begins a preemption of a thread that is stopped. Returns `None` if it cannot come back to its program.
    pub(crate) fn begin(
        tracee: Tracee,
        preemption: Preemption,
        run_steps_left: &Rc<Cell<u64>>,
    ) -> nix::Result<Option<Stepper>> {
        let mut stepper = Stepper {
            code: ProgramCode::of(tracee),
            left: preemption.steps,
            steps: 0,
            run_steps_left: Rc::clone(run_steps_left),
            last: 0,
            breakpoints: Vec::new(),
        };
        Ok(stepper.is_on_its_way(tracee)?.then_some(stepper))
    }

    /// Prepares the next step, and reports whether there is one.
    fn is_on_its_way(&mut self, tracee: Tracee) -> nix::Result<bool> {
        let Registers { rip, rsp, .. } = tracee.registers()?;
        self.last = rip;
        if self.code.contains(rip) {
            return Ok(true);
        }
        for address in self.code.return_addresses(tracee, rsp) {
            let mut replaced = [0];
            tracee.read(address, &mut replaced)?;
            tracee.put_code(address, &BREAKPOINT)?;
            self.breakpoints.push((address, replaced));
        }
        Ok(!self.breakpoints.is_empty())
    }

    fn resume(&self, tracee: Tracee) -> nix::Result<()> {
        if self.breakpoints.is_empty() { tracee.step() } else { tracee.resume(None) }
    }

    /// Removes the breakpoints of a thread that is stopped.
    fn lift(&mut self, tracee: Tracee) {
        for (address, replaced) in self.breakpoints.drain(..) {
            // The process may have ended.
            let _ = tracee.put_code(address, &replaced);
        }
    }

    /// Follows a thread that a trap has stopped. Returns what is left to do; `None` if the trap is the
    /// program's own.
    fn trapped(&mut self, tracee: Tracee) -> nix::Result<Option<Step>> {
        let registers = tracee.registers()?;
        let before = registers.rip.wrapping_sub(1);
        if !self.breakpoints.is_empty() {
            if !self.breakpoints.iter().any(|(address, _)| *address == before) {
                return Ok(None);
            }
            self.lift(tracee);
            tracee.set_registers(Registers { rip: before, orig_rax: u64::MAX, ..registers })?;
        } else {
            let mut byte = [0];
            if before == self.last && tracee.read(before, &mut byte).is_ok() && byte == BREAKPOINT {
                return Ok(None);
            }
            self.left = self.left.saturating_sub(u64::from(registers.rip != self.last));
            self.steps += 1;
            self.run_steps_left.set(self.run_steps_left.get().saturating_sub(1));
        }
        // The thread stops at an instruction of its program alone.
        if self.left == 0 && self.code.contains(tracee.registers()?.rip) {
            return Ok(Some(Step::Done));
        }
        let is_on_its_way = self.steps < MAX_STEPS && self.is_on_its_way(tracee)?;
        Ok(Some(if is_on_its_way { Step::GoesOn } else { Step::Missed }))
    }
}

/// The state of a preemption after a step.
enum Step {
    GoesOn,
    Done,
    /// The thread does not come back to its program.
    Missed,
}

/// Continues a thread, also one on its way to a preemption.
pub(crate) fn resume(
    tracee: Tracee,
    stepper: Option<&mut Stepper>,
    signal: Option<Signal>,
) -> nix::Result<()> {
    match stepper {
        Some(stepper) if signal.is_none() => stepper.resume(tracee),
        _ => tracee.resume(signal),
    }
}

/// Waits until a thread stops, as `await_stop_within` does; steps to its preemption do not count as stops.
pub(crate) fn await_stop_or_preemption(
    tracee: Tracee,
    stepper: &mut Option<Stepper>,
    spin_ns: u64,
) -> nix::Result<Stop> {
    loop {
        let stop = await_stop_within(tracee, spin_ns)?;
        let Some(steps) = stepper.as_mut() else { return Ok(stop) };
        // The processor time that a thread uses must not decide whether it is preempted.
        if matches!(stop, Stop::Spinning | Stop::Stuck | Stop::NoEvent) {
            return Ok(stop);
        }
        let is_trap = matches!(stop, Stop::Signal(Signal::SIGTRAP));
        let step = if is_trap { steps.trapped(tracee)? } else { None };
        match step {
            Some(Step::GoesOn) => match steps.resume(tracee) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno),
            },
            Some(Step::Done) => return Ok(Stop::Preempted),
            Some(Step::Missed) => {
                *stepper = None;
                return Ok(Stop::NoEvent);
            }
            None => {
                cancel(tracee, stepper);
                return Ok(stop);
            }
        }
    }
}

/// Ends the way of a thread that is stopped to its preemption.
pub(crate) fn cancel(tracee: Tracee, stepper: &mut Option<Stepper>) {
    if let Some(mut stepper) = stepper.take() {
        stepper.lift(tracee);
    }
}

#[cfg(test)]
mod tests {
    use super::counted_range;

    #[test]
    fn the_program_and_its_own_libraries_count() {
        let line = |perms: &str, path: &str| format!("1000-3000 {perms} 00000000 08:01 77   {path}");
        assert_eq!(counted_range(&line("r-xp", "/home/a/prog")), Some((0x1000, 0x3000)));
        assert_eq!(counted_range(&line("r-xp", "/usr/lib/libucp.so.0")), Some((0x1000, 0x3000)));
        for (perms, path) in [
            ("r--p", "/home/a/prog"),
            ("r-xp", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
            ("r-xp", "/a/deps/libpumice.so"),
            ("r-xp", "[vdso]"),
            ("r-xp", ""),
        ] {
            assert_eq!(counted_range(&line(perms, path)), None, "{path}");
        }
    }
}
