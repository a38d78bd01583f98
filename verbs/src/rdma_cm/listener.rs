//! Listening, and what comes of it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::gsi::{BindingId, CmChannel, ConnectionError, ServiceEntry};
use pumice_transport::cm::{BacklogOverflow, Event, ListenScope, MadRoute, RejectParams, Served};
use pumice_transport::mad::{CommId, IP_HEADER_BYTES, IpHeader, PortSpace, Req, ServiceId};
use pumice_transport::types::Gid;
use pumice_transport::wire::Qpn;

use super::connection::{channel, take, wait};
use super::private_data::{value, written};
use super::{Connectable, Connection, ConnectionParams, EPHEMERAL, PrivateData, room};
use crate::device::Device;
use crate::device::calls::called;
use crate::ground::error::{Result, VerbsError};
use crate::queue_pair::QueuePair;

/// Listens at a port of the device's addresses. Dropping it ends that; requests that wait are
/// rejected, connections stay.
pub struct Listener {
    device: Device,
    binding: BindingId,
    channel: Arc<CmChannel>,
    address: SocketAddr,
}

impl Device {
    /// Listens at a port of all addresses; 0 chooses one ([`Listener::port`]). The port is for this process
    /// alone, also if other processes share the address. 1024 requests may wait; a peer that finds no room
    /// asks again.
    ///
    /// # Errors
    /// `Connection`: the port is taken (EADDRINUSE). `Refused`: no file descriptor is to be had.
    pub fn listen(&self, port: u16) -> Result<Listener> {
        Listener::bind(self, SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), port), Listener::BACKLOG)
    }
}

impl Listener {
    /// Requests that wait at most, unless [`Listener::bind`] says otherwise.
    pub const BACKLOG: usize = 1024;

    /// Listens at a port of one address, of all IPv4 addresses (0.0.0.0), or of all of both families (::).
    /// Port 0 chooses one.
    ///
    /// # Errors
    /// `Invalid`: the address is none of the device's. As [`Device::listen`].
    pub fn bind(device: &Device, address: SocketAddr, backlog: usize) -> Result<Listener> {
        called(device, Call::rdma_listen, || Listener::listen(device, address, backlog))
    }

    fn listen(device: &Device, address: SocketAddr, backlog: usize) -> Result<Listener> {
        let place = place(device, address.ip())?;
        let channel = channel()?;
        let entry = |port| {
            let service_id = ServiceId::rdma_cm(PortSpace::Tcp, port);
            ServiceEntry { service_id, mask: u64::MAX, scope: place }
        };
        let hca = device.hca();
        let (port, binding) = if address.port() == 0 {
            let taken = |error: &ConnectionError| error.errno() == EADDRINUSE;
            // Not a port that was given up a moment ago: peers may still ask for that.
            let first = device.first_psn(Qpn::GSI) % EPHEMERAL.len() as u32;
            let ports = EPHEMERAL.cycle().skip(first as usize).take(EPHEMERAL.len());
            let bound = ports.map(|port| (port, hca.cm_bind(&entry(port))));
            let free = bound.into_iter().find(|(_, bound)| !bound.as_ref().is_err_and(taken));
            free.ok_or_else(|| VerbsError::Invalid {
                object: "listener",
                attribute: "port",
                problem: "0 chooses a free one, but there is none".to_owned(),
                remedy: "close another listener",
            })?
        } else {
            (address.port(), hca.cm_bind(&entry(address.port())))
        };
        let binding = binding.map_err(VerbsError::connection)?;
        let address = SocketAddr::new(address.ip(), port);
        let listener = Listener { device: device.clone(), binding, channel, address };
        hca.cm_listen(binding, Served::Anything, backlog.max(1), BacklogOverflow::Ignore, &listener.channel)
            .map_err(VerbsError::connection)?;
        Ok(listener)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Waits for a peer that asks for a connection.
    ///
    /// # Errors
    /// `TimedOut`. `Refused`: no file descriptor is to be had for the connection; the request was rejected.
    pub fn request(&self, timeout: Duration) -> Result<ConnectionRequest> {
        self.taken(wait(&self.device, &self.channel, "connection request", timeout, asked)?)
    }

    /// The oldest request for a connection, if one waits. No rule of a fault plan is about it: those about
    /// `rdma_get_cm_event` are about [`Listener::request`].
    ///
    /// # Errors
    /// As [`Listener::request`].
    pub fn try_request(&self) -> Option<Result<ConnectionRequest>> {
        take(&self.device, &self.channel, &mut asked).map(|asked| self.taken(asked))
    }

    /// The device that listens.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn taken(&self, (id, route, asked): Asked) -> Result<ConnectionRequest> {
        let request =
            ConnectionRequest { device: self.device.clone(), id: Some(id), route, asked, channel: channel() };
        if let Ok(channel) = &request.channel {
            // It exists as long as the request does.
            let _ = self.device.hca().cm_migrate(id, channel);
            return Ok(request);
        }
        request.into_failure()
    }
}

