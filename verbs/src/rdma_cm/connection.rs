//! One connection: asked for or accepted, established, disconnected.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::gsi::CmChannel;
use pumice_device::port::wait_readable;
use pumice_transport::cm::{AcceptParams, CmPath, ConnectParams, Event, MadRoute, QpParameters, ack_timeout};
use pumice_transport::mad::{CommId, IpHeader, PortSpace, Req, ServiceId};
use pumice_transport::types::Gid;
use pumice_transport::wire::Psn;

use super::private_data::{value, written};
use super::{Connectable, ConnectionEvent, ConnectionParams, EPHEMERAL, PrivateData, Rejection, room};
use crate::device::Device;
use crate::device::calls::called;
use crate::ground::error::{Result, VerbsError};
use crate::queue_pair::Endpoint;
use crate::queue_pair::QueuePair;

/// A connection of a queue pair, made by address. Dropping it disconnects, and takes the queue pair to ERR.
/// It uses one file descriptor, which is readable while there are events ([`AsFd`]).
pub struct Connection<T: Connectable> {
    qp: QueuePair<T>,
    id: CommId,
    channel: Arc<CmChannel>,
    peer: SocketAddr,
    params: ConnectionParams,
    /// Where the peer's PSNs begin, as this side said it.
    starting_psn: Psn,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    established: bool,
    over: bool,
    /// What the peer said last.
    private_data: Vec<u8>,
}

impl<T: Connectable> Connection<T> {
    /// Asks the program that listens at `peer` to connect to a queue pair, from that queue pair's own
    /// address. Does not wait: [`Connection::established`] does, and brings the queue pair to RTS. Receives
    /// should be posted before that.
    ///
    /// # Errors
    /// `Invalid`: the addresses are of different IP versions. `Connection`: a parameter is out of range, or
    /// there are too many connections. `Refused`: no file descriptor is to be had.
    pub fn connect<P: PrivateData>(
        qp: &QueuePair<T>,
        peer: SocketAddr,
        params: &ConnectionParams,
        private_data: &P,
    ) -> Result<Connection<T>> {
        const { assert!(P::LEN <= room::REQUEST_BYTES, "a request has room for 56 bytes of private data") };
        called(qp.device(), Call::rdma_connect, || Connection::ask(qp, peer, params, &written(private_data)))
    }

    fn ask(
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
        let said = [&header[..], private_data].concat();
        let route = MadRoute {
            local: local.gid,
            remote: Gid::from(peer.ip()),
            traffic_class: params.traffic_class,
            hop_limit: HOP_LIMIT,
            flow_label: 0,
        };
        let service_id = ServiceId::rdma_cm(PortSpace::Tcp, peer.port());
        let ask = ConnectParams {
            transport: T::TRANSPORT,
            responder_resources: params.responder_resources,
            initiator_depth: params.initiator_depth,
            retry_count: params.retry_count,
            rnr_retry_count: params.rnr_retry_count,
            remote_response_timeout: params.response_timeout,
            local_response_timeout: params.response_timeout,
            max_cm_retries: params.max_cm_retries,
            private_data: &said,
            ..ConnectParams::new(service_id, CmPath::new(route, local.mtu), qp.qpn(), starting_psn)
        };
        let channel = channel()?;
        let id = device.hca().cm_connect(&ask, &channel).map_err(VerbsError::connection)?;
        Ok(Connection::new(qp, id, channel, peer, params, starting_psn))
    }

