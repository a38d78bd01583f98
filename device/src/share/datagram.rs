//! Unix datagrams of which the kernel says who sent them.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::RawFd;
use std::ptr;

use libc::{c_int, c_void};

use crate::system_call;

const CONTROL_BYTES: usize = 128;

/// As `cmsghdr` wants it.
#[repr(C, align(16))]
struct Control([MaybeUninit<u8>; CONTROL_BYTES]);

/// A datagram in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) length_bytes: usize,
    /// The sender's real user, if the socket asks for it (SO_PASSCRED).
    pub(super) uid: Option<u32>,
    /// It was longer than the buffer.
    pub(super) truncated: bool,
}

/// Takes a datagram if there is one. Descriptors that come with it are refused by giving them no room, and
/// the kernel closes them.
pub(super) fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
    let mut control = Control([MaybeUninit::uninit(); CONTROL_BYTES]);
    // Exactly one message: room for more might hold descriptors, which would then be ours to close.
    // SAFETY: CMSG_SPACE only computes.
    let room = unsafe { libc::CMSG_SPACE(mem::size_of::<libc::ucred>() as u32) } as usize;
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast::<c_void>(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast::<c_void>();
    message.msg_controllen = room.min(CONTROL_BYTES) as _;
    // SAFETY: every pointer in `message` refers to writable memory that outlives the call, of the length
    // next to it.
    let length =
        unsafe { system_call::recvmsg(fd, &raw mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
    let Ok(length_bytes) = usize::try_from(length) else {
        return match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            error => Err(error),
        };
    };
    let mut uid = None;
    // SAFETY: recvmsg set msg_controllen to what it filled in of the control buffer, so CMSG_FIRSTHDR gives
    // null or a header it wrote; SCM_CREDENTIALS carries a ucred, checked by its length.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if let Some(about) = header.as_ref()
            && about.cmsg_level == libc::SOL_SOCKET
            && about.cmsg_type == libc::SCM_CREDENTIALS
            && about.cmsg_len >= libc::CMSG_LEN(mem::size_of::<libc::ucred>() as u32) as _
        {
            uid = Some(ptr::read_unaligned(libc::CMSG_DATA(header).cast::<libc::ucred>()).uid);
        }
    }
    Ok(Some(Datagram { length_bytes, uid, truncated: message.msg_flags & libc::MSG_TRUNC != 0 }))
}

/// Asks the kernel to say who sends.
pub(super) fn ask_for_sender(fd: RawFd) -> io::Result<()> {
    let on: c_int = 1;
    // SAFETY: the value is a live C int of the size given.
    let status = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            mem::size_of::<c_int>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::super::process;
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn the_sender_is_named() {
        let (a, b) = UnixDatagram::pair().unwrap();
        let fd = b.as_raw_fd();
        let mut buffer = [0; 8];
        assert_eq!(receive(fd, &mut buffer).unwrap(), None);
        a.send(b"1").unwrap();
        let nameless = Datagram { length_bytes: 1, uid: None, truncated: false };
        assert_eq!(receive(fd, &mut buffer).unwrap(), Some(nameless));
        ask_for_sender(fd).unwrap();
        a.send(b"0123456789").unwrap();
        let named = Datagram { length_bytes: 8, uid: Some(process::real_uid()), truncated: true };
        assert_eq!(receive(fd, &mut buffer).unwrap(), Some(named));
        assert_eq!(&buffer, b"01234567");
    }
}
