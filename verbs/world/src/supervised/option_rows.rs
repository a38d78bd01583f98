//! Options of sockets and requests of `ioctl`, and the calls that set and return them.
//!
//! Options of sockets, and requests of `ioctl`: each row says why its result repeats. What has no row is
//! made, and the run is not certified.

use std::os::fd::{AsFd as _, OwnedFd};

use ValueSource::{Buffer, Constant, Number, One, State, Zero};
use nix::sys::stat::fstat;

use super::network::is_stream;
use super::readiness::is_of_network;
use super::serve::{CallOutcome, UNCHANGED};
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use crate::error::WorldError;

/// The reason why the value of an option is the same in every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueSource {
    /// The program or its world has set it, or the kernel has one value for all sockets.
    Constant,
    /// Size of a buffer, which the kernel changes by real time for connections of TCP.
    Buffer,
    /// The supervisor returns the number that it gave to the socket.
    Number,
    /// The supervisor returns 0: the first processor, and no queue of a network card.
    Zero,
    /// The supervisor returns 1: the only network.
    One,
    /// The supervisor returns the state of the connection alone, without times and measurements.
    State,
}

/// A level of options, the first and the last option of a range, and the reason for all of these.
type OptionRow = (i32, i32, i32, ValueSource);

const SOCKET: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::IPPROTO_TCP;

/// Options for which the C library has no names here.
const SO_MAX_PACING_RATE: i32 = 47;
const SO_INCOMING_CPU: i32 = 49;
const SO_INCOMING_NAPI_ID: i32 = 56;
const SO_COOKIE: i32 = 57;
const SO_TXTIME: i32 = 61;
const SO_NETNS_COOKIE: i32 = 71;

/// The options whose value repeats.
const OPTION_ROWS: &[OptionRow] = &[
    (SOCKET, libc::SO_DEBUG, libc::SO_BROADCAST, Constant),
    (SOCKET, libc::SO_SNDBUF, libc::SO_RCVBUF, Buffer),
    (SOCKET, libc::SO_KEEPALIVE, libc::SO_SNDTIMEO, Constant),
    (SOCKET, libc::SO_BINDTODEVICE, libc::SO_ATTACH_FILTER, Constant),
    (SOCKET, libc::SO_PEERNAME, libc::SO_PEERSEC, Constant),
    (SOCKET, libc::SO_PASSSEC, SO_MAX_PACING_RATE, Constant),
    (SOCKET, SO_INCOMING_CPU, SO_INCOMING_CPU, Zero),
    (SOCKET, SO_INCOMING_NAPI_ID, SO_INCOMING_NAPI_ID, Zero),
    (SOCKET, SO_COOKIE, SO_COOKIE, Number),
    // Groups of the other side, and times of calls and of packets in newer structures.
    (SOCKET, SO_COOKIE + 2, SO_NETNS_COOKIE - 1, Constant),
    (SOCKET, SO_NETNS_COOKIE, SO_NETNS_COOKIE, One),
    // Locked buffers, memory, marks, and descriptors of processes.
    (SOCKET, SO_NETNS_COOKIE + 1, 77, Constant),
    (TCP, libc::TCP_NODELAY, libc::TCP_WINDOW_CLAMP, Constant),
    (TCP, libc::TCP_INFO, libc::TCP_INFO, State),
    (TCP, libc::TCP_CONGESTION, libc::TCP_CONGESTION, Constant),
    (TCP, libc::TCP_USER_TIMEOUT, libc::TCP_USER_TIMEOUT, Constant),
    (TCP, libc::TCP_FASTOPEN, libc::TCP_FASTOPEN, Constant),
    (TCP, libc::TCP_NOTSENT_LOWAT, libc::TCP_NOTSENT_LOWAT, Constant),
    (TCP, libc::TCP_ULP, libc::TCP_ULP, Constant),
    // The network of the world has one interface, and no other network.
    (libc::IPPROTO_IP, 1, 52, Constant),
    (libc::IPPROTO_IPV6, 1, 80, Constant),
    (libc::IPPROTO_UDP, 1, 104, Constant),
    (libc::SOL_NETLINK, 1, 12, Constant),
];

