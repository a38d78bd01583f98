//! Connections by address: a peer connects to a listener by its IP address and port, and the queue pairs need
//! nothing out of band. On the wire it is the IBTA's connection manager with RDMA-CM's addresses, so the
//! other side may be librdmacm, the kernel's rdma_rxe or a NIC.
//!
//! [`Listener::request`] gives a [`ConnectionRequest`], which is accepted with a queue pair or rejected;
//! [`Connection::connect`] requests a connection. Both end in a [`Connection`], which is established a moment
//! later, and disconnected when either side says so or drops it. Each side can send data in every step:
//! [`PrivateData`].
//!
//! A connection: requested or accepted, established, disconnected.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::gsi::CmChannel;
use pumice_device::port::wait_readable;
use pumice_transport::cm::{
    AcceptParams, CmEvent, CmPath, ConnectParams, MadRoute, QpParameters, ack_timeout,
};
use pumice_transport::mad::{CommId, IpHeader, PortSpace, Req, ServiceId};
use pumice_transport::types::Gid;
use pumice_transport::wire::Psn;

use self::params::{value, written};
use crate::device::Device;
use crate::device::calls::gated_call;
use crate::error::{Result, VerbsError};
use crate::queue_pair::{Endpoint, QueuePair};

/// A connection of a queue pair, made by address. Dropping it disconnects, and takes the queue pair to ERR.
/// It uses one file descriptor, which is readable while there are events ([`AsFd`]).
pub struct Connection<T: Connectable> {
    qp: QueuePair<T>,
    id: CommId,
    channel: Arc<CmChannel>,
    peer: SocketAddr,
    params: ConnectionParams,
    /// First PSN of the peer, as this side sent it.
    starting_psn: Psn,
    progress: Mutex<ConnectionProgress>,
}

#[derive(Debug, Default)]
struct ConnectionProgress {
    established: bool,
    is_over: bool,
    /// Last private data of the peer.
    private_data: Vec<u8>,
}

impl<T: Connectable> Connection<T> {
    /// Connects a queue pair, from its own address, to the program that listens at `peer`, and waits until
    /// both sides are connected: the queue pair is in RTS, and the data that the peer accepted with is in
    /// [`Connection::private_data`]. Receives should be posted before.
    ///
    /// # Errors
    /// As [`Connection::start`] and [`Connection::established`]. After each of them, `TimedOut` too, the
    /// attempt is given up.
    pub fn connect<P: PrivateData>(
        qp: &QueuePair<T>,
        peer: SocketAddr,
        params: &ConnectionParams,
        private_data: &P,
        timeout: Duration,
    ) -> Result<Connection<T>> {
        let connection = Connection::start(qp, peer, params, private_data)?;
        connection.established(timeout)?;
        Ok(connection)
    }

    /// Asks the program that listens at `peer` to connect to a queue pair, from that queue pair's own
    /// address, without waiting for its answer: [`Connection::established`] waits, and brings the queue pair
    /// to RTS. Receives should be posted before that.
    ///
    /// # Errors
    /// `Invalid`: the addresses are of different IP versions. `Connection`: a parameter is out of range, or
    /// there are too many connections. `Refused`: no file descriptor is available.
    pub fn start<P: PrivateData>(
        qp: &QueuePair<T>,
        peer: SocketAddr,
        params: &ConnectionParams,
        private_data: &P,
    ) -> Result<Connection<T>> {
        const { assert!(P::LEN <= room::REQUEST_BYTES, "a request has room for 56 bytes of private data") };
        gated_call(qp.device(), Call::rdma_connect, || {
            Connection::connect_request(qp, peer, params, &written(private_data))
        })
    }

    fn connect_request(
        qp: &QueuePair<T>,
        peer: SocketAddr,
        params: &ConnectionParams,
        private_data: &[u8],
    ) -> Result<Connection<T>> {
        let device = qp.device();
        let local = qp.local();
        let source = IpAddr::from(local.gid);
        if source.is_ipv4() != peer.is_ipv4() {
            return Err(VerbsError::Invalid {
                object: "connection",
                attribute: "peer",
                problem: format!("{peer} is of another IP version than the queue pair's address {source}"),
                remedy: "build the queue pair with the gid_index of an address of the peer's IP version",
            });
        }
        let starting_psn = Psn::new(device.first_psn(qp.qpn()));
        let source_port = EPHEMERAL.start + (starting_psn.value() % EPHEMERAL.len() as u32) as u16;
        let header = IpHeader { source_port, source, destination: peer.ip() }.emit();
        let request_data = [&header[..], private_data].concat();
        let route = MadRoute {
            local: local.gid,
            remote: Gid::from(peer.ip()),
            traffic_class: params.traffic_class,
            hop_limit: HOP_LIMIT,
            flow_label: 0,
        };
        let service_id = ServiceId::rdma_cm(PortSpace::Tcp, peer.port());
        let connect_request = ConnectParams {
            transport: T::TRANSPORT,
            responder_resources: params.responder_resources,
            initiator_depth: params.initiator_depth,
            retry_count: params.retry_count,
            rnr_retry_count: params.rnr_retry_count,
            remote_response_timeout: params.response_timeout,
            local_response_timeout: params.response_timeout,
            max_cm_retries: params.max_cm_retries,
            private_data: &request_data,
            ..ConnectParams::new(service_id, CmPath::new(route, local.mtu), qp.qpn(), starting_psn)
        };
        let channel = channel()?;
        let id = device.hca().cm_connect(&connect_request, &channel).map_err(VerbsError::connection)?;
        Ok(Connection::new(qp, id, channel, peer, params, starting_psn))
    }

