//! Waiting that SIGINT and SIGTERM end.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};

/// The end of a pipe that signals write to.
#[derive(Debug)]
pub(crate) struct Interrupt {
    signals: UnixStream,
}

impl Interrupt {
    /// From now on the two signals end waits instead of the process.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn new() -> io::Result<Interrupt> {
        let (signals, writer) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Interrupt { signals })
    }

    /// Waits until something can be read from `input`, and no longer than `time`. True if a signal has come.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait_beside(&self, input: &impl AsFd, time: Duration) -> io::Result<bool> {
        let mut both = [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(input, PollFlags::IN)];
        let time = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut both, Some(&time)) {
            Ok(_) => Ok(!both[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for all of this time, unless a signal comes. True if one has.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait_all(&self, time: Duration) -> io::Result<bool> {
        let begun = Instant::now();
        while let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            // A wait may end early, by a signal that is told of in the next one.
            if self.wait(left)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits. True if a signal has come.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<bool> {
        // A timeout of 0 would mean none.
        self.signals.set_read_timeout(Some(time.max(Duration::from_millis(1))))?;
        match (&self.signals).read(&mut [0]) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}
