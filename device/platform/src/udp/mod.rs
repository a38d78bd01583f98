//! UDP sockets: options, control messages, scopes, and sockets without a protocol on top.
//!
//! Creation of the port's sockets, and its errors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::{fmt, io, mem};

use libc::c_int;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use self::message::Control;
use crate::outside::fork_generation::InheritedOnce;

/// Default TTL of the sockets; other values cost a control message per send.
pub const DEFAULT_HOP_LIMIT: u8 = 64;
/// Default traffic class of the sockets; other values cost a control message per send.
pub const DEFAULT_TRAFFIC_CLASS: u8 = 0;

/// Length of the longest UDP payload over IPv4; a batch is one such payload until the kernel cuts it.
pub const MAX_BATCH_BYTES: usize = 65_507;

/// The reason why a UDP port could not be opened.
#[derive(Debug)]
pub enum PortError {
    /// Another socket has the UDP port.
    Taken {
        /// Address asked for.
        address: IpAddr,
        /// UDP port asked for.
        port: u16,
        /// The port was to be shared on this side.
        reuse_port: bool,
    },
    /// The address is not one of this host's.
    NotLocal {
        /// Address asked for.
        address: IpAddr,
    },
    /// The process may not bind the port.
    NotPermitted {
        /// Address asked for.
        address: IpAddr,
        /// UDP port asked for.
        port: u16,
    },
    /// The host has no such address family.
    NoFamily {
        /// Address asked for.
        address: IpAddr,
    },
    /// Another step failed.
    Socket {
        /// Operation that failed, as words for the message.
        step: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { address, port, reuse_port } => {
                write!(
                    f,
                    "UDP port {port} on {address} is taken: another RoCE device (rdma_rxe: see `rdma link`) \
                     or process holds it (see `ss -lunp sport = {port}`)"
                )?;
                if *reuse_port {
                    f.write_str("; processes share the port only when they run as the same user")?;
                }
                f.write_str("; stop the holder or choose another local address")
            }
            Self::NotLocal { address } => write!(
                f,
                "{address} is not an address of this host (see `ip address`); choose one that is, or add it \
                 to an interface"
            ),
            Self::NotPermitted { address, port } => {
                write!(f, "not permitted to bind UDP port {port} on {address}; ")?;
                if *port != 0 && *port < 1024 {
                    f.write_str("ports below 1024 need CAP_NET_BIND_SERVICE: use 4791")
                } else {
                    f.write_str("a security policy (seccomp, SELinux, container) forbids it")
                }
            }
            Self::NoFamily { address } => {
                let (have_not, choose) = if address.is_ipv6() { ("IPv6", "IPv4") } else { ("IPv4", "IPv6") };
                write!(
                    f,
                    "this host has no {have_not}, so {address} cannot be used; choose an {choose} address"
                )
            }
            Self::Socket { step, source } => write!(f, "cannot {step}: {source}"),
        }
    }
}

impl std::error::Error for PortError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Socket { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The way in which a socket shares its address.
#[derive(Debug, Clone, Copy, Default)]
pub struct PortReuse {
    /// Shared with sockets of the same user that also set it; unicast packets go to one of them.
    pub reuse_port: bool,
    /// Shared with any socket that also sets it; for multicast groups, where every socket gets a copy.
    pub reuse_address: bool,
}

/// Opens a socket with everything the port needs to know about a packet, bound to `name` (the IPv6
/// wildcard takes IPv4 as well) and unconnected: a connected one would put IP IDs of its own on the wire.
pub fn open(name: SocketAddr, buffer_bytes: usize, sharing: PortReuse) -> Result<Socket, PortError> {
    let (address, port) = (name.ip(), name.port());
    let domain = if address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket =
        Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(|e| match e.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => PortError::NoFamily { address },
            _ => PortError::Socket { step: "create a UDP socket", source: e },
        })?;
    configure(&socket, address, buffer_bytes, sharing)?;
    socket.bind(&SockAddr::from(name)).map_err(|e| match e.raw_os_error() {
        Some(libc::EADDRINUSE) => PortError::Taken { address, port, reuse_port: sharing.reuse_port },
        Some(libc::EADDRNOTAVAIL) => PortError::NotLocal { address },
        Some(libc::EACCES | libc::EPERM) => PortError::NotPermitted { address, port },
        Some(libc::EAFNOSUPPORT) => PortError::NoFamily { address },
        _ => PortError::Socket { step: "bind a UDP socket", source: e },
    })?;
    Ok(socket)
}

/// Opens a socket that only sends: what comes to it is dropped by the kernel.
pub fn open_sender(name: SocketAddr, buffer_bytes: usize, sharing: PortReuse) -> Result<Socket, PortError> {
    let socket = open(name, buffer_bytes, sharing)?;
    let failed = |step| move |source| PortError::Socket { step, source };
    drop_everything(socket.as_raw_fd()).map_err(failed("set SO_ATTACH_FILTER"))?;
    // The buffer holds what came before the filter; the kernel gives the least that it can.
    socket.set_recv_buffer_size(1).map_err(failed("set SO_RCVBUF"))?;
    Ok(socket)
}

