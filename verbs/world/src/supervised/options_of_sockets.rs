//! Calls that set and return options of descriptors.

use std::os::fd::{AsFd as _, OwnedFd};

use nix::sys::stat::fstat;

use super::option_rows::{ValueSource, is_steady_request, value_source, varying_setting};
use super::port_groups::is_stream;
use super::readiness::is_of_network;
use super::serve::{CallOutcome, UNCHANGED};
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use crate::error::WorldError;

/// Maximum number of bytes of a value that are corrected.
const MOST_BYTES: u32 = 1024;
/// Number of bytes at the beginning of a `tcp_info` that are the state of the connection.
const STATE_BYTES: u32 = 1;

impl Supervisor {
    /// Serves `setsockopt`.
    pub(crate) fn set_option(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, level, option, ..] = call.arguments();
        let (level, option) = (level as i32, option as i32);
        let steers = [libc::SO_ATTACH_REUSEPORT_CBPF, libc::SO_DETACH_REUSEPORT_BPF];
        if level == libc::SOL_SOCKET && steers.contains(&option) {
            return self.attach_filter(id, call);
        }
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        if let Some(what) = varying_setting(level, option).filter(|_| result == 0) {
            self.doubt(id, &format!("asked for {what} by setsockopt (level {level}, option {option})"))?;
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Serves `getsockopt`.
    pub(crate) fn return_option(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [descriptor, level, option, value, length, _] = call.arguments();
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        if result == 0 {
            let file = self.file(id, i64::from(descriptor as i32));
            let source = value_source(level as i32, option as i32);
            let is_connection = |file: &OwnedFd| is_of_network(file.as_fd()) && is_stream(file.as_fd());
            if source.is_none()
                || source == Some(ValueSource::Buffer) && file.as_ref().is_some_and(is_connection)
            {
                let (level, option) = (level as i32, option as i32);
                self.doubt(id, &format!("asked by getsockopt for option {option} of level {level}"))?;
            }
            let inode = file.and_then(|file| fstat(&file).ok()).map_or(0, |about| about.st_ino);
            // If the value cannot be written, the call has reported it.
            let _ = self.correct_option(id, source, inode, (value, length));
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Writes the value that the world has of an option, with the length that the kernel has returned.
    fn correct_option(
        &mut self,
        id: ThreadId,
        source: Option<ValueSource>,
        inode: u64,
        (value, length): (u64, u64),
    ) -> nix::Result<()> {
        let Some(tracee) = self.threads.get(id).map(|thread| thread.tracee) else { return Ok(()) };
        let (skipped, number) = match source {
            Some(ValueSource::Number) => (0, self.number_nameless("socket", inode)),
            Some(ValueSource::Zero) => (0, 0),
            Some(ValueSource::One) => (0, 1),
            Some(ValueSource::State) => (STATE_BYTES, 0),
            Some(ValueSource::Constant | ValueSource::Buffer) | None => return Ok(()),
        };
        let length = tracee.read_u32(length)?.min(MOST_BYTES).saturating_sub(skipped) as usize;
        let mut bytes = number.to_ne_bytes().to_vec();
        bytes.resize(length, 0);
        tracee.write(value.wrapping_add(u64::from(skipped)), &bytes)
    }

    /// Serves `ioctl`.
    pub(crate) fn control(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, request, ..] = call.arguments();
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        if result >= 0 && !is_steady_request(request) {
            self.doubt(id, &format!("made the request {:#x} by ioctl", request as u32))?;
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }
}
