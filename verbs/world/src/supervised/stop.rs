//! Waits for a thread to stop.

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::threads::Call;
use super::tracee::Tracee;
use crate::ended::Exit;

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
pub(crate) fn await_stop_within(tracee: Tracee, spin_ns: u64) -> nix::Result<Stop> {
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
