//! UDP sockets as a port.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use libc::c_int;
use pumice_model::counters::Counters;
use pumice_platform::outside::world::EmptySocketCache;
use pumice_transport::host::{Counter, PeerProgress};
use pumice_transport::path::{Flow, Path};
use pumice_transport::wire::source_port;
use socket2::{SockAddr, Socket};

use super::config::{UdpConfig, UdpCounters};
use super::multicast::JoinedGroups;
use super::senders::Senders;
use pumice_model::port::batch::{GsoBatch, PacketCost, Peer, PortLimits, ReceivedBatch, TransmitError};
use pumice_model::port::group::ProcessGroup;
use pumice_model::port::{Port, batch};
use pumice_platform::udp;
use pumice_platform::udp::message::{self, Control, ReceivedMessage};
use pumice_platform::udp::unread::Scopes;
use pumice_platform::udp::{
    DEFAULT_HOP_LIMIT, DEFAULT_TRAFFIC_CLASS, MAX_BATCH_BYTES, PortError, PortReuse, unread,
};

/// The socket of the RoCE port.
#[derive(Debug)]
struct OwnSocket {
    socket: Socket,
    address: IpAddr,
    /// RoCE port, which the socket is bound to.
    own_port: u16,
    ipv6_socket: bool,
    buffer_bytes: usize,
    /// No other process has the RoCE port.
    is_exclusive: bool,
}

/// A UDP socket as a [`Port`], and others beside it that only send, each from a source port of its own.
///
/// **Invariant**: the sockets are never connected and send with DF set, so single packets carry IP ID 0 and
/// the packets of a batch 0, 1, 2, …, which is what their ICRCs were made for. IPv6 flow labels are the
/// kernel's choice (the ICRC does not cover them).
#[derive(Debug)]
pub struct UdpPort {
    own: OwnSocket,
    senders: Senders,
    /// The socket of another UDP port at which packets may come, with that port.
    second: Option<(Socket, u16)>,
    /// The socket of that port is polled first.
    second_is_next: bool,
    limits: PortLimits,
    groups: JoinedGroups,
    scopes: Scopes,
    buffer: Vec<u8>,
    /// Buffer for packets that leave one by one, when the kernel would not cut the batch.
    scratch: Vec<u8>,
    counters: UdpCounters,
    /// Counters of the device behind the port.
    device_counters: Option<Arc<Counters>>,
    known_empty: EmptySocketCache,
}

