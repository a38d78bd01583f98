//! Life of a stream, from its creation to its end: bind, listen, accept, connect, close, and the events of
//! the connection manager.
//!
//! Streams that a program leaves open when it exits: sent data arrives nevertheless, as with TCP, and the
//! peer is notified.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::transfer::LINGERING;
use super::waiting::{Socket, streams};
use super::{StreamConnection, StreamSocket, StreamStage, StreamState, WaitLimit, turn, waiting, wake_all};
use crate::entry::value;
use crate::log::log_warning;
use crate::platform::{Errno, INVALID, current_pid};
use crate::rdma_cm::constants::{ONE_FAMILY, REUSE_ADDRESS, TYPE_OF_SERVICE};
use crate::rsocket::parts::event_thread::{EventHandlers, ReentryGuard, unwatch, watch};
use crate::rsocket::parts::identifier::{CmNotice, SocketId};
use crate::rsocket::parts::link::StreamLink;
use crate::rsocket::parts::options::SocketOptions;
use crate::rsocket::protocol::headers::ConnectionData;
use crate::rsocket::protocol::stream::{StreamEnd, StreamProtocol};

/// Largest number of sockets that wait to be accepted, even if the program asks for more.
const MAX_WAITING: usize = 4096;

/// Callbacks for streams of the thread that waits for events of the connection manager.
pub(crate) const HANDLERS: EventHandlers = EventHandlers { ready: take_events, probe: probe_peers };

fn take_events(descriptor: RawFd) -> Result<(), Errno> {
    match waiting::find(descriptor) {
        Some(Socket::Stream(stream)) => stream.take_events(),
        _ => Err(Errno(libc::EBADF)),
    }
}

fn probe_peers() -> bool {
    waiting::streams().iter().fold(false, |again, (_, stream)| stream.probe_peer() | again)
}

/// Creates the queue pair of an identifier with its stream.
fn connection(
    id: &Arc<SocketId>,
    options: &SocketOptions,
) -> Result<(Arc<StreamLink>, StreamProtocol), Errno> {
    let sizes = options.sizes(id.id().shared()?.hca().limits().max_qp_wr);
    let link = Arc::new(StreamLink::new(id, &sizes, options.inline, options.maps)?);
    let stream = StreamProtocol::new(&sizes, link.incoming.remote_buffer());
    Ok((link, stream))
}

fn connection_data(private_data: &[u8]) -> Result<ConnectionData, Errno> {
    ConnectionData::parse(private_data)
        .map_err(|error| Errno(libc::EPROTO).because(|| format!("rsocket: {error}")))
}

impl StreamSocket {
    /// # Errors
    /// Fails with the errors of `rdma_bind_addr`.
    pub(crate) fn bind(&self, to: SocketAddr) -> Result<(), Errno> {
        let mut state = self.lock();
        if state.stage != StreamStage::New || state.bound {
            return Err(INVALID.because(|| "this socket has an address already".to_owned()));
        }
        self.id.bind(to)?;
        state.bound = true;
        Ok(())
    }