    /// Accepts a request: the queue pair is in RTS before the peer is notified.
    fn accept(
        qp: &QueuePair<T>,
        request: (CommId, Arc<CmChannel>, SocketAddr, &Req),
        params: &ConnectionParams,
        private_data: &[u8],
    ) -> Result<Connection<T>> {
        let (id, channel, peer, asked) = request;
        let hca = qp.device().hca();
        let starting_psn = Psn::new(qp.device().first_psn(qp.qpn()));
        let connection = Connection::new(qp, id, channel, peer, params, starting_psn);
        if asked.transport != T::TRANSPORT {
            return Err(VerbsError::Invalid {
                object: "connection",
                attribute: "queue pair",
                problem: format!("is {}, but {:?} was asked for", T::TYPE.name(), asked.transport),
                remedy: "look at ConnectionRequest::is before making the queue pair",
            });
        }
        let negotiated = connection.negotiated()?;
        connection.ready(&negotiated)?;
        let accept = AcceptParams {
            responder_resources: negotiated.max_dest_rd_atomic.min(params.responder_resources),
            initiator_depth: negotiated.max_rd_atomic.min(params.initiator_depth),
            rnr_retry_count: params.rnr_retry_count,
            private_data,
            ..AcceptParams::new(qp.qpn(), starting_psn)
        };
        hca.cm_accept(id, &accept).map_err(VerbsError::connection)?;
        Ok(connection)
    }

    fn new(
        qp: &QueuePair<T>,
        id: CommId,
        channel: Arc<CmChannel>,
        peer: SocketAddr,
        params: &ConnectionParams,
        starting_psn: Psn,
    ) -> Connection<T> {
        let progress = Mutex::default();
        Connection { qp: qp.clone(), id, channel, peer, params: *params, starting_psn, progress }
    }

    /// Returns the queue pair.
    pub fn queue_pair(&self) -> &QueuePair<T> {
        &self.qp
    }

    /// Returns the peer: its address, and the port that was requested or, at the accepting side, the one that
    /// the peer named as its own.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Reports whether requests can be posted.
    pub fn is_established(&self) -> bool {
        let progress = self.progress();
        progress.established && !progress.is_over
    }

    /// Waits until the connection is established. At the side that connected, the private data of the other
    /// side's acceptance is then in [`Connection::private_data`].
    ///
    /// # Errors
    /// `Rejected`, `Unreachable`, `Disconnected`; `TimedOut`: not yet, it can be called again. `Refused`: the
    /// queue pair cannot be connected; the peer is notified.
    pub fn established(&self, timeout: Duration) -> Result<()> {
        if let Some(known) = self.whether_established() {
            return known;
        }
        let event = self.next("establishment of the connection", timeout, concerns_establishment)?;
        self.established_by(event)
    }

    /// Checks for what [`Connection::established`] waits for, without waiting; `None` if it is not
    /// established yet.
    pub fn try_established(&self) -> Option<Result<()>> {
        self.whether_established().or_else(|| {
            let event = self.try_next(concerns_establishment)?;
            Some(event.and_then(|event| self.established_by(event)))
        })
    }

    /// Returns what is known without an event.
    fn whether_established(&self) -> Option<Result<()>> {
        let progress = self.progress();
        if progress.is_over {
            return Some(Err(VerbsError::Disconnected { peer: self.peer }));
        }
        progress.established.then_some(Ok(()))
    }

    fn established_by(&self, event: ConnectionEvent) -> Result<()> {
        match event {
            ConnectionEvent::Established => Ok(()),
            ConnectionEvent::Rejected(rejection) => Err(VerbsError::Rejected(rejection)),
            ConnectionEvent::Unreachable => Err(VerbsError::Unreachable { peer: self.peer }),
            ConnectionEvent::Disconnected | ConnectionEvent::TimewaitExit => {
                Err(VerbsError::Disconnected { peer: self.peer })
            }
        }
    }