impl UdpPort {
    /// Opens the port. `::` on a host without IPv6 becomes `0.0.0.0`.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn bind(config: &UdpConfig) -> Result<UdpPort, PortError> {
        let sharing = PortReuse { reuse_port: config.reuse_port, reuse_address: false };
        let open = |address| {
            let scope_id = Scopes::default().scope_id(address, address);
            let name = udp::destination(false, address, config.port, scope_id);
            udp::open(name, config.buffer_bytes, sharing)
        };
        let mut address = config.address;
        let socket = match open(address) {
            Err(PortError::NoFamily { .. }) if address.is_ipv6() && address.is_unspecified() => {
                address = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
                open(address)?
            }
            other => other?,
        };
        let failed = |step| move |source| PortError::Socket { step, source };
        let name = socket.local_addr().map_err(failed("read the socket's name"))?;
        let receive_buffer_bytes = socket.recv_buffer_size().map_err(failed("read SO_RCVBUF"))?;
        let own_port = name.as_socket().map_or(config.port, |name| name.port());
        Ok(UdpPort {
            groups: JoinedGroups::new(&socket, address, own_port, config),
            known_empty: EmptySocketCache::default(),
            senders: Senders::new(config.buffer_bytes),
            second: None,
            second_is_next: false,
            own: OwnSocket {
                socket,
                address,
                own_port,
                ipv6_socket: address.is_ipv6(),
                buffer_bytes: config.buffer_bytes,
                is_exclusive: !config.reuse_port,
            },
            scopes: Scopes::default(),
            limits: PortLimits {
                max_segments: udp::max_segments(),
                max_batch_bytes: MAX_BATCH_BYTES,
                receive_buffer_bytes,
                packet_cost: PacketCost::UDP_SOCKET,
                needs_icrc: true,
                waits_for_room: false,
            },
            buffer: vec![0; 65_536],
            scratch: Vec::new(),
            counters: UdpCounters::default(),
            device_counters: None,
        })
    }

    /// Returns the address the port is bound to.
    pub fn address(&self) -> IpAddr {
        self.own.address
    }

    /// Returns the UDP port it is bound to.
    pub fn port(&self) -> u16 {
        self.own.own_port
    }

    /// Returns the size of the receive buffer, in bytes as the kernel accounts them.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.limits.receive_buffer_bytes
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> UdpCounters {
        self.counters
    }

    fn check(&self, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        let flow = &batch.path.flow;
        if flow.source.is_ipv4() != flow.destination.is_ipv4() {
            return Err(TransmitError::Refused(libc::EAFNOSUPPORT));
        }
        let foreign = if self.own.address.is_unspecified() {
            flow.source.is_ipv6() && !self.own.ipv6_socket
        } else {
            flow.source != self.own.address
        };
        let is_ours = flow.source_port == self.own.own_port || source_port::is_computed(flow.source_port);
        if foreign || !is_ours {
            return Err(TransmitError::Refused(libc::EADDRNOTAVAIL));
        }
        let limit_bytes = self.limits.max_batch_bytes;
        if batch.bytes.len() > limit_bytes {
            return Err(TransmitError::TooLong { bytes: batch.bytes.len(), limit_bytes });
        }
        Ok(())
    }

    /// Returns the socket that sends from a flow's source port; `None` if it is not available any more.
    fn send_socket(&mut self, now_ns: u64, flow: &Flow) -> Option<SendSocket> {
        if flow.source_port == self.own.own_port {
            let is_wildcard = self.own.address.is_unspecified();
            let (fd, is_mapped) = (self.own.socket.as_raw_fd(), self.own.ipv6_socket);
            return Some(SendSocket { fd, is_mapped, names_source: is_wildcard });
        }
        let fd = self.senders.socket(now_ns, flow.source, flow.source_port)?;
        Some(SendSocket { fd, is_mapped: false, names_source: false })
    }

    /// Sends a batch from the RoCE port, because another program has taken the source port of its flow. Its
    /// receiver learns the new source port.
    #[cold]
    fn transmit_from_own_port(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.counters.source_ports_lost += 1;
        let mut path = batch.path.clone();
        path.flow.source_port = self.own.own_port;
        let bytes = batch::moved(&batch.path.flow, &path.flow, batch.segment_bytes, batch.bytes);
        self.transmit(now_ns, &GsoBatch { path: &path, series: 0, bytes: &bytes, ..*batch })
    }

    /// Makes one sendmsg; `segment_bytes` asks the kernel to cut.
    fn send(
        &mut self,
        send_socket: SendSocket,
        path: &Path,
        bytes: &[u8],
        segment_bytes: Option<u16>,
    ) -> Result<(), c_int> {
        let flow = &path.flow;
        let ipv4 = flow.destination.is_ipv4();
        let mut control = Control::new();
        if let Some(bytes) = segment_bytes {
            control.push_segment_bytes(bytes);
        }
        if path.traffic_class != DEFAULT_TRAFFIC_CLASS {
            control.push_traffic_class(ipv4, path.traffic_class);
        }
        // A hop limit of 0 cannot be sent: it means the default. Multicast has a default of its own, 1.
        let hop_limit = if path.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { path.hop_limit };
        if hop_limit != DEFAULT_HOP_LIMIT || flow.destination.is_multicast() {
            control.push_hop_limit(ipv4, hop_limit);
        }
        if send_socket.names_source {
            control.push_source(flow.source);
        }
        let scope_id = match flow.destination {
            group if group.is_multicast() && self.groups.scope_id() != 0 => self.groups.scope_id(),
            other => self.scopes.scope_id(flow.source, other),
        };
        let to = SockAddr::from(udp::destination(
            send_socket.is_mapped,
            flow.destination,
            flow.destination_port,
            scope_id,
        ));
        let mut attempt = || {
            message::send(send_socket.fd, &to, bytes, &mut control)
                .map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))
        };
        let outcome = match attempt() {
            Err(errno) if may_be_an_old_error(errno) => {
                self.counters.repeated_sends += 1;
                attempt()
            }
            other => other,
        };
        if outcome.is_err() {
            self.scopes.forget();
        }
        outcome
    }

    /// Sends a batch one packet at a time after the kernel refused to cut it with `errno`. Alone, each packet
    /// has IP ID 0, so the ICRCs are renewed.
    fn send_cut(
        &mut self,
        send_socket: SendSocket,
        batch: &GsoBatch<'_>,
        errno: c_int,
    ) -> Result<(), TransmitError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut outcome = Ok(());
        for (index, segment) in batch.segments().enumerate() {
            scratch.clear();
            scratch.extend_from_slice(segment);
            batch::renumber(&batch.path.flow, batch::ip_id(index), 0, &mut scratch);
            match self.send(send_socket, batch.path, &scratch, None) {
                Ok(()) => {}
                Err(e) if index == 0 => {
                    outcome = Err(transmit_error(e, segment.len()));
                    break;
                }
                // The first packets are on their way: repeating the batch would duplicate them, so the rest
                // is lost.
                Err(_) => self.counters.cut_batches_lost += 1,
            }
        }
        self.scratch = scratch;
        // The packets fit but the batch did not: the kernel cannot cut it. EMSGSIZE may also be an MTU that
        // changed.
        if outcome.is_ok() && errno != libc::EMSGSIZE {
            self.limits.max_segments = 1;
        }
        outcome
    }
}

