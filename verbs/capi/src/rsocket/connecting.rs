//! From a new socket to a connected one: bind, listen, accept, connect, and what the connection manager says.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use super::attendant::attend_to;
use super::identifier::{Heard, Identifier};
use super::link::Link;
use super::options::Options;
use super::protocol::greeting::Greeting;
use super::protocol::stream::{End, Stream};
use super::stream_socket::{Connection, Locked, Patience, Stage, State, StreamSocket, ring, turn};
use super::table::{self, Socket};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::log::explain;
use crate::rdma_cm::shared::shared;

/// Sockets that wait to be accepted, at most, whatever the program asks for.
const MOST_WAITING: usize = 4096;
/// Ways to be told what the connection manager's options are.
const TYPE_OF_SERVICE: c_int = 0;
const REUSE_ADDRESS: c_int = 1;
const ONE_FAMILY: c_int = 2;

/// The queue pair of an identifier with its stream.
fn connection(id: &Arc<Identifier>, options: &Options) -> Result<(Arc<Link>, Stream), Errno> {
    let sizes = options.sizes(shared()?.hca().limits().max_qp_wr);
    let link = Arc::new(Link::new(id, &sizes, options.inline, options.maps)?);
    let stream = Stream::new(&sizes, link.incoming.place());
    Ok((link, stream))
}

fn greeting(said: &[u8]) -> Result<Greeting, Errno> {
    Greeting::parse(said).map_err(|error| Errno(libc::EPROTO).because(|| format!("rsocket: {error}")))
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
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.id.set_option(REUSE_ADDRESS, &value),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => self.id.set_option(ONE_FAMILY, &value),
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.id.set_option(TYPE_OF_SERVICE, &(value as u8))
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
        attend_to(self.descriptor())
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
    /// EINPROGRESS: it does not block. EISCONN, EALREADY. ECONNREFUSED, ETIMEDOUT, ENETUNREACH and others: the
    /// connection came to nothing. RESTART: the peer is `asked`, and has not answered yet.
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

    /// Asks a peer for a connection; false if there is one that the program had not heard of.
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
        let hello = link.greeting().emit();
        state.connection = Some(Connection::new(link, stream));
        self.id.connect(&hello)?;
        state.stage = Stage::Connecting;
        drop(state);
        attend_to(self.descriptor())?;
        Ok(true)
    }

    /// Before data goes: the connection is there.
    ///
    /// # Errors
    /// ENOTCONN: it is not, and nobody has asked for it. EAGAIN: not yet. What connecting ended with.
    pub(crate) fn connected<'a>(
        &'a self,
        state: Locked<'a>,
        patience: Patience,
    ) -> Result<Locked<'a>, Errno> {
        let mut state = match state.stage {
            Stage::Connecting => self.wait(state, patience, |state| state.stage != Stage::Connecting)?,
            _ => state,
        };
        match state.stage {
            Stage::Connected => Ok(state),
            Stage::Failed => Err(StreamSocket::take_error(&mut state).unwrap_or(Errno(libc::ENOTCONN))),
            Stage::Closed => Err(Errno(libc::EBADF)),
            _ => Err(Errno(libc::ENOTCONN)),
        }
    }

    /// Listens to the connection manager until it has nothing more to say.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub(crate) fn attend(self: &Arc<StreamSocket>) -> Result<(), Errno> {
        let _turn = turn(&self.attending);
        while let Some(heard) = self.id.next()? {
            match heard {
                Heard::Request(id, said) => self.request(id, &said),
                Heard::Established(said) => self.established(&said),
                Heard::Failed(errno) => self.failed(errno),
                Heard::Disconnected => self.disconnected(),
                Heard::Other => {}
            }
        }
        Ok(())
    }

    /// Somebody wants to connect.
    fn request(self: &Arc<StreamSocket>, id: Identifier, said: &[u8]) {
        let (options, room) = {
            let state = self.lock();
            (state.options.inherited(), state.coming.len() + state.waiting.len() < MOST_WAITING)
        };
        let listener = Arc::downgrade(self);
        let socket = Arc::new(StreamSocket::of(id, self.family, options, Stage::Accepting, listener));
        let answered = if room { socket.answer_request(said) } else { Err(Errno(libc::ENOBUFS)) };
        if let Err(Errno(errno)) = answered {
            explain(|| {
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
            if attend_to(socket.descriptor()).is_err() {
                socket.failed(libc::ENOMEM);
            }
        }
    }

    fn answer_request(&self, said: &[u8]) -> Result<(), Errno> {
        let mut state = self.lock();
        let greeting = greeting(said)?;
        let (link, mut stream) = connection(&self.id, &state.options)?;
        stream.begin(&greeting);
        let hello = link.greeting().emit();
        state.connection = Some(Connection::new(link, stream));
        self.id.accept(&hello)
    }

    fn established(self: &Arc<StreamSocket>, said: &[u8]) {
        let mut state = self.lock();
        match state.stage {
            Stage::Connecting => {
                let greeting = match greeting(said) {
                    Ok(greeting) => greeting,
                    Err(Errno(errno)) => {
                        drop(state);
                        self.id.disconnect();
                        return self.failed(errno);
                    }
                };
                if let Some(connection) = &mut state.connection {
                    connection.stream.begin(&greeting);
                }
                state.stage = Stage::Connected;
                self.progress(&mut state);
                ring(&state);
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
                ring(&listening);
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
            connection.stream.handle_end(End::Failed(errno));
        }
        ring(&state);
        drop(state);
        if was == Stage::Accepting {
            // Nobody knows of it yet.
            if let Some(listener) = Weak::upgrade(&self.listener) {
                listener.lock().coming.retain(|socket| !Arc::ptr_eq(socket, self));
            }
            super::attendant::forget(self.descriptor());
            table::remove(self.descriptor());
        }
    }

    /// The peer is gone. What it has sent before is here already.
    fn disconnected(self: &Arc<StreamSocket>) {
        if self.lock().stage == Stage::Accepting {
            return self.failed(libc::ECONNABORTED);
        }
        let mut state = self.lock();
        self.progress(&mut state);
        if let Some(connection) = &mut state.connection {
            connection.stream.handle_end(End::Parted);
        }
        ring(&state);
        drop(state);
        // Whoever waits in the device is woken by requests that come back.
        self.id.disconnect();
    }
}
