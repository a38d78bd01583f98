//! Unix datagrams with the descriptors that come with them, and with the sender as the kernel names it.

use std::io;
use std::mem;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_void};
use pumice_platform::outside::system_call;

/// Length of a control message's header: its length, level and type.
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
/// Alignment of control messages. The kernel aligns them to its words; the structure of musl says 4.
const ALIGNMENT_BYTES: usize = size_of::<usize>();

const fn message_bytes(payload_bytes: usize) -> usize {
    HEADER_BYTES + payload_bytes.next_multiple_of(ALIGNMENT_BYTES)
}

/// Room for one control message with the sender's credentials and one with a descriptor. The kernel closes
/// descriptors that find no room.
const CONTROL_BYTES: usize = message_bytes(size_of::<libc::ucred>()) + message_bytes(size_of::<c_int>());

/// A control buffer that is aligned as `cmsghdr` requires.
#[repr(C, align(16))]
struct Control([u8; CONTROL_BYTES]);

/// A datagram that was received into the buffer.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) length_bytes: usize,
    /// Real user of the sender, if the socket asks for it (SO_PASSCRED).
    pub(crate) uid: Option<u32>,
    /// The datagram was longer than the buffer.
    pub(crate) truncated: bool,
    /// First descriptor that came with the datagram.
    pub(crate) descriptor: Option<OwnedFd>,
}

/// Receives a datagram; `None` if none is waiting.
pub(crate) fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast::<c_void>(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths. musl's has padding, which the
    // kernel reads as the upper halves of lengths.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast::<c_void>();
    message.msg_controllen = CONTROL_BYTES as _;
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
    let mut datagram = Datagram {
        length_bytes,
        uid: None,
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        descriptor: None,
    };
    let mut rest = control.0.get(..message.msg_controllen as usize).unwrap_or_default();
    while let Some((kind, payload, behind)) = next_message(rest) {
        rest = behind;
        match kind {
            libc::SCM_CREDENTIALS => datagram.uid = number_at(payload, UID_OFFSET).map(c_int::cast_unsigned),
            libc::SCM_RIGHTS => {
                for number in payload.as_chunks().0 {
                    // SAFETY: the kernel has just made this descriptor for this process and told only this
                    // call. Those that are not the first are closed here.
                    let descriptor = unsafe { OwnedFd::from_raw_fd(c_int::from_ne_bytes(*number)) };
                    datagram.descriptor.get_or_insert(descriptor);
                }
            }
            _ => {}
        }
    }
    Ok(Some(datagram))
}

/// Offset of the user in the kernel's credentials.
const UID_OFFSET: usize = mem::offset_of!(libc::ucred, uid);

fn number_at(bytes: &[u8], at: usize) -> Option<c_int> {
    bytes.get(at..)?.first_chunk().copied().map(c_int::from_ne_bytes)
}

/// Splits the first control message of a buffer off: its type, its payload, and the rest of the buffer.
fn next_message(control: &[u8]) -> Option<(c_int, &[u8], &[u8])> {
    let length = usize::from_ne_bytes(control.first_chunk().copied()?);
    let level = number_at(control, mem::offset_of!(libc::cmsghdr, cmsg_level))?;
    let kind = number_at(control, mem::offset_of!(libc::cmsghdr, cmsg_type))?;
    let payload = control.get(HEADER_BYTES..length).filter(|_| level == libc::SOL_SOCKET)?;
    let behind = control.get(length.next_multiple_of(ALIGNMENT_BYTES)..).unwrap_or_default();
    Some((kind, payload, behind))
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read as _};
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::UnixDatagram;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use socket2::SockRef;

    use super::*;
    use crate::members::process;

    fn summary_of(datagram: Option<Datagram>) -> Option<(usize, Option<u32>, bool, bool)> {
        datagram.map(|datagram_received| {
            (
                datagram_received.length_bytes,
                datagram_received.uid,
                datagram_received.truncated,
                datagram_received.descriptor.is_some(),
            )
        })
    }

    #[test]
    fn the_sender_is_named() {
        let (a, b) = UnixDatagram::pair().unwrap();
        let fd = b.as_raw_fd();
        let mut buffer = [0; 8];
        assert_eq!(summary_of(receive(fd, &mut buffer).unwrap()), None);
        a.send(b"1").unwrap();
        assert_eq!(summary_of(receive(fd, &mut buffer).unwrap()), Some((1, None, false, false)));
        SockRef::from(&b).set_passcred(true).unwrap();
        a.send(b"0123456789").unwrap();
        let named = (8, Some(process::real_uid()), true, false);
        assert_eq!(summary_of(receive(fd, &mut buffer).unwrap()), Some(named));
        assert_eq!(&buffer, b"01234567");
    }

    #[test]
    fn the_first_descriptor_comes_and_the_others_are_closed() {
        let (a, b) = UnixDatagram::pair().unwrap();
        SockRef::from(&b).set_passcred(true).unwrap();
        let mut buffer = [0; 8];
        for others in [0, 1, 4] {
            let (near, far) = UnixDatagram::pair().unwrap();
            let (mut end, other) = std::io::pipe().unwrap();
            let mut space = [std::mem::MaybeUninit::uninit(); 128];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let all: Vec<_> = [far.as_fd()].into_iter().chain((0..others).map(|_| other.as_fd())).collect();
            assert!(control.push(SendAncillaryMessage::ScmRights(&all)));
            sendmsg(&a, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
            drop(all);
            drop((far, other));
            let datagram_received = receive(b.as_raw_fd(), &mut buffer).unwrap().unwrap();
            assert_eq!(
                (datagram_received.length_bytes, datagram_received.uid),
                (1, Some(process::real_uid()))
            );
            // A pipe reports its end once no process has the other end open.
            assert_eq!(end.read(&mut buffer).unwrap(), 0, "{others} others");
            let datagram_received = UnixDatagram::from(datagram_received.descriptor.unwrap());
            near.send(b"through").unwrap();
            assert_eq!(datagram_received.recv(&mut buffer).unwrap(), 7);
        }
    }
}