    /// Waits until the connection has ended. Either side may end it, in any way.
    ///
    /// # Errors
    /// `TimedOut`.
    pub fn disconnected(&self, timeout: Duration) -> Result<()> {
        if self.progress().is_over {
            return Ok(());
        }
        self.next("disconnection", timeout, ends_connection).map(drop)
    }

    /// Checks for what [`Connection::disconnected`] waits for, without waiting; `None` if it has not ended
    /// yet.
    pub fn try_disconnected(&self) -> Option<Result<()>> {
        if self.progress().is_over {
            return Some(Ok(()));
        }
        Some(self.try_next(ends_connection)?.map(drop))
    }

    /// Waits for the next event of the connection.
    ///
    /// # Errors
    /// `TimedOut`. `Refused`: the peer accepted, but the queue pair cannot be connected; the peer is
    /// notified.
    pub fn event(&self, timeout: Duration) -> Result<ConnectionEvent> {
        self.next("event of the connection", timeout, |_| true)
    }

    /// Takes the oldest event of the connection, if there is one. Rules of fault plans do not apply to it:
    /// those for `rdma_get_cm_event` apply to the calls that wait.
    ///
    /// # Errors
    /// The errors of [`Connection::event`].
    pub fn try_event(&self) -> Option<Result<ConnectionEvent>> {
        self.try_next(|_| true)
    }

    /// Returns the private data of the peer's acceptance.
    ///
    /// # Errors
    /// `Invalid`: it is not of this type, or has not arrived yet.
    pub fn private_data<P: PrivateData>(&self) -> Result<P> {
        value(&self.progress().private_data)
    }

    /// Disconnects: everything posted is flushed, and the peer is notified. [`Connection::disconnected`]
    /// waits for its confirmation, which is optional. If the connection has ended, this does nothing.
    ///
    /// # Errors
    /// `Connection`: it was never established.
    pub fn disconnect(&self) -> Result<()> {
        if self.progress().is_over {
            return Ok(());
        }
        gated_call(self.qp.device(), Call::rdma_disconnect, || {
            self.qp.move_to_error()?;
            self.qp.device().hca().cm_disconnect(self.id, &[]).map_err(VerbsError::connection)
        })
    }

    /// Waits for the next event that is wanted; other events have their effects.
    fn next(
        &self,
        awaited: &'static str,
        timeout: Duration,
        wanted: impl Fn(&ConnectionEvent) -> bool,
    ) -> Result<ConnectionEvent> {
        wait(self.qp.device(), &self.channel, awaited, timeout, |event| {
            self.apply_event(event).filter(|event| event.as_ref().map_or(true, &wanted))
        })?
    }

    /// Takes the next event that is wanted, without waiting.
    fn try_next(&self, wanted: impl Fn(&ConnectionEvent) -> bool) -> Option<Result<ConnectionEvent>> {
        take(self.qp.device(), &self.channel, &mut |event| {
            self.apply_event(event).filter(|event| event.as_ref().map_or(true, &wanted))
        })
    }

    /// Applies the effects of an event, and returns it as the program sees it.
    fn apply_event(&self, event: CmEvent) -> Option<Result<ConnectionEvent>> {
        let reported = match event {
            CmEvent::ConnectResponse { reply, .. } => {
                let ready = self.negotiated().and_then(|negotiated| self.ready(&negotiated));
                let hca = self.qp.device().hca();
                let confirmed =
                    ready.and_then(|()| hca.cm_send_rtu(self.id, &[]).map_err(VerbsError::connection));
                if let Err(error) = confirmed {
                    self.end();
                    return Some(Err(error));
                }
                self.progress().private_data = reply.private_data.to_vec();
                ConnectionEvent::Established
            }
            CmEvent::Established { .. } => ConnectionEvent::Established,
            CmEvent::Rejected { rejection, .. } => {
                self.end();
                let private_data = rejection.private_data.to_vec();
                ConnectionEvent::Rejected(Rejection { reason: rejection.reason, private_data })
            }
            CmEvent::Unreachable { .. } => {
                self.end();
                ConnectionEvent::Unreachable
            }
            CmEvent::DisconnectRequest { .. } => {
                self.end();
                // The peer waits for this answer, or no longer needs it.
                let _ = self.qp.device().hca().cm_disconnect(self.id, &[]);
                ConnectionEvent::Disconnected
            }
            CmEvent::Disconnected { .. } => {
                self.end();
                ConnectionEvent::Disconnected
            }
            CmEvent::TimewaitExit { .. } => ConnectionEvent::TimewaitExit,
            _ => return None,
        };
        if reported == ConnectionEvent::Established {
            self.progress().established = true;
        }
        Some(Ok(reported))
    }

