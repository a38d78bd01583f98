//! Unix datagrams of which the kernel names the sender.

use std::io;
use std::os::fd::RawFd;
use std::ptr;

use libc::{c_int, c_void};

use crate::system::system_call;

/// The header of a control message: its length, level and type.
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
/// A control message with the sender in it. There is room for exactly one: in more room there might be
/// descriptors, which this process would have to close.
const CONTROL_BYTES: usize =
    HEADER_BYTES + size_of::<libc::ucred>().next_multiple_of(align_of::<libc::cmsghdr>());

/// As `cmsghdr` wants it.
#[repr(C, align(16))]
struct Control([u8; CONTROL_BYTES]);

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
    let mut control = Control([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast::<c_void>(), iov_len: buffer.len() };
    let mut message = libc::msghdr {
        msg_name: ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: &raw mut part,
        msg_iovlen: 1,
        msg_control: control.0.as_mut_ptr().cast::<c_void>(),
        msg_controllen: CONTROL_BYTES,
        msg_flags: 0,
    };
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
    let uid = control.0.get(..message.msg_controllen).and_then(sender);
    Ok(Some(Datagram { length_bytes, uid, truncated: message.msg_flags & libc::MSG_TRUNC != 0 }))
}

/// The user in a control message, if it is one of credentials: a `cmsghdr` and a `ucred`.
fn sender(control: &[u8]) -> Option<u32> {
    let number = |at: usize| control.get(at..)?.first_chunk().copied().map(c_int::from_ne_bytes);
    let length = usize::from_ne_bytes(control.first_chunk().copied()?);
    let level = number(std::mem::offset_of!(libc::cmsghdr, cmsg_level))?;
    let kind = number(std::mem::offset_of!(libc::cmsghdr, cmsg_type))?;
    let is_whole = length >= HEADER_BYTES + size_of::<libc::ucred>();
    let uid = number(HEADER_BYTES + std::mem::offset_of!(libc::ucred, uid))?;
    (is_whole && level == libc::SOL_SOCKET && kind == libc::SCM_CREDENTIALS).then_some(uid.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    use socket2::SockRef;

    use super::super::process;
    use super::*;

    #[test]
    fn the_sender_is_named() {
        let (a, b) = UnixDatagram::pair().unwrap();
        let fd = b.as_raw_fd();
        let mut buffer = [0; 8];
        assert_eq!(receive(fd, &mut buffer).unwrap(), None);
        a.send(b"1").unwrap();
        let nameless = Datagram { length_bytes: 1, uid: None, truncated: false };
        assert_eq!(receive(fd, &mut buffer).unwrap(), Some(nameless));
        SockRef::from(&b).set_passcred(true).unwrap();
        a.send(b"0123456789").unwrap();
        let named = Datagram { length_bytes: 8, uid: Some(process::real_uid()), truncated: true };
        assert_eq!(receive(fd, &mut buffer).unwrap(), Some(named));
        assert_eq!(&buffer, b"01234567");
    }
}
