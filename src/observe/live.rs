//! Records running programs for a time, or until a signal arrives: waits that SIGINT and SIGTERM end.

use std::fmt;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pumice_device::record_orders::RecordCommand;
use pumice_device::sharing::PortProcess;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{ProcessSelection, RecordResult, SelectedDevice, program};
use crate::outcome::{CommandError, complain};

/// The reading end of a pipe to which the signal handlers write.
#[derive(Debug)]
pub(crate) struct Interrupt {
    signals: UnixStream,
}

impl Interrupt {
    /// Installs handlers so that the two signals end waits instead of the process.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn new() -> io::Result<Interrupt> {
        let (signals, writer) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Interrupt { signals })
    }

    /// Waits until something can be read from `input`, at most for `time`. Returns true if a signal has
    /// arrived.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn wait_beside(&self, input: &impl AsFd, time: Duration) -> io::Result<bool> {
        let mut both = [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(input, PollFlags::IN)];
        let time = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut both, Some(&time)) {
            Ok(_) => Ok(!both[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for all of this time, unless a signal arrives. Returns true if one has.
    ///
    /// # Errors
    /// The error of the system.
    fn wait_all(&self, time: Duration) -> io::Result<bool> {
        let begun = Instant::now();
        while let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            // A wait may be interrupted early; the next one reports the signal.
            if self.wait(left)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits, and returns true if a signal has arrived.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<bool> {
        // A timeout of 0 would mean no timeout.
        self.signals.set_read_timeout(Some(time.max(Duration::from_millis(1))))?;
        match (&self.signals).read(&mut [0]) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Interval at which the file that a process writes is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The duration for which programs are recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordingTime {
    /// Duration of the recording, unless a signal ends it.
    pub(crate) time: Duration,
    /// Time that a process may take, beyond the duration, to write what it has collected.
    pub(crate) grace: Duration,
}

/// A device of a process that was asked to record.
#[derive(Debug, Serialize)]
pub(crate) struct LiveDevice {
    pub(crate) pid: u32,
    program: String,
    tag: String,
    pub(crate) device: String,
    #[serde(skip)]
    sharer: PortProcess,
}

/// The reason why a process writes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoOutput {
    /// The process has ended.
    Ended,
    /// The process has taken longer than it may.
    Late,
}

/// The recordings that have been started.
#[derive(Debug)]
pub(crate) struct LiveRecordings {
    /// Devices, each with the file that its process writes, or why it writes none.
    pub(crate) devices: Vec<(LiveDevice, Result<PathBuf, String>)>,
    /// Deadline for the files.
    pub(crate) until: Instant,
}

impl ProcessSelection {
    /// Starts the recordings of the selected processes, waits for as long as they last, and ends them if a
    /// signal arrives.
    ///
    /// # Errors
    /// The processes cannot be asked, or the signal handlers cannot be installed.
    pub(crate) fn record(
        &self,
        selected: &[SelectedDevice],
        order: &RecordCommand,
        time: RecordingTime,
    ) -> Result<LiveRecordings, CommandError> {
        let interrupt = Interrupt::new()
            .map_err(|error| CommandError::Failed(format!("signals cannot be waited for: {error}")))?;
        let answers = self.send_order(order, selected).map_err(CommandError::Failed)?;
        let devices: Vec<_> =
            selected.iter().zip(answers).map(|(one, given)| live_device(one, given)).collect();
        let begun = Instant::now();
        let mut ended = begun;
        if devices.iter().any(|(_, file)| file.is_ok()) {
            let was_interrupted = interrupt.wait_all(time.time).map_err(CommandError::Output)?;
            if was_interrupted {
                self.end_all(&devices);
            }
            ended = if was_interrupted { Instant::now() } else { begun + time.time };
        }
        Ok(LiveRecordings { devices, until: ended + time.grace })
    }

    /// Ends the recordings. One that does not receive the order ends by itself.
    fn end_all(&self, devices: &[(LiveDevice, Result<PathBuf, String>)]) {
        for (one, file) in devices {
            let Some(file) = file.as_ref().ok().and_then(|file| file.to_str()) else { continue };
            if let Err(error) = self.end(file, one.sharer) {
                complain(&CommandError::Failed(error));
            }
        }
    }
}

fn live_device(one: &SelectedDevice, given: RecordResult) -> (LiveDevice, Result<PathBuf, String>) {
    let SelectedDevice { sharer, program, tag, device, .. } = one.clone();
    let device = LiveDevice { pid: sharer.pid, program, tag, device, sharer };
    (device, given.map(|answer| PathBuf::from(answer.file)))
}

impl LiveDevice {
    /// Checks the file of a recording until `look` finds what it looks for.
    ///
    /// # Errors
    /// The process writes no more. Everything that it wrote before is in the file.
    pub(crate) fn wait_for<T>(
        &self,
        file: &Path,
        until: Instant,
        look: impl Fn(&Path) -> Option<T>,
    ) -> Result<T, NoOutput> {
        loop {
            // The process is checked before the file is read, because a process ends only after its last
            // write.
            let (runs, is_late) = (program(self.pid).is_some(), Instant::now() >= until);
            match look(file) {
                Some(found) => return Ok(found),
                None if !runs => return Err(NoOutput::Ended),
                None if is_late => return Err(NoOutput::Late),
                None => sleep(POLL_INTERVAL),
            }
        }
    }
}

impl fmt::Display for LiveDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}), device {}", self.pid, self.program, self.device)
    }
}

/// Returns a time in milliseconds, as orders to record have it.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a time in nanoseconds, as results have it.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
