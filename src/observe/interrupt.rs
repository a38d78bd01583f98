//! Waits that SIGINT and SIGTERM end.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};

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
    pub(crate) fn wait_all(&self, time: Duration) -> io::Result<bool> {
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
