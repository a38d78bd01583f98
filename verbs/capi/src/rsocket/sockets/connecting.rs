//! From a new stream to a connected one and to its end: bind, listen, accept, connect, close, and the events
//! of the connection manager.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::stream::{Connection, Patience, Stage, State, StreamSocket, turn, wake_all};
use super::table::{self, Socket};
use super::transfer::LINGERING;
use crate::ground::errno::{Errno, INVALID};
use crate::ground::log::log_warning;
use crate::rdma_cm::constants::{ONE_FAMILY, REUSE_ADDRESS, TYPE_OF_SERVICE};
use crate::rsocket::parts::event_thread::{Handlers, unwatch, watch};
use crate::rsocket::parts::identifier::{Identifier, Notice};
use crate::rsocket::parts::link::Link;
use crate::rsocket::parts::options::Options;
use crate::rsocket::protocol::connection_data::ConnectionData;
use crate::rsocket::protocol::stream::{Stream, StreamEnd};

/// Sockets that wait to be accepted, at most, also if the program asks for more.
const MOST_WAITING: usize = 4096;

/// What the thread that waits for events of the connection manager does for streams.
pub(crate) const HANDLERS: Handlers = Handlers { ready: take_events, probe: probe_peers };

fn take_events(descriptor: RawFd) -> Result<(), Errno> {
    match table::find(descriptor) {
        Some(Socket::Stream(stream)) => stream.take_events(),
        _ => Err(Errno(libc::EBADF)),
    }
}

fn probe_peers() -> bool {
    table::streams().iter().fold(false, |again, (_, stream)| stream.probe_peer() | again)
}

/// The queue pair of an identifier with its stream.
fn connection(id: &Arc<Identifier>, options: &Options) -> Result<(Arc<Link>, Stream), Errno> {
    let sizes = options.sizes(id.id().shared()?.hca().limits().max_qp_wr);
    let link = Arc::new(Link::new(id, &sizes, options.inline, options.maps)?);
    let stream = Stream::new(&sizes, link.incoming.remote_buffer());
    Ok((link, stream))
}

fn connection_data(private_data: &[u8]) -> Result<ConnectionData, Errno> {
    ConnectionData::parse(private_data)
        .map_err(|error| Errno(libc::EPROTO).because(|| format!("rsocket: {error}")))
}

impl StreamSocket {
    /// # Errors
    /// Those of `rdma_bind_addr`.
    pub(crate) fn bind(&self, to: SocketAddr) -> Result<(), Errno> {
        let mut state = self.lock();
        if state.stage != Stage::New || state.bound {
            return Err(INVALID.because(|| "this socket has an address already".to_owned()));
        }
        self.id.bind(to)?;
        state.bound = true;
        Ok(())
    }

