//! Waits for the program in a child process.

use std::fs;
use std::io::{IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::low_level;

use super::program::Program;
use crate::outcome::{BAD, CommandError, SIGNAL};

/// Signals that are passed on to the program, and how they are sent.
const FORWARDED_SIGNALS: [(i32, Signal); 5] = [
    (SIGHUP, Signal::HUP),
    (SIGTERM, Signal::TERM),
    (SIGUSR1, Signal::USR1),
    (SIGUSR2, Signal::USR2),
    (SIGINT, Signal::INT),
];

/// The signals that arrived, each with a stream that becomes readable when it has.
type SignalPipes = Vec<(Signal, UnixStream, SigId)>;

/// Starts the program, reports its process id, and waits until it ends. Returns its exit code, as shells do.
///
/// Signals that a user or a job sends to this process are passed on to the program.
pub(super) fn wait_for(
    mut command: Command,
    program: &Program,
    started: impl FnOnce(u32) -> Result<(), CommandError>,
) -> Result<u8, CommandError> {
    let lost = |error: std::io::Error| CommandError::Failed(format!("the program is lost: {error}"));
    // The handlers come before the program: a signal in between would end this process alone.
    let pipes = install_handlers().map_err(lost)?;
    let mut child = command.spawn().map_err(|error| program.not_run(&error))?;
    started(child.id())?;
    let status = forward_until_exit(&mut child, &pipes);
    for (.., id) in &pipes {
        low_level::unregister(*id);
    }
    Ok(exit_code(status.map_err(lost)?))
}

fn exit_code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| i32::from(SIGNAL) + signal);
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(BAD)
}

/// Installs handlers. Ignored signals stay ignored, because the program inherits that, as behind nohup(1).
fn install_handlers() -> std::io::Result<SignalPipes> {
    let mut pipes = SignalPipes::new();
    let ignored = ignored();
    for (number, signal) in
        FORWARDED_SIGNALS.into_iter().filter(|(number, _)| ignored >> (number - 1) & 1 == 0)
    {
        let (pipe_end, write) = UnixStream::pair()?;
        pipe_end.set_nonblocking(true)?;
        pipes.push((signal, pipe_end, low_level::pipe::register(number, write)?));
    }
    Ok(pipes)
}

/// Returns the signals that this process ignores, a bit each.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

fn forward_until_exit(child: &mut Child, pipes: &SignalPipes) -> std::io::Result<ExitStatus> {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return child.wait() };
    // A kernel before Linux 5.3 has no pidfd: signals are then not passed on.
    let Ok(end) = pidfd_open(pid, PidfdFlags::empty()) else { return child.wait() };
    // A terminal sends ^C to all processes of the job, including the program.
    let is_sent_to_all = |signal: Signal| signal == Signal::INT && std::io::stdin().is_terminal();
    loop {
        let mut awaited = vec![PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)];
        awaited.extend(pipes.iter().map(|(_, pipe_end, _)| PollFd::new(pipe_end, PollFlags::IN)));
        match poll(&mut awaited, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return child.wait(),
        }
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for (signal, pipe_end, _) in pipes {
            let mut pipe_end: &UnixStream = pipe_end;
            if pipe_end.read(&mut [0; 64]).is_ok_and(|count| count > 0) && !is_sent_to_all(*signal) {
                // The program may have ended meanwhile, but its id is not reused before this process has
                // reaped it.
                let _ = kill_process(pid, *signal);
            }
        }
    }
}