/// Returns why the value of an option repeats; `None` if it is not known to.
fn value_source(level: i32, option: i32) -> Option<ValueSource> {
    let row = OPTION_ROWS
        .iter()
        .find(|(known, first, last, _)| *known == level && (*first..=*last).contains(&option));
    row.map(|(_, _, _, source)| *source)
}

/// Options that make the kernel act by real time or by programs that the supervisor cannot read: each with
/// words about it.
const VARYING_SETTINGS: [(i32, i32, &str); 9] = [
    (SOCKET, libc::SO_TIMESTAMP, "times of packets"),
    (SOCKET, libc::SO_TIMESTAMPNS, "times of packets"),
    (SOCKET, libc::SO_TIMESTAMPING, "times of packets"),
    // The same options with other structures.
    (SOCKET, 63, "times of packets"),
    (SOCKET, 64, "times of packets"),
    (SOCKET, 65, "times of packets"),
    (SOCKET, SO_TXTIME, "packets to be sent by real time"),
    (SOCKET, SO_MAX_PACING_RATE, "packets to be sent by real time"),
    (SOCKET, libc::SO_ATTACH_REUSEPORT_EBPF, "a program that chooses sockets"),
];

/// Returns what makes the kernel act differently in each run after this option is set; `None` for none.
fn varying_setting(level: i32, option: i32) -> Option<&'static str> {
    let row = VARYING_SETTINGS.iter().find(|(known, one, _)| (*known, *one) == (level, option));
    row.map(|(_, _, words)| *words)
}

/// Requests of `ioctl` that return facts of the world, or that only set something: the first and the last of
/// each range.
const REQUEST_ROWS: [(u64, u64); 11] = [
    // The terminal, which is as much of the run as its arguments are.
    (libc::TCGETS, libc::TIOCSPGRP),
    (libc::TIOCGWINSZ, libc::TIOCSWINSZ),
    (libc::TIOCNOTTY, libc::TIOCNOTTY),
    // Bytes that can be read, and properties of descriptors.
    (libc::FIONREAD, libc::FIONREAD),
    (libc::FIONBIO, libc::FIONBIO),
    (libc::FIONCLEX, libc::FIOASYNC),
    // The one interface of the world: name, flags, addresses, length of packets, and number.
    (libc::SIOCGIFNAME, libc::SIOCGIFCONF),
    (libc::SIOCGIFFLAGS, libc::SIOCSIFNETMASK),
    (libc::SIOCGIFMTU, libc::SIOCSIFMTU),
    (libc::SIOCGIFHWADDR, libc::SIOCGIFHWADDR),
    (libc::SIOCGIFINDEX, libc::SIOCGIFINDEX),
];

/// Reports whether the result of a request of `ioctl` is the same in every run.
fn is_steady_request(request: u64) -> bool {
    let request = request & 0xffff_ffff;
    REQUEST_ROWS.iter().any(|(first, last)| (*first..=*last).contains(&request))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_row_is_not_known_to_repeat() {
        assert_eq!(value_source(SOCKET, libc::SO_ERROR), Some(Constant));
        assert_eq!(value_source(SOCKET, SO_COOKIE), Some(Number));
        let unknown = [(SOCKET, 55), (TCP, libc::TCP_CC_INFO), (TCP, libc::TCP_TIMESTAMP), (132, 1)];
        assert!(unknown.iter().all(|(level, option)| value_source(*level, *option).is_none()));
        assert!(is_steady_request(libc::FIONREAD) && !is_steady_request(0x8906));
        assert!(is_steady_request(libc::SIOCGIFCONF) && !is_steady_request(libc::TIOCOUTQ));
        assert!(varying_setting(SOCKET, libc::SO_TIMESTAMPNS).is_some());
        assert!(varying_setting(SOCKET, libc::SO_REUSEADDR).is_none());
    }

    #[test]
    fn no_option_has_two_rows() {
        for (index, (level, first, last, _)) in OPTION_ROWS.iter().enumerate() {
            assert!(first <= last);
            for (other, from, to, _) in OPTION_ROWS.iter().skip(index + 1) {
                assert!(level != other || last < from || to < first, "{level}: {first} to {last}");
            }
        }
    }
}