const EADDRINUSE: i32 = 98;

/// A request as the device tells of it.
type Asked = (CommId, MadRoute, Box<Req>);

fn asked(event: Event) -> Option<Asked> {
    match event {
        Event::ConnectRequest { id, route, request, .. } => Some((id, route, request)),
        // Of a connection that is given up before it is taken.
        _ => None,
    }
}

/// The address to listen at; `None` for all of them.
fn place(device: &Device, address: IpAddr) -> Result<ListenScope> {
    match address {
        IpAddr::V4(any) if any.is_unspecified() => return Ok(ListenScope::Ipv4),
        IpAddr::V6(any) if any.is_unspecified() => return Ok(ListenScope::Everywhere),
        _ => {}
    }
    let gid = Gid::from(address);
    if device.gids().iter().any(|(_, entry)| entry.gid == gid) {
        return Ok(ListenScope::At(gid));
    }
    Err(VerbsError::Invalid {
        object: "listener",
        attribute: "address",
        problem: format!("{address} is none of the device's"),
        remedy: "choose one that Device::gids lists, 0.0.0.0 for all of IPv4, or :: for all",
    })
}

impl AsFd for Listener {
    /// Readable while requests wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listener at {} of {}", self.address, self.device.name())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.device.hca().cm_unbind(self.binding);
    }
}

/// A peer asks for a connection. Dropping it rejects.
pub struct ConnectionRequest {
    device: Device,
    /// `None`: it was answered.
    id: Option<CommId>,
    route: MadRoute,
    asked: Box<Req>,
    channel: Result<Arc<CmChannel>>,
}

impl ConnectionRequest {
    /// Who it is: address and port of the peer's.
    pub fn peer(&self) -> SocketAddr {
        let header = IpHeader::parse(&self.asked.private_data);
        let port = header.map_or(0, |header| header.source_port);
        SocketAddr::new(IpAddr::from(self.route.remote), port)
    }

    /// The address of the device that was asked.
    pub fn local(&self) -> IpAddr {
        IpAddr::from(self.route.local)
    }

    /// Whether a queue pair of this transport is asked for.
    pub fn is<T: Connectable>(&self) -> bool {
        self.asked.transport == T::TRANSPORT
    }

    /// What the peer says.
    ///
    /// # Errors
    /// `Invalid`: it is not of this type.
    pub fn private_data<P: PrivateData>(&self) -> Result<P> {
        value(self.asked.private_data.get(IP_HEADER_BYTES..).unwrap_or(&[]))
    }

    /// Accepts, with a queue pair that is as its builder left it. Receives should be posted to it before: the
    /// peer may send at once.
    ///
    /// # Errors
    /// `Invalid`: another transport is asked for. `Refused`: the queue pair cannot be connected.
    /// `Disconnected`, `Connection`: the peer has given up. In any case the request is answered.
    pub fn accept<T: Connectable, P: PrivateData>(
        mut self,
        qp: &QueuePair<T>,
        params: &ConnectionParams,
        private_data: &P,
    ) -> Result<Connection<T>> {
        const { assert!(P::LEN <= room::ACCEPTANCE_BYTES, "an acceptance has room for 196 bytes") };
        let peer = self.peer();
        let device = self.device.clone();
        // One that is refused by a rule keeps its id, and is rejected when it is dropped.
        called(&device, Call::rdma_accept, || {
            let (Some(id), Ok(channel)) = (self.id.take(), &self.channel) else {
                return Err(VerbsError::Disconnected { peer });
            };
            let request = (id, Arc::clone(channel), peer, &*self.asked);
            Connection::accept(qp, request, params, &written(private_data))
        })
    }

    /// Rejects, and says why.
    ///
    /// # Errors
    /// `Connection`: the peer has given up.
    pub fn reject<P: PrivateData>(self, private_data: &P) -> Result<()> {
        const { assert!(P::LEN <= room::REJECTION_BYTES, "a rejection has room for 148 bytes") };
        let Some(id) = self.id else { return Ok(()) };
        let said = written(private_data);
        called(&self.device, Call::rdma_reject, || {
            let rejected = self.device.hca().cm_reject(id, &RejectParams::consumer(&said));
            rejected.map_err(VerbsError::connection)
        })
    }

    /// Why there is no channel for it.
    fn into_failure(mut self) -> Result<ConnectionRequest> {
        let peer = self.peer();
        let channel = std::mem::replace(&mut self.channel, Err(VerbsError::Disconnected { peer }));
        channel.map(|_| self)
    }
}

impl fmt::Debug for ConnectionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request of {} at {}", self.peer(), self.local())
    }
}

impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let _ = self.device.hca().cm_destroy(id);
        }
    }
}
