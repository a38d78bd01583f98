//! One sendmsg(2) or recvmsg(2) with its control messages.

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::ptr;

use crate::outside::system_call;
use libc::{c_int, c_void};
use socket2::SockAddr;

/// Room for every control message the port sends or asks for; the largest set, of a dual-stack receive, needs
/// five messages and 152 bytes.
const CONTROL_BYTES: usize = 256;

/// Space for control messages, aligned as `cmsghdr` requires.
#[repr(C, align(16))]
pub struct Control {
    bytes: [MaybeUninit<u8>; CONTROL_BYTES],
    length: usize,
}

impl Default for Control {
    fn default() -> Control {
        Control::new()
    }
}

impl Control {
    /// Returns an empty list of control messages.
    pub const fn new() -> Control {
        Control { bytes: [MaybeUninit::uninit(); CONTROL_BYTES], length: 0 }
    }

    fn push<T: Copy>(&mut self, level: c_int, kind: c_int, value: T) {
        let size = mem::size_of::<T>() as u32;
        // SAFETY: CMSG_SPACE only computes.
        let space = unsafe { libc::CMSG_SPACE(size) } as usize;
        if self.length + space > CONTROL_BYTES {
            debug_assert!(false, "control messages outgrew CONTROL_BYTES");
            return;
        }
        // SAFETY: `space` bytes from `length` on are inside `bytes` (checked above), `length` is a sum of
        // CMSG_SPACEs and therefore aligned for cmsghdr, and CMSG_DATA stays inside the space. The zeroing
        // initialises the padding, which the kernel is given as well.
        unsafe {
            let header = self.bytes.as_mut_ptr().add(self.length).cast::<libc::cmsghdr>();
            ptr::write_bytes(header.cast::<u8>(), 0, space);
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            ptr::write_unaligned(libc::CMSG_DATA(header).cast::<T>(), value);
        }
        self.length += space;
    }

    /// Makes the kernel cut the payload into datagrams of this many bytes.
    pub fn push_segment_bytes(&mut self, bytes: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, bytes);
    }

    /// Adds the traffic class of the packets.
    pub fn push_traffic_class(&mut self, ipv4: bool, traffic_class: u8) {
        let (level, kind) =
            if ipv4 { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
        self.push(level, kind, c_int::from(traffic_class));
    }

    /// Adds the hop limit of the packets.
    pub fn push_hop_limit(&mut self, ipv4: bool, hop_limit: u8) {
        let (level, kind) =
            if ipv4 { (libc::IPPROTO_IP, libc::IP_TTL) } else { (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) };
        self.push(level, kind, c_int::from(hop_limit));
    }

    /// Adds the source address of the packets.
    pub fn push_source(&mut self, source: IpAddr) {
        match source {
            IpAddr::V4(source) => self.push(
                libc::IPPROTO_IP,
                libc::IP_PKTINFO,
                libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                },
            ),
            IpAddr::V6(source) => self.push(
                libc::IPPROTO_IPV6,
                libc::IPV6_PKTINFO,
                libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: source.octets() }, ipi6_ifindex: 0 },
            ),
        }
    }
}

