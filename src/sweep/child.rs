//! The processes of a run, their network namespaces, and when a server is ready.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::report_file::CallReport;

/// Command that keeps a namespace alive: it brings loopback up, and ends with its input.
const HOLD: &str = "ip link set lo up && echo ready && exec cat";

/// A network namespace for one run at a time.
#[derive(Debug)]
pub(super) struct RunNamespace {
    /// Process that keeps the namespace alive; `None` for this process's namespace.
    holder: Option<Child>,
    /// The namespace belongs to a user namespace, because this process is not root.
    with_user: bool,
}

impl RunNamespace {
    /// Returns this network namespace.
    pub(super) const fn here() -> RunNamespace {
        RunNamespace { holder: None, with_user: false }
    }

    /// Creates a network namespace; `None` if that is impossible.
    pub(super) fn apart() -> Option<RunNamespace> {
        let with_user = !rustix::process::geteuid().is_root();
        let mut command = Command::new("unshare");
        command.args(if with_user { &["--user", "--map-root-user", "--net"][..] } else { &["--net"] });
        command.args(["--", "sh", "-c", HOLD]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = command.spawn().ok()?;
        let mut line = String::new();
        let output = holder.stdout.take()?;
        let namespace = RunNamespace { holder: Some(holder), with_user };
        BufReader::new(output).read_line(&mut line).ok()?;
        (line == "ready\n").then_some(namespace)
    }

    /// Returns the command that runs a program there.
    pub(super) fn command(&self, program: &OsStr) -> Command {
        let Some(holder) = &self.holder else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", holder.id())).arg("--net");
        if self.with_user {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").arg(OsString::from(program));
        command
    }
}

impl Drop for RunNamespace {
    fn drop(&mut self) {
        if let Some(holder) = &mut self.holder {
            // The holder ends with its input.
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }
}

/// State of a listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";

/// Reports whether a process of this group, or one that writes this report of calls, listens.
pub(super) fn is_listening(group: u32, report: &Path) -> bool {
    members(group).into_iter().any(listens_by_tcp) || CallReport::read(report).listening
}

/// Returns the processes of a group.
fn members(group: u32) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|process| group_of(*process) == Some(group)).collect()
}

/// Returns the group of a process: the third field behind its name, which may contain anything.
fn group_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(2)?.parse().ok()
}

fn listens_by_tcp(process: u32) -> bool {
    let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{process}/net/{table}")));
    let listening: BTreeSet<String> =
        tables.into_iter().flatten().flat_map(|table| listening_sockets(&table)).collect();
    if listening.is_empty() {
        return false;
    }
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    files.flatten().any(|file| {
        let target = fs::read_link(file.path()).unwrap_or_default();
        let name = target.to_string_lossy();
        let inode = name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| listening.contains(inode))
    })
}

/// Returns the inodes of the listening sockets of a table.
fn listening_sockets(table: &str) -> Vec<String> {
    let inode = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(3) == Some(&LISTENING)).then(|| words.get(9).map(|inode| (*inode).to_owned())).flatten()
    };
    table.lines().filter_map(inode).collect()
}

/// Interval at which a wait checks whether the sweep was interrupted.
const SLICE: Duration = Duration::from_millis(50);

/// A running command, with all processes that it starts.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    child: Child,
    /// Its first process has been reaped.
    is_over: bool,
}

/// The reason why a wait ended.
#[derive(Debug)]
pub(crate) enum WaitOutcome {
    Ended(ExitStatus),
    TimedOut,
    Interrupted,
}

impl ProcessGroup {
    /// Starts a command whose output goes to files.
    ///
    /// # Errors
    /// It cannot be started, or a file cannot be made.
    pub(crate) fn start(command: &mut Command, stdout: &Path, stderr: &Path) -> io::Result<ProcessGroup> {
        command.stdin(Stdio::null()).stdout(File::create(stdout)?).stderr(File::create(stderr)?);
        Ok(ProcessGroup { child: command.process_group(0).spawn()?, is_over: false })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the command has ended, at most for `patience`, or until the sweep is interrupted.
    /// Processes that the command has left behind are killed.
    ///
    /// # Errors
    /// The system cannot wait.
    pub(crate) fn wait(&mut self, patience: Duration, interrupted: &AtomicBool) -> io::Result<WaitOutcome> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.has_ended(left.min(SLICE))? {
                self.end_group();
                self.is_over = true;
                return Ok(WaitOutcome::Ended(self.child.wait()?));
            }
            if interrupted.load(Ordering::Relaxed) {
                return Ok(WaitOutcome::Interrupted);
            }
            if left.is_zero() {
                return Ok(WaitOutcome::TimedOut);
            }
        }
    }

    /// Waits for the end of the command, at most for `patience`; returns whether it has ended.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub(crate) fn has_ended(&self, patience: Duration) -> io::Result<bool> {
        // The child has not been reaped, so its process id is not reused.
        let ended = pidfd_open(self.pid()?, PidfdFlags::empty())?;
        let limit = Timespec::try_from(patience).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&limit)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills what is left of the group. Its id is not reused as long as its first process has not been
    /// reaped.
    fn end_group(&self) {
        if let Ok(pid) = self.pid() {
            // There may be no process left.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    fn pid(&self) -> io::Result<Pid> {
        let number = i32::try_from(self.child.id()).ok();
        number.and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.is_over {
            self.end_group();
            // It was killed above.
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listening_process_is_seen() {
        let table = "  sl local_address rem_address st tx_queue rx_queue tr tm retrnsmt uid timeout inode
             0: 0100007F:4855 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1
             1: 0100007F:4856 00000000:0000 01 00000000:00000000 00:00000000 00000000 0 0 4712 1";
        assert_eq!(listening_sockets(table), ["4711"]);
        let own = group_of(std::process::id()).unwrap();
        assert!(members(own).contains(&std::process::id()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_listening(own, Path::new("/nowhere")));
        drop(listener);
    }

    fn start(script: &str) -> ProcessGroup {
        let null = Path::new("/dev/null");
        ProcessGroup::start(Command::new("sh").args(["-c", script]), null, null).unwrap()
    }

    #[test]
    fn a_command_ends_hangs_or_is_interrupted() {
        let never = AtomicBool::new(false);
        let long = Duration::from_secs(60);
        let ended = start("exit 3").wait(long, &never).unwrap();
        assert!(matches!(ended, WaitOutcome::Ended(status) if status.code() == Some(3)), "{ended:?}");
        let mut hanging = start("sleep 1000 & wait");
        assert!(matches!(hanging.wait(Duration::from_millis(20), &never).unwrap(), WaitOutcome::TimedOut));
        assert!(matches!(hanging.wait(long, &AtomicBool::new(true)).unwrap(), WaitOutcome::Interrupted));
        assert!(!hanging.has_ended(Duration::ZERO).unwrap());
    }
}
