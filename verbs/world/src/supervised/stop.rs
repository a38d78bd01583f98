//! Waiting for a thread to stop.

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::threads::Call;
use super::tracee::Tracee;
use crate::ended::Exit;

/// Why a thread stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It is about to make a call.
    Call(Box<Call>),
    /// A call has been made.
    CallEnd,
    /// A signal is about to be delivered.
    Signal(Signal),
    /// It made a thread or a process with this number; true: it waits in the kernel for that.
    Born(Pid, bool),
    /// It runs another program now.
    Exec,
    /// It was new, or it was stopped by the supervisor.
    Quiet,
    /// It has gone.
    Gone(Exit),
    /// It has used the processor for long without a call, and goes on.
    Spins,
    /// It has waited in the kernel for long, and goes on.
    Stuck,
}

/// The time between two ticks of the watchdog, in us.
pub(crate) const TICK_US: i64 = 2_000;
/// Ticks without any processor time after which a thread is stuck.
const STUCK_TICKS: u32 = 15_000;

/// Waits until a thread stops.
///
/// # Errors
/// It is no thread of this supervisor.
pub(crate) fn await_stop(tracee: Tracee) -> nix::Result<Stop> {
    await_stop_within(tracee, u64::MAX)
}

/// The same; `Stop::Spins` when it has used the processor for so many ns without a call.
pub(crate) fn await_stop_within(tracee: Tracee, spin_ns: u64) -> nix::Result<Stop> {
    // How busy the machine is with others does not count: only what the thread itself uses does.
    let (mut at_first_tick, mut ticks) = (None, 0);
    let status = loop {
        match waitpid(tracee.0, Some(WaitPidFlag::__WALL)) {
            Err(Errno::EINTR) => {
                let now_ns = tracee.processor_ns();
                let used_ns = now_ns.saturating_sub(*at_first_tick.get_or_insert(now_ns));
                ticks += 1;
                if used_ns >= spin_ns {
                    return Ok(Stop::Spins);
                }
                if ticks >= STUCK_TICKS && used_ns == 0 {
                    return Ok(Stop::Stuck);
                }
            }
            other => break other?,
        }
    };
    Ok(match status {
        WaitStatus::Exited(_, code) => Stop::Gone(Exit::Code(code)),
        WaitStatus::Signaled(_, signal, _) => Stop::Gone(Exit::Signal(signal as i32)),
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
            Stop::Born(born, event == libc::PTRACE_EVENT_VFORK)
        }
        WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXEC) => Stop::Exec,
        WaitStatus::Stopped(_, signal) => Stop::Signal(signal),
        _ => Stop::Quiet,
    })
}

/// Waits until a thread has gone. It goes on from all other stops.
pub(crate) fn await_end(tracee: Tracee) -> nix::Result<Exit> {
    loop {
        match await_stop(tracee)? {
            Stop::Gone(exit) => return Ok(exit),
            Stop::Spins | Stop::Stuck => {}
            // Nothing but its end can come: it was killed.
            _ => {
                tracee.go_on(None).or_else(|errno| if errno == Errno::ESRCH { Ok(()) } else { Err(errno) })?
            }
        }
    }
}
