//! The network namespace of a thread.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;

/// Returns a number that the kernel gives to one network namespace and to no other until it boots again,
/// unlike the inode number of `/proc/self/ns/net`. `None` before Linux 5.14, and where sockets are refused.
pub fn network_cookie() -> Option<u64> {
    // Sockets of every family belong to a network namespace, and these need none of its addresses.
    let socket = UnixDatagram::unbound().ok()?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_NETNS_COOKIE);
    // SAFETY: the socket is open, and the two variables have the sizes that the call writes.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut cookie).cast(), &raw mut length)
    };
    (result == 0 && length as usize == size_of::<u64>()).then_some(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_stays_while_the_namespace_does() {
        assert_eq!(network_cookie(), network_cookie());
    }
}
