//! Programs that run already are recorded for a time, or until a signal comes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pumice_device::record_orders::RecordOrder;
use pumice_device::share::Sharer;
use serde::Serialize;

use super::{Chosen, Given, Interrupt, Running, program};
use crate::outcome::CommandError;
use crate::printed::complain;

/// Between two looks at what a process writes.
const LOOK: Duration = Duration::from_millis(10);

/// How long programs are recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordingTime {
    /// Unless a signal ends it.
    pub(crate) time: Duration,
    /// How long a process may take, beyond that, to write what it has heard.
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
    sharer: Sharer,
}

/// Why no more comes from a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It has ended.
    Ended,
    /// It has taken longer than it may.
    Late,
}

/// Recordings that have been asked for.
#[derive(Debug)]
pub(crate) struct LiveRecordings {
    /// Each device, with the file that its process writes, or why it writes none.
    pub(crate) devices: Vec<(LiveDevice, Result<PathBuf, String>)>,
    /// Until when the files are waited for.
    pub(crate) until: Instant,
}

impl Running {
    /// Has those that were chosen record, waits for as long as that lasts, and has it end if a signal comes.
    ///
    /// # Errors
    /// They cannot be asked, or signals cannot be waited for.
    pub(crate) fn record(
        &self,
        chosen: &[Chosen],
        order: &RecordOrder,
        time: RecordingTime,
    ) -> Result<LiveRecordings, CommandError> {
        let interrupt = Interrupt::new()
            .map_err(|error| CommandError::Failed(format!("signals cannot be waited for: {error}")))?;
        let answers = self.give(order, chosen).map_err(CommandError::Failed)?;
        let devices: Vec<_> = chosen.iter().zip(answers).map(|(one, given)| asked(one, given)).collect();
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

    /// Has the recordings end. One that does not hear of it ends by itself.
    fn end_all(&self, devices: &[(LiveDevice, Result<PathBuf, String>)]) {
        for (one, file) in devices {
            let Some(file) = file.as_ref().ok().and_then(|file| file.to_str()) else { continue };
            if let Err(error) = self.end(file, one.sharer) {
                complain(&CommandError::Failed(error));
            }
        }
    }
}

fn asked(one: &Chosen, given: Given) -> (LiveDevice, Result<PathBuf, String>) {
    let Chosen { sharer, program, tag, device, .. } = one.clone();
    let device = LiveDevice { pid: sharer.pid, program, tag, device, sharer };
    (device, given.map(|answer| PathBuf::from(answer.file)))
}

impl LiveDevice {
    /// Looks at the file of a recording until there is what is looked for, which `look` says.
    ///
    /// # Errors
    /// It does not come any more. What the process has written before is in the file.
    pub(crate) fn wait_for<T>(
        &self,
        file: &Path,
        until: Instant,
        look: impl Fn(&Path) -> Option<T>,
    ) -> Result<T, Silence> {
        loop {
            // Asked before the look: what a process writes last, it writes before it ends.
            let (runs, is_late) = (program(self.pid).is_some(), Instant::now() >= until);
            match look(file) {
                Some(found) => return Ok(found),
                None if !runs => return Err(Silence::Ended),
                None if is_late => return Err(Silence::Late),
                None => sleep(LOOK),
            }
        }
    }
}

impl fmt::Display for LiveDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}), device {}", self.pid, self.program, self.device)
    }
}

/// A time in milliseconds, as orders to record have it.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A time in nanoseconds, as results have it.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
