//! Options of sockets, and their initial values.

use std::ffi::c_int;
use std::time::Duration;

use crate::abi::plain::Plain;
use crate::platform::{Errno, INVALID};
use crate::rsocket::protocol::headers::representable;
use crate::rsocket::protocol::stream::StreamSizes;

/// Level `SOL_RDMA`, and its options.
pub(crate) const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;

/// Length of a queue in requests: usual, smallest, largest.
const QUEUE: u16 = 384;
const MIN_QUEUE: u16 = 16;
const MAX_QUEUE: u16 = 0xfffe;
/// Length of a ring in bytes: usual, smallest, largest.
const BUFFER: u32 = 1 << 17;
const MIN_BUFFER: u32 = 4096;
const MAX_BUFFER: u32 = 1 << 28;
/// Number of bytes that are copied into a request.
const INLINE: u32 = 64;
/// Seconds between probes of a silent peer, as in Linux.
const KEEP_IDLE: c_int = 7200;

/// Options that a program has set.
#[derive(Debug, Clone)]
pub(crate) struct SocketOptions {
    /// Flag O_NONBLOCK and others of F_SETFL.
    pub(crate) status_flags: c_int,
    /// Flag FD_CLOEXEC.
    pub(crate) descriptor_flags: c_int,
    send_queue: u16,
    receive_queue: u16,
    send_buffer: u32,
    receive_buffer: u32,
    pub(crate) inline: u32,
    pub(crate) maps: u16,
    /// Value of SO_LINGER in seconds.
    pub(crate) linger: Option<u32>,
    pub(crate) receive_limit: Option<Duration>,
    pub(crate) send_limit: Option<Duration>,
    pub(crate) keepalive_enabled: bool,
    pub(crate) keep_idle: c_int,
    /// Values without an effect here, which are only returned: (level, option, value).
    others: Vec<(c_int, c_int, c_int)>,
}

impl Default for SocketOptions {
    fn default() -> SocketOptions {
        SocketOptions {
            status_flags: libc::O_RDWR,
            descriptor_flags: 0,
            send_queue: QUEUE,
            receive_queue: QUEUE,
            send_buffer: BUFFER,
            receive_buffer: BUFFER,
            inline: INLINE,
            maps: 0,
            linger: None,
            receive_limit: None,
            send_limit: None,
            keepalive_enabled: false,
            keep_idle: KEEP_IDLE,
            others: Vec::new(),
        }
    }
}

/// Kind of an option, by its effect.
enum OptionKind {
    SendBuffer,
    ReceiveBuffer,
    Linger,
    ReceiveLimit,
    SendLimit,
    KeepAlive,
    KeepIdle,
    SendQueue,
    ReceiveQueue,
    Inline,
    Maps,
    /// The value is only returned as it was set; this is the value until then.
    Remembered(c_int),
    /// The option belongs to the protocol below: it cannot be set.
    Fixed(c_int),
    Unknown,
}

const fn kind(level: c_int, option: c_int) -> OptionKind {
    match (level, option) {
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => OptionKind::SendBuffer,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => OptionKind::ReceiveBuffer,
        (libc::SOL_SOCKET, libc::SO_LINGER) => OptionKind::Linger,
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => OptionKind::ReceiveLimit,
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => OptionKind::SendLimit,
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => OptionKind::KeepAlive,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => OptionKind::KeepIdle,
        (SOL_RDMA, RDMA_SQSIZE) => OptionKind::SendQueue,
        (SOL_RDMA, RDMA_RQSIZE) => OptionKind::ReceiveQueue,
        (SOL_RDMA, RDMA_INLINE) => OptionKind::Inline,
        (SOL_RDMA, RDMA_IOMAPSIZE) => OptionKind::Maps,
        (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT | libc::SO_OOBINLINE) => {
            OptionKind::Remembered(0)
        }
        (libc::SOL_SOCKET, libc::SO_BROADCAST | libc::SO_PRIORITY | libc::SO_RCVLOWAT) => {
            OptionKind::Remembered(0)
        }
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY | libc::IPV6_TCLASS) => {
            OptionKind::Remembered(0)
        }
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => OptionKind::Remembered(0),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_CONGESTION) => {
            OptionKind::Remembered(1)
        }
        (libc::IPPROTO_TCP, libc::TCP_CORK | libc::TCP_QUICKACK | libc::TCP_USER_TIMEOUT) => {
            OptionKind::Remembered(0)
        }
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => OptionKind::Remembered(2048),
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => OptionKind::Fixed(0),
        _ => OptionKind::Unknown,
    }
}

impl SocketOptions {
    pub(crate) const fn is_nonblocking(&self) -> bool {
        self.status_flags & libc::O_NONBLOCK != 0
    }