    /// Flushes what was posted, because the connection has ended.
    fn end(&self) {
        self.progress().is_over = true;
        // A queue pair that is in ERR, or in RESET, needs nothing.
        let _ = self.qp.move_to_error();
    }

    /// Returns the parameters that both sides agreed on.
    fn negotiated(&self) -> Result<QpParameters> {
        let known = self.qp.device().hca().cm_qp_parameters(self.id);
        known.ok_or(VerbsError::Disconnected { peer: self.peer })
    }

    /// Brings the queue pair to RTS.
    fn ready(&self, negotiated: &QpParameters) -> Result<()> {
        let mut negotiated = *negotiated;
        let limit = self.qp.device().limits().max_rd_atomic;
        negotiated.max_rd_atomic = negotiated.max_rd_atomic.min(limit);
        negotiated.max_dest_rd_atomic = negotiated.max_dest_rd_atomic.min(limit);
        if negotiated.timeout == 0 {
            // The peer waits for ever, but this side does not.
            negotiated.timeout = ack_timeout(0, PACKET_LIFE_TIME);
        }
        let psn = self.starting_psn.value();
        let peer = Endpoint::new(negotiated.remote, negotiated.dest_qpn, psn, negotiated.path_mtu);
        let options = T::options(&negotiated, &self.params);
        self.qp.connect_from(&peer, negotiated.sq_psn.value(), &options)
    }

    fn progress(&self) -> MutexGuard<'_, ConnectionProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// TTL of requests: routed, as in Linux.
const HOP_LIMIT: u8 = 64;
/// Packet lifetime code that Linux assumes.
const PACKET_LIFE_TIME: u8 = 16;

/// Creates a channel for the events of one connection or listener.
fn channel() -> Result<Arc<CmChannel>> {
    let channel = CmChannel::new()
        .map_err(|error| VerbsError::Refused { object: "connection", error: error.into() })?;
    Ok(Arc::new(channel))
}

fn concerns_establishment(event: &ConnectionEvent) -> bool {
    !matches!(event, ConnectionEvent::TimewaitExit)
}

fn ends_connection(event: &ConnectionEvent) -> bool {
    !matches!(event, ConnectionEvent::Established | ConnectionEvent::TimewaitExit)
}

/// Takes the first waiting event for which `handle_event` returns something.
fn take<R>(
    device: &Device,
    channel: &CmChannel,
    handle_event: &mut impl FnMut(CmEvent) -> Option<R>,
) -> Option<R> {
    std::iter::from_fn(|| device.hca().cm_event(channel)).find_map(handle_event)
}

/// Waits for an event for which `handle_event` returns something: `rdma_get_cm_event` for rules of fault
/// plans.
fn wait<R>(
    device: &Device,
    channel: &CmChannel,
    awaited: &'static str,
    timeout: Duration,
    mut handle_event: impl FnMut(CmEvent) -> Option<R>,
) -> Result<R> {
    let attempt = || take(device, channel, &mut handle_event);
    let descriptor = channel.as_fd().as_raw_fd();
    // If poll(2) fails, the wait becomes polling, which still ends in time.
    let sleep = |left| drop(wait_readable(&[descriptor], None, Some(left)));
    gated_call(device, Call::rdma_get_cm_event, || device.wait(awaited, timeout, 1, attempt, sleep))
}

impl<T: Connectable> AsFd for Connection<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl<T: Connectable> fmt::Debug for Connection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection of {:?} to {}", self.qp, self.peer)
    }
}

impl<T: Connectable> Drop for Connection<T> {
    fn drop(&mut self) {
        self.end();
        let _ = self.qp.device().hca().cm_destroy(self.id);
    }
}

mod listener;
mod params;

pub use crate::error::Rejection;

pub use listener::{ConnectionRequest, Listener};
pub use params::{Connectable, ConnectionEvent, ConnectionParams, PrivateData};

/// Ports for connections whose own port the program does not name.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;

/// Numbers of bytes that fit a request, an acceptance and a rejection.
pub(crate) mod room {
    use pumice_transport::mad::{IP_HEADER_BYTES, Rej, Rep, Req};

    pub(crate) const REQUEST_BYTES: usize = Req::PRIVATE_DATA_BYTES - IP_HEADER_BYTES;
    pub(crate) const ACCEPTANCE_BYTES: usize = Rep::PRIVATE_DATA_BYTES;
    pub(crate) const REJECTION_BYTES: usize = Rej::PRIVATE_DATA_BYTES;
}
