//! Listeners, and the requests for connections that they receive.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::gsi::{BindingId, CmChannel, ConnectionError, ServiceEntry};
use pumice_transport::cm::{BacklogOverflow, CmEvent, ListenScope, MadRoute, RejectParams, Served};
use pumice_transport::mad::{CommId, IpHeader, PortSpace, Req, ServiceId};
use pumice_transport::types::Gid;
use pumice_transport::wire::Qpn;

use super::params::{value, written};
use super::{Connectable, Connection, ConnectionParams, EPHEMERAL, PrivateData, channel, room, take, wait};
use crate::device::Device;
use crate::device::calls::gated_call;
use crate::error::{Result, VerbsError};
use crate::queue_pair::QueuePair;

/// A listener at a port of the device's addresses. Dropping it ends that; waiting requests are rejected,
/// connections stay.
pub struct Listener {
    device: Device,
    binding: BindingId,
    channel: Arc<CmChannel>,
    address: SocketAddr,
}

impl Device {
    /// Listens at a port of all addresses; 0 chooses one ([`Listener::port`]). The port belongs to this
    /// process alone, even if other processes share the address. 1024 requests may wait; a peer that finds no
    /// room repeats its request.
    ///
    /// # Errors
    /// `Connection`: the port is taken (EADDRINUSE). `Refused`: no file descriptor is available.
    pub fn listen(&self, port: u16) -> Result<Listener> {
        Listener::bind(self, SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), port), Listener::BACKLOG)
    }
}

impl Listener {
    /// Maximum number of requests that wait, unless [`Listener::bind`] sets another one.
    pub const BACKLOG: usize = 1024;

    /// Listens at a port of one address, of all IPv4 addresses (0.0.0.0), or of all of both families (::).
    /// Port 0 chooses one.
    ///
    /// # Errors
    /// `Invalid`: the address does not belong to the device. The errors of [`Device::listen`].
    pub fn bind(device: &Device, address: SocketAddr, backlog: usize) -> Result<Listener> {
        gated_call(device, Call::rdma_listen, || Listener::listen(device, address, backlog))
    }

    fn listen(device: &Device, address: SocketAddr, backlog: usize) -> Result<Listener> {
        let listen_scope = listen_scope(device, address.ip())?;
        let channel = channel()?;
        let entry = |port| {
            let service_id = ServiceId::rdma_cm(PortSpace::Tcp, port);
            ServiceEntry { service_id, mask: u64::MAX, scope: listen_scope }
        };
        let hca = device.hca();
        let (port, binding) = if address.port() == 0 {
            let taken = |error: &ConnectionError| error.errno() == EADDRINUSE;
            // A port that was released a moment ago is avoided, because peers may still send requests to it.
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
        hca.cm_listen(
            binding,
            Served::AnyConnection,
            backlog.max(1),
            BacklogOverflow::Ignore,
            &listener.channel,
        )
        .map_err(VerbsError::connection)?;
        Ok(listener)
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Waits for a peer that requests a connection.
    ///
    /// # Errors
    /// `TimedOut`. `Refused`: no file descriptor is available for the connection; the request was rejected.
    pub fn request(&self, timeout: Duration) -> Result<ConnectionRequest> {
        self.taken(wait(&self.device, &self.channel, "connection request", timeout, connect_request)?)
    }

    /// Takes the oldest request for a connection, if there is one. Rules of fault plans do not apply to it:
    /// those for `rdma_get_cm_event` apply to [`Listener::request`].
    ///
    /// # Errors
    /// The errors of [`Listener::request`].
    pub fn try_request(&self) -> Option<Result<ConnectionRequest>> {
        take(&self.device, &self.channel, &mut connect_request)
            .map(|connect_request| self.taken(connect_request))
    }

    /// Returns the device that listens.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn taken(&self, (id, route, connect_request): ReceivedRequest) -> Result<ConnectionRequest> {
        let request = ConnectionRequest {
            device: self.device.clone(),
            id: Some(id),
            route,
            connect_request,
            channel: channel(),
        };
        if let Ok(channel) = &request.channel {
            // The id exists as long as the request does.
            let _ = self.device.hca().cm_migrate(id, channel);
            return Ok(request);
        }
        request.into_failure()
    }
}

const EADDRINUSE: i32 = 98;

/// A request as the device reports it.
type ReceivedRequest = (CommId, MadRoute, Box<Req>);

fn connect_request(event: CmEvent) -> Option<ReceivedRequest> {
    match event {
        CmEvent::ConnectRequest { id, route, request, .. } => Some((id, route, request)),
        // Events of a connection that is given up before it is taken.
        _ => None,
    }
}

/// Returns the scope to listen at: one address, or all of them.
fn listen_scope(device: &Device, address: IpAddr) -> Result<ListenScope> {
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
    /// Returns a descriptor that is readable while requests wait.
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

/// A peer's request for a connection. Dropping it rejects the request.
pub struct ConnectionRequest {
    device: Device,
    /// Id of the connection; `None` if the request was answered.
    id: Option<CommId>,
    route: MadRoute,
    connect_request: Box<Req>,
    channel: Result<Arc<CmChannel>>,
}

impl ConnectionRequest {
    /// Returns address and port of the peer.
    pub fn peer(&self) -> SocketAddr {
        let header = IpHeader::parse(&self.connect_request.private_data);
        let port = header.map_or(0, |header| header.source_port);
        SocketAddr::new(IpAddr::from(self.route.remote), port)
    }

    /// Returns the device's address to which the request was sent.
    pub fn local(&self) -> IpAddr {
        IpAddr::from(self.route.local)
    }

    /// Reports whether a queue pair of this transport is requested.
    pub fn is<T: Connectable>(&self) -> bool {
        self.connect_request.transport == T::TRANSPORT
    }

    /// Returns the private data of the request.
    ///
    /// # Errors
    /// `Invalid`: it is not of this type.
    pub fn private_data<P: PrivateData>(&self) -> Result<P> {
        value(IpHeader::split(&self.connect_request.private_data).1)
    }

    /// Accepts, with a queue pair that is as its builder left it. Receives should be posted to it before: the
    /// peer may send at once.
    ///
    /// # Errors
    /// `Invalid`: another transport is requested. `Refused`: the queue pair cannot be connected.
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
        // A request whose acceptance a rule refuses keeps its id, and is rejected when it is dropped.
        gated_call(&device, Call::rdma_accept, || {
            let (Some(id), Ok(channel)) = (self.id.take(), &self.channel) else {
                return Err(VerbsError::Disconnected { peer });
            };
            let request = (id, Arc::clone(channel), peer, &*self.connect_request);
            Connection::accept(qp, request, params, &written(private_data))
        })
    }

    /// Rejects the request, with private data that may give a reason.
    ///
    /// # Errors
    /// `Connection`: the peer has given up.
    pub fn reject<P: PrivateData>(self, private_data: &P) -> Result<()> {
        const { assert!(P::LEN <= room::REJECTION_BYTES, "a rejection has room for 148 bytes") };
        let Some(id) = self.id else { return Ok(()) };
        let reject_data = written(private_data);
        gated_call(&self.device, Call::rdma_reject, || {
            let rejected = self.device.hca().cm_reject(id, &RejectParams::consumer(&reject_data));
            rejected.map_err(VerbsError::connection)
        })
    }

    /// Returns the error if there is no channel for the request.
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
