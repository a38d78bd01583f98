//! Waiting for the program.

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

/// The signals that are the program's, and how they are sent.
const PASSED_ON: [(i32, Signal); 5] = [
    (SIGHUP, Signal::HUP),
    (SIGTERM, Signal::TERM),
    (SIGUSR1, Signal::USR1),
    (SIGUSR2, Signal::USR2),
    (SIGINT, Signal::INT),
];

/// Signals that came to this process, each with what can be read when it has.
type Came = Vec<(Signal, UnixStream, SigId)>;

/// Starts the program, tells its number, and waits until it ends. Its exit code, as shells say it.
///
/// What a user or a job sends to this process is for the program, which it stands for.
pub(super) fn wait_for(
    mut command: Command,
    program: &Program,
    started: impl FnOnce(u32) -> Result<(), CommandError>,
) -> Result<u8, CommandError> {
    let lost = |error: std::io::Error| CommandError::Failed(format!("the program is lost: {error}"));
    // Before the program is there: a signal that comes in between would end this process alone.
    let came = listen().map_err(lost)?;
    let mut child = command.spawn().map_err(|error| program.not_run(&error))?;
    started(child.id())?;
    let status = pass_on_until_end(&mut child, &came);
    for (.., id) in &came {
        low_level::unregister(*id);
    }
    Ok(exit_code(status.map_err(lost)?))
}

fn exit_code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| i32::from(SIGNAL) + signal);
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(BAD)
}

/// Signals that are ignored stay so: the program inherits it, as behind nohup(1).
fn listen() -> std::io::Result<Came> {
    let mut came = Came::new();
    let ignored = ignored();
    for (number, signal) in PASSED_ON.into_iter().filter(|(number, _)| ignored >> (number - 1) & 1 == 0) {
        let (heard, write) = UnixStream::pair()?;
        heard.set_nonblocking(true)?;
        came.push((signal, heard, low_level::pipe::register(number, write)?));
    }
    Ok(came)
}

/// The signals that this process ignores, a bit each.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

fn pass_on_until_end(child: &mut Child, came: &Came) -> std::io::Result<ExitStatus> {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return child.wait() };
    // A kernel before Linux 5.3 has none: then signals are not passed on.
    let Ok(end) = pidfd_open(pid, PidfdFlags::empty()) else { return child.wait() };
    // A terminal sends ^C to all processes of the job, the program included.
    let is_sent_to_all = |signal: Signal| signal == Signal::INT && std::io::stdin().is_terminal();
    loop {
        let mut awaited = vec![PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)];
        awaited.extend(came.iter().map(|(_, heard, _)| PollFd::new(heard, PollFlags::IN)));
        match poll(&mut awaited, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return child.wait(),
        }
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for (signal, heard, _) in came {
            let mut heard: &UnixStream = heard;
            if heard.read(&mut [0; 64]).is_ok_and(|count| count > 0) && !is_sent_to_all(*signal) {
                // It may have ended meanwhile, and is not reaped before this process waits for it.
                let _ = kill_process(pid, *signal);
            }
        }
    }
}