    /// Returns the sizes of a stream, on a device with queues of at most `limit` requests.
    pub(crate) fn sizes(&self, limit: u32) -> StreamSizes {
        let limit = u16::try_from(limit).unwrap_or(MAX_QUEUE).clamp(MIN_QUEUE, MAX_QUEUE);
        StreamSizes {
            send_queue: self.send_queue.clamp(MIN_QUEUE, limit),
            receive_queue: self.receive_queue.clamp(MIN_QUEUE, limit),
            send_buffer: self.send_buffer,
            // Both halves have one size.
            receive_buffer: self.receive_buffer & !1,
        }
    }

    /// Returns the options of a socket that is accepted: those of the listener, except that it blocks.
    pub(crate) fn inherited(&self) -> SocketOptions {
        SocketOptions { status_flags: libc::O_RDWR, descriptor_flags: 0, ..self.clone() }
    }

    /// Sets an option for `rsetsockopt`. If `connected` is true, sizes are fixed.
    ///
    /// # Errors
    /// Fails with ENOPROTOOPT if there is no such option, with EINVAL if the value is too short or invalid or
    /// comes too late, and with EFAULT if there is no value.
    pub(crate) fn set(
        &mut self,
        level: c_int,
        option: c_int,
        value: Option<&[u8]>,
        connected: bool,
    ) -> Result<(), Errno> {
        let kind = kind(level, option);
        if connected && level == SOL_RDMA {
            return Err(
                INVALID.because(|| "sizes of RDMA queues are set before the connection is made".to_owned())
            );
        }
        let number = || read::<c_int>(value);
        match kind {
            OptionKind::Linger => {
                let linger = read::<libc::linger>(value)?;
                self.linger = (linger.l_onoff != 0).then_some(linger.l_linger.max(0) as u32);
            }
            OptionKind::ReceiveLimit | OptionKind::SendLimit => {
                let time = read::<libc::timeval>(value)?;
                let (seconds, micros) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
                let (Ok(seconds), Ok(micros @ 0..1_000_000)) = (seconds, micros) else {
                    return Err(Errno(libc::EDOM));
                };
                let limit = Duration::from_secs(seconds.min(1 << 32)) + Duration::from_micros(micros);
                let limit = Some(limit).filter(|limit| !limit.is_zero());
                if matches!(kind, OptionKind::ReceiveLimit) {
                    self.receive_limit = limit
                } else {
                    self.send_limit = limit
                }
            }
            // As in Linux, half of it is for the system's own purposes.
            OptionKind::SendBuffer if !connected => self.send_buffer = buffer(number()?),
            OptionKind::ReceiveBuffer if !connected => self.receive_buffer = buffer(number()?),
            OptionKind::SendBuffer | OptionKind::ReceiveBuffer => drop(number()?),
            OptionKind::KeepAlive => self.keepalive_enabled = number()? != 0,
            OptionKind::KeepIdle => {
                self.keep_idle = Some(number()?).filter(|seconds| *seconds > 0).ok_or(INVALID)?
            }
            OptionKind::SendQueue => self.send_queue = queue(number()?),
            OptionKind::ReceiveQueue => self.receive_queue = queue(number()?),
            OptionKind::Inline => self.inline = number()?.max(0) as u32,
            OptionKind::Maps => self.maps = representable(number()?.clamp(0, c_int::from(u16::MAX)) as u16),
            OptionKind::Remembered(_) if (level, option) == (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {}
            OptionKind::Remembered(_) => {
                let number = number()?;
                self.others.retain(|(l, o, _)| (*l, *o) != (level, option));
                self.others.push((level, option, number));
            }
            OptionKind::Fixed(_) | OptionKind::Unknown => return Err(Errno(libc::ENOPROTOOPT)),
        }
        Ok(())
    }

    /// Returns the bytes of an option's value for `rgetsockopt`, for options that are numbers or structures
    /// of their own.
    ///
    /// # Errors
    /// Fails with ENOPROTOOPT if there is no such option.
    pub(crate) fn show(&self, level: c_int, option: c_int) -> Result<Vec<u8>, Errno> {
        let number = match kind(level, option) {
            OptionKind::Linger => {
                let (on, seconds) = (self.linger.is_some(), self.linger.unwrap_or(0) as c_int);
                return Ok([c_int::from(on).to_ne_bytes(), seconds.to_ne_bytes()].concat());
            }
            OptionKind::ReceiveLimit => return Ok(time(self.receive_limit)),
            OptionKind::SendLimit => return Ok(time(self.send_limit)),
            OptionKind::SendBuffer => self.send_buffer as c_int,
            OptionKind::ReceiveBuffer => self.receive_buffer as c_int,
            OptionKind::KeepAlive => self.keepalive_enabled.into(),
            OptionKind::KeepIdle => self.keep_idle,
            OptionKind::SendQueue => self.send_queue.into(),
            OptionKind::ReceiveQueue => self.receive_queue.into(),
            OptionKind::Inline => self.inline as c_int,
            OptionKind::Maps => self.maps.into(),
            OptionKind::Remembered(usual) => {
                let mut set = self.others.iter().filter(|(l, o, _)| (*l, *o) == (level, option));
                set.next().map_or(usual, |(_, _, value)| *value)
            }
            OptionKind::Fixed(number) => number,
            OptionKind::Unknown => return Err(Errno(libc::ENOPROTOOPT)),
        };
        Ok(number.to_ne_bytes().to_vec())
    }
}

/// Returns the bytes of a `struct timeval`; zero means no limit.
fn time(limit: Option<Duration>) -> Vec<u8> {
    let seconds = limit.map_or(0, |limit| limit.as_secs() as libc::time_t);
    let micros = limit.map_or(0, |limit| libc::suseconds_t::from(limit.subsec_micros()));
    [&seconds.to_ne_bytes()[..], &micros.to_ne_bytes()].concat()
}

fn buffer(requested: c_int) -> u32 {
    (requested.max(0) as u32).saturating_mul(2).clamp(MIN_BUFFER, MAX_BUFFER)
}

fn queue(requested: c_int) -> u16 {
    requested.clamp(MIN_QUEUE.into(), MAX_QUEUE.into()) as u16
}

fn read<T: Plain>(value: Option<&[u8]>) -> Result<T, Errno> {
    T::parse(value.ok_or(Errno(libc::EFAULT))?).ok_or(INVALID)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(options: &mut SocketOptions, level: c_int, option: c_int, value: c_int) -> Result<(), Errno> {
        options.set(level, option, Some(&value.to_ne_bytes()), false)
    }

    fn show(options: &SocketOptions, level: c_int, option: c_int) -> Result<c_int, Errno> {
        let shown = options.show(level, option)?;
        assert_eq!(shown.len(), 4);
        Ok(c_int::parse(&shown).unwrap())
    }

    #[test]
    fn what_was_set_is_shown() {
        let mut options = SocketOptions::default();
        for (level, option, value, shown) in [
            (libc::SOL_SOCKET, libc::SO_SNDBUF, 1 << 19, 1 << 20),
            (libc::SOL_SOCKET, libc::SO_RCVBUF, 0, MIN_BUFFER as c_int),
            (libc::SOL_SOCKET, libc::SO_RCVBUF, c_int::MAX, MAX_BUFFER as c_int),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 5, 1),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 9, 9),
            (SOL_RDMA, RDMA_SQSIZE, 1, 16),
            (SOL_RDMA, RDMA_RQSIZE, 1 << 20, 0xfffe),
            (SOL_RDMA, RDMA_INLINE, 0, 0),
            (SOL_RDMA, RDMA_IOMAPSIZE, 300, 256),
        ] {
            assert_eq!(set(&mut options, level, option, value), Ok(()));
            assert_eq!(show(&options, level, option), Ok(shown), "level {level} option {option}");
        }
        let sizes = options.sizes(1000);
        assert_eq!((sizes.send_queue, sizes.receive_queue), (16, 1000));
        assert_eq!(set(&mut options, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 0), Err(INVALID));
        assert_eq!(set(&mut options, libc::SOL_SOCKET, 9999, 0), Err(Errno(libc::ENOPROTOOPT)));
        assert_eq!(show(&options, libc::SOL_SOCKET, 9999), Err(Errno(libc::ENOPROTOOPT)));
    }

    #[test]
    fn sizes_are_fixed_when_connected() {
        let mut options = SocketOptions::default();
        let value = Some(&[1, 0, 0, 0][..]);
        assert_eq!(options.set(SOL_RDMA, RDMA_SQSIZE, value, true), Err(INVALID));
        assert_eq!(options.set(libc::SOL_SOCKET, libc::SO_SNDBUF, value, true), Ok(()));
        assert_eq!(options.set(libc::SOL_SOCKET, libc::SO_SNDBUF, Some(&[1, 0, 0]), true), Err(INVALID));
        assert_eq!(options.set(libc::SOL_SOCKET, libc::SO_SNDBUF, None, true), Err(Errno(libc::EFAULT)));
        assert_eq!(options.send_buffer, BUFFER);
    }

    #[test]
    fn structures_are_shown_as_they_are_in_c() {
        let mut options = SocketOptions::default();
        let linger = [1_i32.to_ne_bytes(), 9_i32.to_ne_bytes()].concat();
        assert_eq!(options.set(libc::SOL_SOCKET, libc::SO_LINGER, Some(&linger), false), Ok(()));
        assert_eq!(options.show(libc::SOL_SOCKET, libc::SO_LINGER), Ok(linger));
        let time = [3_i64.to_ne_bytes(), 500_i64.to_ne_bytes()].concat();
        assert_eq!(options.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, Some(&time), false), Ok(()));
        assert_eq!(options.receive_limit, Some(Duration::from_micros(3_000_500)));
        assert_eq!(options.show(libc::SOL_SOCKET, libc::SO_RCVTIMEO), Ok(time));
        assert_eq!(options.show(libc::SOL_SOCKET, libc::SO_SNDTIMEO), Ok(vec![0; 16]));
    }
}