/// The socket by which a batch leaves.
#[derive(Debug, Clone, Copy)]
struct SendSocket {
    fd: RawFd,
    /// The socket takes IPv6 addresses only.
    is_mapped: bool,
    /// The socket is bound to no address: each send names one.
    names_source: bool,
}

/// Reports whether a send may have been answered with the ICMP error of an earlier packet.
fn may_be_an_old_error(errno: c_int) -> bool {
    matches!(
        errno,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EPROTO
            | libc::ENOPROTOOPT
            | libc::EHOSTDOWN
            | libc::EINTR
    )
}

fn transmit_error(errno: c_int, segment_bytes: usize) -> TransmitError {
    match errno {
        libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR => TransmitError::Busy,
        libc::EMSGSIZE => TransmitError::TooLong { bytes: segment_bytes, limit_bytes: 0 },
        libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN | libc::EHOSTDOWN => {
            TransmitError::Unreachable
        }
        other => TransmitError::Refused(other),
    }
}

impl Port for UdpPort {
    fn transmit(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.check(batch)?;
        let segments = batch.segments().len();
        if segments == 0 {
            return Ok(());
        }
        let Some(send_socket) = self.send_socket(now_ns, &batch.path.flow) else {
            return self.transmit_from_own_port(now_ns, batch);
        };
        if segments == 1 {
            return self
                .send(send_socket, batch.path, batch.bytes, None)
                .map_err(|e| transmit_error(e, batch.bytes.len()));
        }
        let segment_bytes = u16::try_from(batch.segment_bytes).ok().filter(|_| self.limits.max_segments > 1);
        let Some(segment_bytes) = segment_bytes else {
            return self.send_cut(send_socket, batch, libc::EIO);
        };
        if segments > self.limits.max_segments {
            let limit_bytes = self.limits.max_segments * batch.segment_bytes;
            return Err(TransmitError::TooLong { bytes: batch.bytes.len(), limit_bytes });
        }
        match self.send(send_socket, batch.path, batch.bytes, Some(segment_bytes)) {
            Ok(()) => Ok(()),
            Err(errno @ (libc::EINVAL | libc::EIO | libc::EMSGSIZE)) => {
                self.send_cut(send_socket, batch, errno)
            }
            Err(errno) => Err(transmit_error(errno, batch.segment_bytes)),
        }
    }