/// Gives a socket a filter that takes no byte of any datagram.
fn drop_everything(fd: RawFd) -> io::Result<()> {
    let mut program = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let whole = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    // SAFETY: the program is a live array of the length given, and the kernel copies it.
    let status = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const whole).cast(),
            mem::size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn configure(
    socket: &Socket,
    address: IpAddr,
    buffer_bytes: usize,
    sharing: PortReuse,
) -> Result<(), PortError> {
    let failed = |step| move |source| PortError::Socket { step, source };
    let fd = socket.as_raw_fd();
    let wildcard = address.is_unspecified();
    let ipv4 = address.is_ipv4() || address == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let ipv6 = address.is_ipv6();
    if ipv6 {
        socket.set_only_v6(!wildcard).map_err(failed("choose the address families of the socket"))?;
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)
            .map_err(failed("set IPV6_MTU_DISCOVER"))?;
        socket.set_unicast_hops_v6(u32::from(DEFAULT_HOP_LIMIT)).map_err(failed("set the hop limit"))?;
        socket.set_recv_tclass_v6(true).map_err(failed("ask for the traffic class"))?;
        socket.set_recv_hoplimit_v6(true).map_err(failed("ask for the hop limit"))?;
        // RoCE peers may send UDP checksum 0, which IPv6 sockets drop by default.
        set(fd, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, 1).map_err(failed("set UDP_NO_CHECK6_RX"))?;
    }
    if ipv4 {
        // DO on an unconnected socket gives IP ID 0 and DF 1, which the ICRC is made for.
        set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
            .map_err(failed("set IP_MTU_DISCOVER"))?;
        set(fd, libc::IPPROTO_IP, libc::IP_TTL, c_int::from(DEFAULT_HOP_LIMIT))
            .map_err(failed("set the TTL"))?;
        set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1).map_err(failed("ask for the TOS byte"))?;
        set(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, 1).map_err(failed("ask for the TTL"))?;
    }
    if wildcard {
        // A socket bound to one address knows the destination; only the wildcard has to ask for it.
        let (level, name) = if ipv6 {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
        } else {
            (libc::IPPROTO_IP, libc::IP_PKTINFO)
        };
        set(fd, level, name, 1).map_err(failed("ask for the destination address"))?;
    }
    // Only groups that this port joined: groups have sockets of their own. Kernels without the option deliver
    // a group's packets to the wildcard as well, which costs a duplicate, so failure is no reason to stop.
    if ipv4 {
        let _ = set(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0);
    }
    if ipv6 {
        let _ = set(fd, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
    }
    // Without it (Linux < 5.0) batches arrive one packet at a time: slower, still right.
    let _ = set(fd, libc::IPPROTO_UDP, libc::UDP_GRO, 1);
    socket.set_recv_buffer_size(buffer_bytes).map_err(failed("set SO_RCVBUF"))?;
    socket.set_send_buffer_size(buffer_bytes).map_err(failed("set SO_SNDBUF"))?;
    if sharing.reuse_port {
        socket.set_reuse_port(true).map_err(failed("set SO_REUSEPORT"))?;
    }
    if sharing.reuse_address {
        socket.set_reuse_address(true).map_err(failed("set SO_REUSEADDR"))?;
    }
    Ok(())
}

/// `IPV6_MULTICAST_ALL` of linux/in6.h, which is not in every version of the libc bindings.
const IPV6_MULTICAST_ALL: c_int = 29;

/// Sets an integer option of a socket.
pub fn set(fd: RawFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the value is a live C int of the size given.
    let status = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            mem::size_of::<c_int>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns how many packets the kernel cuts a send into: 128, 64 before Linux 6.9, 1 without UDP_SEGMENT.
/// Tried once per process, on a socket of the loopback interface.
pub fn max_segments() -> usize {
    static MEASURED: InheritedOnce<usize> = InheritedOnce::new();
    *MEASURED.get_or_init(|| {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let Some(socket) = loopback.iter().find_map(|&address| UdpSocket::bind((address, 0)).ok()) else {
            // There is no loopback interface to try on: 64 is what every kernel with UDP_SEGMENT takes. The
            // fallback handles the rest.
            return 64;
        };
        let Ok(own) = socket.local_addr() else { return 1 };
        let takes = |segments: &usize| {
            let mut control = Control::new();
            control.push_segment_bytes(1);
            message::send(socket.as_raw_fd(), &own.into(), &vec![0; *segments], &mut control).is_ok()
        };
        [128, 64].into_iter().find(takes).unwrap_or(1)
    })
}

/// Returns a destination as the port's socket needs it: IPv4 mapped into IPv6 on a dual-stack socket. IPv6
/// groups and addresses that do not reach beyond the link need `scope_id`, an interface index.
pub fn destination(ipv6_socket: bool, address: IpAddr, port: u16, scope_id: u32) -> SocketAddr {
    match address {
        IpAddr::V4(v4) if ipv6_socket => SocketAddr::from((v4.to_ipv6_mapped(), port)),
        IpAddr::V6(v6) if v6.is_multicast() || v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, scope_id).into()
        }
        other => SocketAddr::new(other, port),
    }
}

pub mod message;
pub mod raw;
pub mod unread;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_address_and_the_remedy() {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let first = open(SocketAddr::new(address, 0), 65_536, PortReuse::default()).unwrap();
        let port = first.local_addr().unwrap().as_socket().unwrap().port();
        let text =
            open(SocketAddr::new(address, port), 65_536, PortReuse::default()).unwrap_err().to_string();
        assert!(
            text.starts_with(&format!("UDP port {port} on 127.0.0.1 is taken: another RoCE device")),
            "{text}"
        );
        assert!(text.contains("rdma link") && text.contains("stop the holder"), "{text}");

        let foreign = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 77));
        let error = open(SocketAddr::new(foreign, 0), 65_536, PortReuse::default()).unwrap_err();
        assert!(matches!(error, PortError::NotLocal { .. }), "{error}");
        assert!(error.to_string().starts_with("203.0.113.77 is not an address of this host"));
    }

    #[test]
    fn the_kernel_segments() {
        assert!([64, 128].contains(&max_segments()), "{}", max_segments());
    }
}