    /// Passes an option to the connection manager, which needs it as well.
    pub(crate) fn set_id_option(&self, level: c_int, option: c_int, value: c_int) {
        // If it has an address already, or is connected, it is too late, which does no harm.
        let _ = match (level, option) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.id.set_option(REUSE_ADDRESS, &value.to_ne_bytes()),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => self.id.set_option(ONE_FAMILY, &value.to_ne_bytes()),
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.id.set_option(TYPE_OF_SERVICE, &[value as u8])
            }
            _ => Ok(()),
        };
    }

    /// # Errors
    /// Fails with EINVAL if it is connected, and with the errors of `rdma_listen`.
    pub(crate) fn listen(&self, backlog: c_int) -> Result<(), Errno> {
        let mut state = self.lock();
        match state.stage {
            StreamStage::Listening => return Ok(()),
            StreamStage::New => {}
            _ => return Err(INVALID),
        }
        self.id.listen(backlog)?;
        state.stage = StreamStage::Listening;
        drop(state);
        watch(self.descriptor(), HANDLERS)
    }

    /// Returns the next connection: its descriptor and the peer's address.
    ///
    /// # Errors
    /// Fails with EINVAL if it does not listen, with EAGAIN, and with EINTR.
    pub(crate) fn accept(&self, descriptor_flags: c_int) -> Result<(RawFd, Option<SocketAddr>), Errno> {
        let state = self.lock();
        if state.stage != StreamStage::Listening {
            return Err(INVALID.because(|| "only a socket that listens accepts".to_owned()));
        }
        let patience = WaitLimit::of(&state.options, 0, state.options.receive_limit);
        let ready =
            |state: &mut StreamState| !state.waiting.is_empty() || state.stage != StreamStage::Listening;
        let mut state = self.wait(state, patience, ready)?;
        let next = state.waiting.pop_front().ok_or(INVALID)?;
        drop(state);
        let flags = descriptor_flags;
        if flags & libc::SOCK_NONBLOCK != 0 {
            next.lock().options.status_flags |= libc::O_NONBLOCK;
        }
        Ok((next.descriptor(), next.addresses().1))
    }

    /// # Errors
    /// Fails with EINPROGRESS if it does not block; with EISCONN or EALREADY; with ECONNREFUSED, ETIMEDOUT,
    /// ENETUNREACH and others if the connection failed; with RESTART if the peer is `requested`, and has not
    /// answered yet.
    pub(crate) fn connect(
        self: &Arc<StreamSocket>,
        peer: SocketAddr,
        requested: &mut bool,
    ) -> Result<(), Errno> {
        if !*requested && !self.send_request(peer)? {
            return Ok(());
        }
        *requested = true;
        let state = self.lock();
        let patience = WaitLimit::of(&state.options, 0, state.options.send_limit);
        let waited = self.wait(state, patience, |state| state.stage != StreamStage::Connecting);
        let mut state = match waited {
            Ok(state) => state,
            Err(Errno(libc::EAGAIN)) => return Err(Errno(libc::EINPROGRESS)),
            Err(errno) => return Err(errno),
        };
        state.is_connect_reported = true;
        StreamSocket::take_error(&mut state).map_or(Ok(()), Err)
    }

    /// Requests a connection from a peer; returns false if there is one that the program did not know of.
    fn send_request(self: &Arc<StreamSocket>, peer: SocketAddr) -> Result<bool, Errno> {
        let mut state = self.lock();
        match state.stage {
            StreamStage::New => {}
            StreamStage::Connecting => return Err(Errno(libc::EALREADY)),
            StreamStage::Connected | StreamStage::Failed if !state.is_connect_reported => {
                state.is_connect_reported = true;
                return StreamSocket::take_error(&mut state).map_or(Ok(false), Err);
            }
            StreamStage::Connected => return Err(Errno(libc::EISCONN)),
            StreamStage::Failed => return Err(Errno(libc::ECONNABORTED)),
            StreamStage::Listening | StreamStage::Accepting | StreamStage::Closed => return Err(INVALID),
        }
        self.id.resolve(peer)?;
        let (link, stream) = connection(&self.id, &state.options)?;
        let data = link.connection_data().emit();
        state.connection = Some(StreamConnection::new(link, stream));
        self.id.connect(&data)?;
        state.stage = StreamStage::Connecting;
        drop(state);
        watch(self.descriptor(), HANDLERS)?;
        Ok(true)
    }

    /// Takes the present events of the connection manager.
    ///
    /// # Errors
    /// Fails if the device cannot be opened.
    fn take_events(self: &Arc<StreamSocket>) -> Result<(), Errno> {
        let _turn = turn(&self.taking_events);
        while let Some(notice) = self.id.next()? {
            match notice {
                CmNotice::Request(id, data) => self.request(id, &data),
                CmNotice::Established(data) => self.established(&data),
                CmNotice::Failed(errno) => self.failed(errno),
                CmNotice::Disconnected => self.disconnected(),
                CmNotice::Other => {}
            }
        }
        Ok(())
    }

    /// Handles a connection request of a peer.
    fn request(self: &Arc<StreamSocket>, id: SocketId, private_data: &[u8]) {
        let (options, room) = {
            let state = self.lock();
            (state.options.inherited(), state.connecting_sockets.len() + state.waiting.len() < MAX_WAITING)
        };
        let listener = Arc::downgrade(self);
        let socket = Arc::new(StreamSocket::of(id, self.family, options, StreamStage::Accepting, listener));
        let answered = if room { socket.answer_request(private_data) } else { Err(Errno(libc::ENOBUFS)) };
        if let Err(Errno(errno)) = answered {
            log_warning(|| {
                format!("rsocket: a connection was turned down: {}", std::io::Error::from_raw_os_error(errno))
            });
            socket.id.reject();
            return;
        }
        let mut state = self.lock();
        if state.stage == StreamStage::Listening {
            state.connecting_sockets.push(Arc::clone(&socket));
            drop(state);
            waiting::insert(socket.descriptor(), Socket::Stream(Arc::clone(&socket)));
            if watch(socket.descriptor(), HANDLERS).is_err() {
                socket.failed(libc::ENOMEM);
            }
        }
    }

    fn answer_request(&self, private_data: &[u8]) -> Result<(), Errno> {
        let mut state = self.lock();
        let peer = connection_data(private_data)?;
        let (link, mut stream) = connection(&self.id, &state.options)?;
        stream.begin(&peer);
        let data = link.connection_data().emit();
        state.connection = Some(StreamConnection::new(link, stream));
        self.id.accept(&data)
    }

    fn established(self: &Arc<StreamSocket>, private_data: &[u8]) {
        let mut state = self.lock();
        match state.stage {
            StreamStage::Connecting => {
                let peer = match connection_data(private_data) {
                    Ok(peer) => peer,
                    Err(Errno(errno)) => {
                        drop(state);
                        self.id.disconnect();
                        return self.failed(errno);
                    }
                };
                if let Some(connection) = &mut state.connection {
                    connection.stream.begin(&peer);
                }
                state.stage = StreamStage::Connected;
                self.progress(&mut state);
                wake_all(&state);
            }
            StreamStage::Accepting => {
                state.stage = StreamStage::Connected;
                state.is_connect_reported = true;
                self.progress(&mut state);
                drop(state);
                let Some(listener) = Weak::upgrade(&self.listener) else { return };
                let mut listening = listener.lock();
                listening.connecting_sockets.retain(|socket| !Arc::ptr_eq(socket, self));
                listening.waiting.push_back(Arc::clone(self));
                wake_all(&listening);
            }
            _ => {}
        }
    }

    /// Handles a connection that failed.
    fn failed(self: &Arc<StreamSocket>, errno: c_int) {
        let mut state = self.lock();
        let was = state.stage;
        if !matches!(was, StreamStage::Connecting | StreamStage::Accepting) {
            return;
        }
        state.stage = StreamStage::Failed;
        state.error = errno;
        if let Some(connection) = &mut state.connection {
            connection.stream.handle_end(StreamEnd::Failed(errno));
        }
        wake_all(&state);
        drop(state);
        if was == StreamStage::Accepting {
            // The program does not know of it yet.
            if let Some(listener) = Weak::upgrade(&self.listener) {
                listener.lock().connecting_sockets.retain(|socket| !Arc::ptr_eq(socket, self));
            }
            unwatch(self.descriptor());
            waiting::remove(self.descriptor());
        }
    }

    /// Handles the peer's disconnection. All that it has sent before is here already.
    fn disconnected(self: &Arc<StreamSocket>) {
        if self.lock().stage == StreamStage::Accepting {
            return self.failed(libc::ECONNABORTED);
        }
        let mut state = self.lock();
        self.progress(&mut state);
        if let Some(connection) = &mut state.connection {
            connection.stream.handle_end(StreamEnd::Graceful);
        }
        wake_all(&state);
        drop(state);
        // A thread that waits in the device is woken by the requests that complete with errors.
        self.id.disconnect();
    }

    /// Closes the socket: sent data arrives, unless SO_LINGER says otherwise.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        let (waiting, connecting_sockets) =
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.connecting_sockets));
        let lingering = match state.options.linger {
            Some(seconds) => Duration::from_secs(seconds.into()),
            None => LINGERING,
        };
        if state.stage == StreamStage::Connected && !lingering.is_zero() {
            drop(state);
            self.finish(lingering);
            state = self.lock();
        }
        let had_peer =
            matches!(state.stage, StreamStage::Connecting | StreamStage::Accepting | StreamStage::Connected);
        state.stage = StreamStage::Closed;
        if let Some(connection) = &mut state.connection {
            connection.stream.handle_end(StreamEnd::Graceful);
        }
        wake_all(&state);
        drop(state);
        for socket in waiting.into_iter().chain(connecting_sockets) {
            waiting::remove(socket.descriptor());
            socket.close();
        }
        unwatch(self.descriptor());
        if had_peer {
            // This wakes threads that still wait in calls of this socket.
            self.id.disconnect();
        }
    }
}

/// Longest time that the exit of a program may take for that.
const MAX_EXIT_TIME: Duration = Duration::from_secs(5);

/// Registers [`finish_all`] to run at exit.
pub(crate) fn once() {
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    // A forked child inherits the registration from its parent, if that made it.
    if PROCESS.swap(current_pid(), Ordering::Relaxed) == 0 {
        // SAFETY: the function lives as long as the process: this object is never unloaded.
        unsafe { libc::atexit(finish_all) };
    }
}

extern "C" fn finish_all() {
    value((), || {
        let _inside = ReentryGuard::enter();
        for (_, stream) in streams() {
            stream.finish_unless_busy(MAX_EXIT_TIME);
        }
    });
}
