//! Sleeping until a socket is readable.

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

use super::system_call;

/// Waits until one of `fds` or `wake` is readable or `timeout` is over; `None` waits for ever. Returns
/// whether something is readable; a signal ends the wait early with false. Nothing is read: the caller drains
/// `wake`.
///
/// This is ppoll(2) on purpose: a permanent epoll registration costs every packet a callback, even while no
/// thread waits.
///
/// # Errors
/// The error of ppoll, e.g. too many descriptors.
pub fn wait_readable(fds: &[RawFd], wake: Option<RawFd>, timeout: Option<Duration>) -> io::Result<bool> {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .copied()
        .chain(wake)
        .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
        .collect();
    let mut timeout = timeout.map(|t| libc::timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos() as _,
    });
    let timeout_ptr = timeout.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: `polled` is a live array of the length given, `timeout_ptr` is null or points to `timeout`,
    // which outlives the call; a null signal mask leaves the mask alone.
    let ready = unsafe { system_call::ppoll(&mut polled, timeout_ptr) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::Interrupted => Ok(false),
        e => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_datagram_or_the_wake_descriptor_ends_the_wait() {
        let (quiet, busy) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let both = [quiet.as_raw_fd(), busy.as_raw_fd()];
        assert!(!wait_readable(&both, None, Some(Duration::ZERO)).unwrap());
        quiet.send_to(b"x", busy.local_addr().unwrap()).unwrap();
        assert!(wait_readable(&both, None, None).unwrap());
        assert!(!wait_readable(&both[..1], None, Some(Duration::ZERO)).unwrap());
        assert!(wait_readable(&both[..1], Some(busy.as_raw_fd()), None).unwrap());
    }
}
