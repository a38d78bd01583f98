//! Packet sockets, and a wire for whole Ethernet frames.
//!
//! Packet sockets: Ethernet frames on a network interface. Linux gives one only to processes with the right
//! CAP_NET_RAW in their network namespace.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_int, c_void};

/// The reason why a frame was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendFrameError {
    /// The frame is longer than the interface carries.
    TooLong,
    /// The frame is lost: there is no room, or the interface is down.
    Lost,
}

/// A wire to the network for Ethernet frames, from the destination address on and without a checksum.
pub trait FrameWire: Send {
    /// Sends a frame unchanged.
    ///
    /// # Errors
    /// Fails if the frame was not sent.
    fn send(&mut self, frame: &[u8]) -> Result<(), SendFrameError>;

    /// Receives the next frame that arrived, to the beginning of `into`, and returns its length; `None` if
    /// there is none now.
    fn receive(&mut self, into: &mut [u8]) -> Option<usize>;

    /// Starts or stops receiving frames, to any address.
    fn listen(&mut self, listens: bool);

    /// Reports whether frames that are sent here also arrive here.
    fn returns_own_frames(&self) -> bool;

    /// Returns the descriptor to poll(2) for readability.
    fn descriptor(&self) -> Option<RawFd>;
}

/// Size of the kernel's buffer for frames that were not received yet, in bytes.
const BUFFER_BYTES: c_int = 4 << 20;
/// Time that a frame waits for room in the interface's queue before it is lost.
const SEND_PATIENCE: Duration = Duration::from_millis(10);
/// Number of frames that this host sent which one call skips.
const SKIPPED: usize = 64;
/// Length of a VLAN tag, in bytes.
const TAG_BYTES: usize = 4;
/// Offset of a VLAN tag in a frame.
const TAG_AT: usize = 12;
/// `ETH_P_8021Q`.
const VLAN: u16 = 0x8100;
/// Room for the kernel's control messages beside a frame, in words.
const CONTROL_WORDS: usize = 16;

/// The reason why there is no packet socket.
#[derive(Debug, thiserror::Error)]
pub enum PacketSocketError {
    /// The process has no right to one.
    #[error("raw packets need the right CAP_NET_RAW (run as root, or `setcap cap_net_raw+ep` the program)")]
    NotPermitted,
    /// The interface carries something else than Ethernet frames.
    #[error("interface {0} carries no Ethernet frames")]
    NotEthernet(u32),
    /// Another step failed.
    #[error("a packet socket on interface {index}: {source}")]
    Socket {
        /// Index of the interface.
        index: u32,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// A packet socket on one interface.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    index: c_int,
    is_loopback: bool,
    listens: bool,
}

impl PacketSocket {
    /// Opens a socket on the interface with an index. It takes no frames before [`FrameWire::listen`].
    ///
    /// # Errors
    /// See [`PacketSocketError`].
    pub fn open(index: u32) -> Result<PacketSocket, PacketSocketError> {
        let failed = |source| PacketSocketError::Socket { index, source };
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: a call without pointers.
        let number = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if number < 0 {
            let source = io::Error::last_os_error();
            return Err(match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => PacketSocketError::NotPermitted,
                _ => failed(source),
            });
        }
        // SAFETY: the descriptor was just made, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        let interface = c_int::try_from(index).map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
        let mut this = PacketSocket { socket, index: interface, is_loopback: false, listens: false };
        this.bind(0).map_err(failed)?;
        match this.hardware_type().map_err(failed)? {
            libc::ARPHRD_ETHER => {}
            libc::ARPHRD_LOOPBACK => this.is_loopback = true,
            _ => return Err(PacketSocketError::NotEthernet(index)),
        }
        // Kernels before 4.20 do not know the first option; `receive` checks as well.
        let _ = this.set_option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32);
        this.set_option(libc::SOL_PACKET, libc::PACKET_AUXDATA, &1_i32).map_err(failed)?;
        let _ = this.set_option(libc::SOL_SOCKET, libc::SO_RCVBUF, &BUFFER_BYTES);
        Ok(this)
    }

    /// Binds to the interface, for frames of a protocol in network order; 0 for none.
    fn bind(&self, protocol: u16) -> io::Result<()> {
        // SAFETY: zeros are a valid value of this structure.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = self.index;
        let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is there and as long as said.
        let status = unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), bytes) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns the `ARPHRD_*` of the interface.
    fn hardware_type(&self) -> io::Result<u16> {
        // SAFETY: zeros are a valid value of this structure.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        let mut bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: there is room for as many bytes as said.
        let status =
            unsafe { libc::getsockname(self.socket.as_raw_fd(), (&raw mut address).cast(), &raw mut bytes) };
        if status == 0 { Ok(address.sll_hatype) } else { Err(io::Error::last_os_error()) }
    }

    fn set_option<T>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        let (number, bytes) = (self.socket.as_raw_fd(), size_of::<T>() as libc::socklen_t);
        // SAFETY: the value is there and as long as said; the options set here take a `c_int` or a
        // `packet_mreq`, which is what the callers give.
        let status =
            unsafe { libc::setsockopt(number, level, name, std::ptr::from_ref(value).cast(), bytes) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes the next frame from the kernel. Returns `Ok(None)` for a frame that this host sends, or that was
    /// cut off.
    fn take(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        // Room for a tag stays free behind the frame.
        let room = into.len().saturating_sub(TAG_BYTES);
        let mut parts = libc::iovec { iov_base: into.as_mut_ptr().cast::<c_void>(), iov_len: room };
        let mut control = [0_u64; CONTROL_WORDS];
        // SAFETY: zeros are a valid value of these structures.
        let (mut from, mut message): (libc::sockaddr_ll, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        message.msg_iov = &raw mut parts;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the message names memory of these lengths that is there until the call returns.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        if message.msg_flags & libc::MSG_TRUNC != 0 || from.sll_pkttype == libc::PACKET_OUTGOING {
            return Ok(None);
        }
        // SAFETY: the kernel has filled the message in, whose control memory is still there.
        let auxdata = unsafe { stripped_tag(&message) };
        Ok(Some(auxdata.and_then(tag_of).map_or(length, |tag| put_back(into, length, tag))))
    }

    /// Waits a little for room in the interface's queue: an adapter sends no faster than its cable either.
    fn wait_for_room(&self) {
        let mut wanted = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one structure, which is there until the call returns.
        unsafe { libc::poll(&raw mut wanted, 1, SEND_PATIENCE.as_millis() as c_int) };
    }
}

/// Returns the kernel's auxiliary data of a frame.
///
/// # Safety
/// recvmsg(2) has filled the message in, and its control memory is valid.
unsafe fn stripped_tag(message: &libc::msghdr) -> Option<libc::tpacket_auxdata> {
    // SAFETY: as the caller promises; the macros stay within the control memory, and so does a structure of
    // which the header says that it is there.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = next.as_ref() {
            let bytes = libc::CMSG_LEN(size_of::<libc::tpacket_auxdata>() as u32) as usize;
            let is_it = header.cmsg_level == libc::SOL_PACKET && header.cmsg_type == libc::PACKET_AUXDATA;
            if is_it && header.cmsg_len >= bytes as _ {
                return Some(libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned());
            }
            next = libc::CMSG_NXTHDR(message, next);
        }
    }
    None
}

