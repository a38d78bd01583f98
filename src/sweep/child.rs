//! The processes of a run: each command in a process group of its own, which is killed with it.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

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
    use super::*;

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