/// Sends one datagram, or several when `control` asks for segmentation; never blocks.
pub fn send(fd: RawFd, to: &SockAddr, bytes: &[u8], control: &mut Control) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() };
    // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = to.as_ptr().cast_mut().cast::<c_void>();
    message.msg_namelen = to.len();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if control.length > 0 {
        message.msg_control = control.bytes.as_mut_ptr().cast::<c_void>();
        message.msg_controllen = control.length as _;
    }
    // SAFETY: every pointer in `message` refers to memory that outlives the call, of the length next to it;
    // `push` initialised the first `length` bytes of the control buffer; sendmsg only reads.
    let sent =
        unsafe { system_call::sendmsg(fd, &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The properties of a datagram or a batch that arrived.
pub struct ReceivedMessage {
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Destination from the packet information, when the socket asks for it.
    pub destination: Option<IpAddr>,
    /// Traffic class, with the ECN bits.
    pub traffic_class: u8,
    /// Hop limit, or TTL.
    pub hop_limit: u8,
    /// Number of bytes per datagram when the kernel delivered several together.
    pub segment_bytes: Option<usize>,
    /// Length of the data.
    pub length_bytes: usize,
    /// The buffer was too short and the rest is gone.
    pub truncated: bool,
}

/// Receives one datagram or batch into `buffer`. `flags` says whether to wait (`MSG_DONTWAIT` or 0). Returns
/// `None` when there is none, or when the kernel reports a pending error, which is thereby cleared.
pub fn receive(fd: RawFd, buffer: &mut [u8], control: &mut Control, flags: c_int) -> Option<ReceivedMessage> {
    let mut name = MaybeUninit::<libc::sockaddr_in6>::uninit();
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast::<c_void>(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast::<c_void>();
    message.msg_namelen = mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.as_mut_ptr().cast::<c_void>();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: every pointer in `message` refers to writable memory that outlives the call, of the length
    // next to it.
    let length = unsafe { system_call::recvmsg(fd, &raw mut message, flags) };
    let length_bytes = usize::try_from(length).ok()?;
    let mut arrival = ReceivedMessage {
        source: socket_address(&name, message.msg_namelen)?,
        destination: None,
        traffic_class: 0,
        hop_limit: 0,
        segment_bytes: None,
        length_bytes,
        truncated: message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
    };
    // SAFETY: recvmsg set msg_controllen to what it filled in of the control buffer, so CMSG_FIRSTHDR and
    // CMSG_NXTHDR only visit headers it wrote, and each header's data is inside the buffer.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            arrival.note(&*header, libc::CMSG_DATA(header));
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Some(arrival)
}

impl ReceivedMessage {
    /// Notes a control message.
    ///
    /// # Safety
    /// `data` points to the data of `header`, `cmsg_len` less the header long.
    unsafe fn note(&mut self, header: &libc::cmsghdr, data: *const u8) {
        // SAFETY: the kernel writes a C int, and at least one byte (IP_TOS), with each of these kinds.
        let int = || unsafe { ptr::read_unaligned(data.cast::<c_int>()) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                self.segment_bytes = usize::try_from(int()).ok().filter(|&bytes| bytes > 0);
            }
            // SAFETY: IP_TOS comes as a single byte.
            (libc::IPPROTO_IP, libc::IP_TOS) => self.traffic_class = unsafe { *data },
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => self.traffic_class = int() as u8,
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.hop_limit = int() as u8;
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: IP_PKTINFO carries an in_pktinfo.
                let info = unsafe { ptr::read_unaligned(data.cast::<libc::in_pktinfo>()) };
                self.destination = Some(IpAddr::V4(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes())));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: IPV6_PKTINFO carries an in6_pktinfo.
                let info = unsafe { ptr::read_unaligned(data.cast::<libc::in6_pktinfo>()) };
                // A dual-stack socket reports IPv4 as ::ffff:a.b.c.d.
                self.destination = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)).to_canonical());
            }
            _ => {}
        }
    }
}

fn socket_address(name: &MaybeUninit<libc::sockaddr_in6>, length: libc::socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    if length < mem::size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: the kernel wrote `length` bytes, at least a sockaddr_in, whose first field is the family in
    // both structures.
    let v4 = unsafe { ptr::read(name.as_ptr().cast::<libc::sockaddr_in>()) };
    if c_int::from(v4.sin_family) == libc::AF_INET {
        let address = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
        return Some(SocketAddr::new(IpAddr::V4(address), u16::from_be(v4.sin_port)));
    }
    if c_int::from(v4.sin_family) != libc::AF_INET6 || length < mem::size_of::<libc::sockaddr_in6>() {
        return None;
    }
    // SAFETY: the kernel wrote a whole sockaddr_in6.
    let v6 = unsafe { name.assume_init_ref() };
    let address = Ipv6Addr::from(v6.sin6_addr.s6_addr);
    Some(SocketAddr::new(IpAddr::V6(address).to_canonical(), u16::from_be(v6.sin6_port)))
}