    fn receive(&mut self, _now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        if self.groups.is_empty() && self.second.is_none() && self.known_empty.is_still_empty() {
            return false;
        }
        let receive = |fd: RawFd, buffer: &mut [u8]| {
            message::receive(fd, buffer, &mut Control::new(), libc::MSG_DONTWAIT)
        };
        let mut bound = self.own.address;
        let mut udp_port = self.own.own_port;
        let mut arrival = None;
        if let Some((fd, group)) = self.groups.turn() {
            arrival = receive(fd, &mut self.buffer);
            bound = group;
        }
        // The two sockets take turns to be first, so that none waits while the other one is busy.
        let second = self.second.as_ref().map(|(socket, port)| (socket.as_raw_fd(), *port));
        let own = Some((self.own.socket.as_raw_fd(), self.own.own_port));
        self.second_is_next = second.is_some() && !self.second_is_next;
        for (fd, port) in
            if self.second_is_next { [second, own] } else { [own, second] }.into_iter().flatten()
        {
            if arrival.is_none() {
                arrival = receive(fd, &mut self.buffer);
                (bound, udp_port) = (self.own.address, port);
            }
        }
        self.known_empty.record_poll(arrival.is_some());
        let Some(arrival) = arrival else { return false };
        if arrival.truncated {
            self.counters.truncated += 1;
            if let Some(counters) = &self.device_counters {
                counters.add(Counter::RxTruncated, 1);
            }
        } else if arrival.length_bytes == 0 {
            self.counters.empty += 1;
        } else if let Some(received) = received(&self.buffer, &arrival, bound, udp_port) {
            handler(&received);
        }
        true
    }

    fn observe(&mut self, counters: &Arc<Counters>) {
        self.device_counters = Some(Arc::clone(counters));
    }

    fn listen_also(&mut self, udp_port: u16) -> io::Result<()> {
        if udp_port != self.own.own_port && self.second.is_none() {
            let sharing = PortReuse { reuse_port: !self.own.is_exclusive, reuse_address: false };
            let scope_id = Scopes::default().scope_id(self.own.address, self.own.address);
            let name = udp::destination(false, self.own.address, udp_port, scope_id);
            let socket = udp::open(name, self.own.buffer_bytes, sharing).map_err(io::Error::other)?;
            let given = socket.local_addr()?.as_socket().map_or(udp_port, |name| name.port());
            self.second = Some((socket, given));
        }
        Ok(())
    }

    /// Returns the same limits for every peer: peers are taken to have the receive buffer that this socket
    /// has.
    fn limits(&self, _peer: Peer) -> PortLimits {
        self.limits
    }

    fn source_port(&mut self, now_ns: u64, flow: &Flow) -> u16 {
        // A group's packets leave by the interface that was set on the socket.
        let wanted = Some(flow.source_port).filter(|_| !flow.destination.is_multicast());
        wanted.and_then(|port| self.senders.reserve(now_ns, flow.source, port)).unwrap_or(self.own.own_port)
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let second = self.second.iter().map(|(socket, _)| socket.as_raw_fd());
        std::iter::once(self.own.socket.as_raw_fd()).chain(second).chain(self.groups.descriptors()).collect()
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.groups.join(&self.own.socket, group)
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        self.groups.leave(group)
    }

    fn group(&mut self) -> Option<&mut dyn ProcessGroup> {
        self.own.is_exclusive.then_some(self)
    }
}

/// The group of a process that has its UDP port for itself: what it knows of other processes.
impl ProcessGroup for UdpPort {
    fn peer_progress(&mut self, _now_ns: u64, peer: Peer, _since_ns: u64) -> PeerProgress {
        match unread::is_unread_at(peer.address, self.own.own_port) {
            true => PeerProgress::Starved,
            false => PeerProgress::Unknown,
        }
    }
}

impl AsRawFd for UdpPort {
    /// Returns the unicast socket, for options such as a group's steering program.
    fn as_raw_fd(&self) -> RawFd {
        self.own.socket.as_raw_fd()
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.socket.as_fd()
    }
}

/// Returns what arrived at a socket bound to `bound`; `None` if a wildcard socket did not get the
/// destination.
fn received<'a>(
    buffer: &'a [u8],
    arrival: &ReceivedMessage,
    bound: IpAddr,
    port: u16,
) -> Option<ReceivedBatch<'a>> {
    let destination = if bound.is_unspecified() { arrival.destination? } else { bound };
    Some(ReceivedBatch {
        flow: Flow {
            source: arrival.source.ip(),
            destination,
            source_port: arrival.source.port(),
            destination_port: port,
        },
        traffic_class: arrival.traffic_class,
        hop_limit: arrival.hop_limit,
        segment_bytes: arrival.segment_bytes.unwrap_or(arrival.length_bytes).min(arrival.length_bytes),
        bytes: buffer.get(..arrival.length_bytes)?,
        has_icrc: true,
    })
}

#[cfg(test)]
#[path = "port_tests.rs"]
mod tests;