/// Returns the VLAN tag that the kernel, or the adapter, has taken out of a frame.
fn tag_of(auxdata: libc::tpacket_auxdata) -> Option<[u8; TAG_BYTES]> {
    let has = |flag: u32| auxdata.tp_status & flag != 0;
    let kind = if has(libc::TP_STATUS_VLAN_TPID_VALID) { auxdata.tp_vlan_tpid } else { VLAN };
    let ([k1, k0], [t1, t0]) = (kind.to_be_bytes(), auxdata.tp_vlan_tci.to_be_bytes());
    has(libc::TP_STATUS_VLAN_VALID).then_some([k1, k0, t1, t0])
}

/// Puts a tag back into a frame, behind which there is room for it, and returns the new length.
fn put_back(frame: &mut [u8], length: usize, tag: [u8; TAG_BYTES]) -> usize {
    let tagged = length + TAG_BYTES;
    if length < TAG_AT || tagged > frame.len() {
        return length;
    }
    frame.copy_within(TAG_AT..length, TAG_AT + TAG_BYTES);
    if let Some(gap) = frame.get_mut(TAG_AT..TAG_AT + TAG_BYTES) {
        gap.copy_from_slice(&tag);
    }
    tagged
}

impl FrameWire for PacketSocket {
    fn send(&mut self, frame: &[u8]) -> Result<(), SendFrameError> {
        for may_wait in [true, false] {
            // SAFETY: the frame is there until the call returns.
            let sent = unsafe {
                libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT)
            };
            if sent >= 0 {
                return Ok(());
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EMSGSIZE) => return Err(SendFrameError::TooLong),
                Some(libc::EAGAIN | libc::EINTR) if may_wait => self.wait_for_room(),
                _ => break,
            }
        }
        Err(SendFrameError::Lost)
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        if !self.listens {
            return None;
        }
        (0..SKIPPED).find_map(|_| self.take(into).transpose())?.ok()
    }

    fn listen(&mut self, listens: bool) {
        if self.listens == listens {
            return;
        }
        let protocol = if listens { (libc::ETH_P_ALL as u16).to_be() } else { 0 };
        self.listens = self.bind(protocol).is_ok() && listens;
        if self.is_loopback {
            return;
        }
        let wanted = libc::packet_mreq {
            mr_ifindex: self.index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let option = if listens { libc::PACKET_ADD_MEMBERSHIP } else { libc::PACKET_DROP_MEMBERSHIP };
        // Where that is refused, the interface delivers the frames that it accepts anyway.
        let _ = self.set_option(libc::SOL_PACKET, option, &wanted);
    }

    fn returns_own_frames(&self) -> bool {
        self.is_loopback
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_back_where_it_was() {
        let mut frame = [0_u8; 24];
        frame[..18].copy_from_slice(b"destinsourceIPdata");
        assert_eq!(put_back(&mut frame, 18, [0x81, 0, 0xa0, 5]), 22);
        assert_eq!(&frame[..22], b"destinsource\x81\x00\xa0\x05IPdata");
        assert_eq!(put_back(&mut frame, 22, [0; 4]), 22, "there is no room for it");
        assert_eq!(put_back(&mut frame, 11, [0; 4]), 11, "it is no frame");
    }

    #[test]
    fn the_tag_is_the_kernels() {
        // SAFETY: zeros are a valid value of this structure.
        let mut auxdata: libc::tpacket_auxdata = unsafe { zeroed() };
        auxdata.tp_vlan_tci = 7;
        assert_eq!(tag_of(auxdata), None);
        auxdata.tp_status = libc::TP_STATUS_VLAN_VALID;
        assert_eq!(tag_of(auxdata), Some([0x81, 0, 0, 7]));
        auxdata.tp_status |= libc::TP_STATUS_VLAN_TPID_VALID;
        auxdata.tp_vlan_tpid = 0x88a8;
        assert_eq!(tag_of(auxdata), Some([0x88, 0xa8, 0, 7]));
    }

    #[test]
    fn an_interface_that_is_not_there_has_none() {
        match PacketSocket::open(0x7fff_fff0) {
            Err(PacketSocketError::NotPermitted | PacketSocketError::Socket { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