    /// Accepts a request: the queue pair is in RTS before the peer hears of it.
    pub(super) fn accept(
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
        let agreed = connection.agreed()?;
        connection.ready(&agreed)?;
        let accept = AcceptParams {
            responder_resources: agreed.max_dest_rd_atomic.min(params.responder_resources),
            initiator_depth: agreed.max_rd_atomic.min(params.initiator_depth),
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

    /// The queue pair.
    pub fn queue_pair(&self) -> &QueuePair<T> {
        &self.qp
    }

    /// Where the peer is: its address, and the port that was asked for or, at the side that was asked, the
    /// one that the peer named as its own.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether requests can be posted.
    pub fn is_established(&self) -> bool {
        let progress = self.progress();
        progress.established && !progress.over
    }

    /// Waits until both sides are there. At the side that connected, what the other one said when it accepted
    /// is in [`Connection::private_data`] then.
    ///
    /// # Errors
    /// `Rejected`, `Unreachable`, `Disconnected`; `TimedOut`: not yet, it can be called again. `Refused`: the
    /// queue pair cannot be connected; the peer is told.
    pub fn established(&self, timeout: Duration) -> Result<()> {
        if let Some(known) = self.whether_established() {
            return known;
        }
        let event = self.next("establishment of the connection", timeout, is_about_establishment)?;
        self.established_by(event)
    }

    /// As [`Connection::established`], without waiting; `None`: not yet.
    pub fn try_established(&self) -> Option<Result<()>> {
        self.whether_established().or_else(|| {
            let event = self.try_next(is_about_establishment)?;
            Some(event.and_then(|event| self.established_by(event)))
        })
    }

    /// What is known without an event.
    fn whether_established(&self) -> Option<Result<()>> {
        let progress = self.progress();
        if progress.over {
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

    /// Waits until the connection is over. Either side may end it, in any way.
    ///
    /// # Errors
    /// `TimedOut`.
    pub fn disconnected(&self, timeout: Duration) -> Result<()> {
        if self.progress().over {
            return Ok(());
        }
        self.next("disconnection", timeout, is_about_the_end).map(drop)
    }

    /// As [`Connection::disconnected`], without waiting; `None`: not yet.
    pub fn try_disconnected(&self) -> Option<Result<()>> {
        if self.progress().over {
            return Some(Ok(()));
        }
        Some(self.try_next(is_about_the_end)?.map(drop))
    }

    /// Waits for the next event of the connection.
    ///
    /// # Errors
    /// `TimedOut`. `Refused`: the peer accepted, but the queue pair cannot be connected; the peer is told.
    pub fn event(&self, timeout: Duration) -> Result<ConnectionEvent> {
        self.next("event of the connection", timeout, |_| true)
    }

    /// The oldest event of the connection, if one waits. No rule of a fault plan is about it: those about
    /// `rdma_get_cm_event` are about the calls that wait.
    ///
    /// # Errors
    /// As [`Connection::event`].
    pub fn try_event(&self) -> Option<Result<ConnectionEvent>> {
        self.try_next(|_| true)
    }

    /// What the peer said when it accepted.
    ///
    /// # Errors
    /// `Invalid`: it is not of this type, or nothing was said yet.
    pub fn private_data<P: PrivateData>(&self) -> Result<P> {
        value(&self.progress().private_data)
    }

    /// Disconnects: everything posted is flushed, and the peer is told. [`Connection::disconnected`] waits
    /// for its confirmation, for which no caller has to wait. Once it is over this does nothing.
    ///
    /// # Errors
    /// `Connection`: it was never established.
    pub fn disconnect(&self) -> Result<()> {
        if self.progress().over {
            return Ok(());
        }
        called(self.qp.device(), Call::rdma_disconnect, || {
            self.qp.give_up()?;
            self.qp.device().hca().cm_disconnect(self.id, &[]).map_err(VerbsError::connection)
        })
    }

    /// The next event that is wanted; others have their effects.
    fn next(
        &self,
        awaited: &'static str,
        timeout: Duration,
        wanted: impl Fn(&ConnectionEvent) -> bool,
    ) -> Result<ConnectionEvent> {
        wait(self.qp.device(), &self.channel, awaited, timeout, |event| {
            self.heard(event).filter(|event| event.as_ref().map_or(true, &wanted))
        })?
    }

    /// The same without waiting.
    fn try_next(&self, wanted: impl Fn(&ConnectionEvent) -> bool) -> Option<Result<ConnectionEvent>> {
        take(self.qp.device(), &self.channel, &mut |event| {
            self.heard(event).filter(|event| event.as_ref().map_or(true, &wanted))
        })
    }

    /// An event's effects, and what it means to the program.
    fn heard(&self, event: Event) -> Option<Result<ConnectionEvent>> {
        let told = match event {
            Event::ConnectResponse { reply, .. } => {
                let ready = self.agreed().and_then(|agreed| self.ready(&agreed));
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
            Event::Established { .. } => ConnectionEvent::Established,
            Event::Rejected { rejection, .. } => {
                self.end();
                let private_data = rejection.private_data.to_vec();
                ConnectionEvent::Rejected(Rejection { reason: rejection.reason, private_data })
            }
            Event::Unreachable { .. } => {
                self.end();
                ConnectionEvent::Unreachable
            }
            Event::DisconnectRequest { .. } => {
                self.end();
                // The peer waits for it, or no longer needs it.
                let _ = self.qp.device().hca().cm_disconnect(self.id, &[]);
                ConnectionEvent::Disconnected
            }
            Event::Disconnected { .. } => {
                self.end();
                ConnectionEvent::Disconnected
            }
            Event::TimewaitExit { .. } => ConnectionEvent::TimewaitExit,
            _ => return None,
        };
        if told == ConnectionEvent::Established {
            self.progress().established = true;
        }
        Some(Ok(told))
    }

    /// It is over: what was posted is flushed.
    fn end(&self) {
        self.progress().over = true;
        // One that is in ERR, or in RESET, needs nothing.
        let _ = self.qp.give_up();
    }

    /// What both sides agreed on.
    fn agreed(&self) -> Result<QpParameters> {
        let known = self.qp.device().hca().cm_qp_parameters(self.id);
        known.ok_or(VerbsError::Disconnected { peer: self.peer })
    }

    /// Brings the queue pair to RTS.
    fn ready(&self, agreed: &QpParameters) -> Result<()> {
        let mut agreed = *agreed;
        let limit = self.qp.device().limits().max_rd_atomic;
        agreed.max_rd_atomic = agreed.max_rd_atomic.min(limit);
        agreed.max_dest_rd_atomic = agreed.max_dest_rd_atomic.min(limit);
        if agreed.timeout == 0 {
            // Of a peer that waits for ever: this side does not.
            agreed.timeout = ack_timeout(0, PACKET_LIFE_TIME);
        }
        let psn = self.starting_psn.value();
        let peer = Endpoint::new(agreed.remote, agreed.dest_qpn, psn, agreed.path_mtu);
        let options = T::options(&agreed, &self.params);
        self.qp.connect_from(&peer, agreed.sq_psn.value(), &options)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// TTL of requests: routed, as in Linux.
const HOP_LIMIT: u8 = 64;
/// As Linux assumes it.
const PACKET_LIFE_TIME: u8 = 16;

/// A channel for the events of one connection or listener.
pub(super) fn channel() -> Result<Arc<CmChannel>> {
    let channel = CmChannel::new()
        .map_err(|error| VerbsError::Refused { object: "connection", error: error.into() })?;
    Ok(Arc::new(channel))
}

fn is_about_establishment(event: &ConnectionEvent) -> bool {
    !matches!(event, ConnectionEvent::TimewaitExit)
}

fn is_about_the_end(event: &ConnectionEvent) -> bool {
    !matches!(event, ConnectionEvent::Established | ConnectionEvent::TimewaitExit)
}

/// The first event that waits and means something.
pub(super) fn take<R>(
    device: &Device,
    channel: &CmChannel,
    meaning: &mut impl FnMut(Event) -> Option<R>,
) -> Option<R> {
    std::iter::from_fn(|| device.hca().cm_event(channel)).find_map(meaning)
}

/// Waits for an event that means something: `rdma_get_cm_event` to rules of fault plans.
pub(super) fn wait<R>(
    device: &Device,
    channel: &CmChannel,
    awaited: &'static str,
    timeout: Duration,
    mut meaning: impl FnMut(Event) -> Option<R>,
) -> Result<R> {
    let attempt = || take(device, channel, &mut meaning);
    let descriptor = channel.as_fd().as_raw_fd();
    // A failing poll(2) turns this into polling, which still ends in time.
    let sleep = |left| drop(wait_readable(&[descriptor], None, Some(left)));
    called(device, Call::rdma_get_cm_event, || device.wait(awaited, timeout, 1, attempt, sleep))
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