    /// An option that the connection manager must know as well.
    pub(crate) fn tell_option(&self, level: c_int, option: c_int, value: c_int) {
        // It has an address already, or is connected: then it is too late, and no harm.
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
    /// EINVAL: it is connected. Those of `rdma_listen`.
    pub(crate) fn listen(&self, backlog: c_int) -> Result<(), Errno> {
        let mut state = self.lock();
        match state.stage {
            Stage::Listening => return Ok(()),
            Stage::New => {}
            _ => return Err(INVALID),
        }
        self.id.listen(backlog)?;
        state.stage = Stage::Listening;
        drop(state);
        watch(self.descriptor(), HANDLERS)
    }

    /// The next connection: its descriptor and the peer's address.
    ///
    /// # Errors
    /// EINVAL: it does not listen. EAGAIN, EINTR.
    pub(crate) fn accept(&self, descriptor_flags: c_int) -> Result<(RawFd, Option<SocketAddr>), Errno> {
        let state = self.lock();
        if state.stage != Stage::Listening {
            return Err(INVALID.because(|| "only a socket that listens accepts".to_owned()));
        }
        let patience = Patience::of(&state.options, 0, state.options.receive_limit);
        let ready = |state: &mut State| !state.waiting.is_empty() || state.stage != Stage::Listening;
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
    /// EINPROGRESS: it does not block. EISCONN, EALREADY. ECONNREFUSED, ETIMEDOUT, ENETUNREACH and others:
    /// the connection came to nothing. RESTART: the peer is `asked`, and has not answered yet.
    pub(crate) fn connect(self: &Arc<StreamSocket>, peer: SocketAddr, asked: &mut bool) -> Result<(), Errno> {
        if !*asked && !self.ask(peer)? {
            return Ok(());
        }
        *asked = true;
        let state = self.lock();
        let patience = Patience::of(&state.options, 0, state.options.send_limit);
        let waited = self.wait(state, patience, |state| state.stage != Stage::Connecting);
        let mut state = match waited {
            Ok(state) => state,
            Err(Errno(libc::EAGAIN)) => return Err(Errno(libc::EINPROGRESS)),
            Err(errno) => return Err(errno),
        };
        state.told = true;
        StreamSocket::take_error(&mut state).map_or(Ok(()), Err)
    }

    /// Asks a peer for a connection; false if there is one that the program did not know of.
    fn ask(self: &Arc<StreamSocket>, peer: SocketAddr) -> Result<bool, Errno> {
        let mut state = self.lock();
        match state.stage {
            Stage::New => {}
            Stage::Connecting => return Err(Errno(libc::EALREADY)),
            Stage::Connected | Stage::Failed if !state.told => {
                state.told = true;
                return StreamSocket::take_error(&mut state).map_or(Ok(false), Err);
            }
            Stage::Connected => return Err(Errno(libc::EISCONN)),
            Stage::Failed => return Err(Errno(libc::ECONNABORTED)),
            Stage::Listening | Stage::Accepting | Stage::Closed => return Err(INVALID),
        }
        self.id.resolve(peer)?;
        let (link, stream) = connection(&self.id, &state.options)?;
        let data = link.connection_data().emit();
        state.connection = Some(Connection::new(link, stream));
        self.id.connect(&data)?;
        state.stage = Stage::Connecting;
        drop(state);
        watch(self.descriptor(), HANDLERS)?;
        Ok(true)
    }

    /// Takes the events of the connection manager that have come.
    ///
    /// # Errors
    /// The device cannot be opened.
    fn take_events(self: &Arc<StreamSocket>) -> Result<(), Errno> {
        let _turn = turn(&self.taking_events);
        while let Some(notice) = self.id.next()? {
            match notice {
                Notice::Request(id, data) => self.request(id, &data),
                Notice::Established(data) => self.established(&data),
                Notice::Failed(errno) => self.failed(errno),
                Notice::Disconnected => self.disconnected(),
                Notice::Other => {}
            }
        }
        Ok(())
    }

    /// A peer wants to connect.
    fn request(self: &Arc<StreamSocket>, id: Identifier, private_data: &[u8]) {
        let (options, room) = {
            let state = self.lock();
            (state.options.inherited(), state.coming.len() + state.waiting.len() < MOST_WAITING)
        };
        let listener = Arc::downgrade(self);
        let socket = Arc::new(StreamSocket::of(id, self.family, options, Stage::Accepting, listener));
        let answered = if room { socket.answer_request(private_data) } else { Err(Errno(libc::ENOBUFS)) };
        if let Err(Errno(errno)) = answered {
            log_warning(|| {
                format!("rsocket: a connection was turned down: {}", std::io::Error::from_raw_os_error(errno))
            });
            socket.id.reject();
            return;
        }
        let mut state = self.lock();
        if state.stage == Stage::Listening {
            state.coming.push(Arc::clone(&socket));
            drop(state);
            table::insert(socket.descriptor(), Socket::Stream(Arc::clone(&socket)));
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
        state.connection = Some(Connection::new(link, stream));
        self.id.accept(&data)
    }

    fn established(self: &Arc<StreamSocket>, private_data: &[u8]) {
        let mut state = self.lock();
        match state.stage {
            Stage::Connecting => {
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
                state.stage = Stage::Connected;
                self.progress(&mut state);
                wake_all(&state);
            }
            Stage::Accepting => {
                state.stage = Stage::Connected;
                state.told = true;
                self.progress(&mut state);
                drop(state);
                let Some(listener) = Weak::upgrade(&self.listener) else { return };
                let mut listening = listener.lock();
                listening.coming.retain(|socket| !Arc::ptr_eq(socket, self));
                listening.waiting.push_back(Arc::clone(self));
                wake_all(&listening);
            }
            _ => {}
        }
    }

    /// Connecting has come to nothing.
    fn failed(self: &Arc<StreamSocket>, errno: c_int) {
        let mut state = self.lock();
        let was = state.stage;
        if !matches!(was, Stage::Connecting | Stage::Accepting) {
            return;
        }
        state.stage = Stage::Failed;
        state.error = errno;
        if let Some(connection) = &mut state.connection {
            connection.stream.handle_end(StreamEnd::Failed(errno));
        }
        wake_all(&state);
        drop(state);
        if was == Stage::Accepting {
            // The program does not know of it yet.
            if let Some(listener) = Weak::upgrade(&self.listener) {
                listener.lock().coming.retain(|socket| !Arc::ptr_eq(socket, self));
            }
            unwatch(self.descriptor());
            table::remove(self.descriptor());
        }
    }

    /// The peer has disconnected. What it has sent before is here already.
    fn disconnected(self: &Arc<StreamSocket>) {
        if self.lock().stage == Stage::Accepting {
            return self.failed(libc::ECONNABORTED);
        }
        let mut state = self.lock();
        self.progress(&mut state);
        if let Some(connection) = &mut state.connection {
            connection.stream.handle_end(StreamEnd::Parted);
        }
        wake_all(&state);
        drop(state);
        // A thread that waits in the device is woken by the requests that complete with errors.
        self.id.disconnect();
    }

    /// The program closes it: what was sent arrives, unless SO_LINGER says otherwise.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        let (waiting, coming) = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.coming));
        let lingering = match state.options.linger {
            Some(seconds) => Duration::from_secs(seconds.into()),
            None => LINGERING,
        };
        if state.stage == Stage::Connected && !lingering.is_zero() {
            drop(state);
            self.finish(lingering);
            state = self.lock();
        }
        let had_peer = matches!(state.stage, Stage::Connecting | Stage::Accepting | Stage::Connected);
        state.stage = Stage::Closed;
        if let Some(connection) = &mut state.connection {
            connection.stream.handle_end(StreamEnd::Parted);
        }
        wake_all(&state);
        drop(state);
        for socket in waiting.into_iter().chain(coming) {
            table::remove(socket.descriptor());
            socket.close();
        }
        unwatch(self.descriptor());
        if had_peer {
            // Threads that still wait in calls of this socket come back.
            self.id.disconnect();
        }
    }
}
