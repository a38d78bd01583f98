//! Data in both directions, and the end of it.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use pumice_device::outside;

use super::pieces::{Next, Pieces, some_or};
use super::stream::{Connection, Locked, Patience, Stage, State, StreamSocket, turn, wake_all};
use crate::ground::errno::{Errno, INVALID};
use crate::rsocket::parts::buffers::Buffers;
use crate::rsocket::protocol::stream::{How, Stream, StreamEnd};

/// How long closing waits for what was sent to arrive. The transport gives a dead peer up before.
pub(crate) const LINGERING: Duration = Duration::from_secs(30);

fn can_read(state: &mut State) -> bool {
    state.connection.as_ref().is_none_or(|connection| connection.stream.can_read())
}

impl StreamSocket {
    /// Sends as much as there is, or, if it must not wait, as there is room for: how many bytes.
    ///
    /// # Errors
    /// EAGAIN, EINTR: nothing was sent. ENOTCONN. EPIPE: this side has given up sending. ECONNRESET,
    /// ETIMEDOUT: the connection is broken.
    pub(crate) fn send(&self, buffers: &mut Buffers<'_>, flags: c_int) -> Result<usize, Errno> {
        self.send_pieces(Data, buffers, flags)
    }

    /// Receives what is there, and waits for it if there is nothing: how many bytes, 0 at the end.
    ///
    /// # Errors
    /// EAGAIN, EINTR: nothing has come. ENOTCONN. ECONNRESET, ETIMEDOUT: the connection is broken.
    pub(crate) fn receive(&self, buffers: &mut Buffers<'_>, flags: c_int) -> Result<usize, Errno> {
        let _turn = turn(&self.receiving);
        let mut state = self.lock();
        let patience = Patience::of(&state.options, flags, state.options.receive_limit);
        state = self.connected(state, patience)?;
        let mut received = 0;
        while buffers.left() > 0 {
            if available(&state) == 0 {
                state = match self.wait(state, patience, can_read) {
                    Ok(state) => state,
                    Err(errno) => return some_or(received, errno),
                };
            }
            if available(&state) == 0 {
                // The end, or the error that it came from.
                return StreamSocket::take_error(&mut state)
                    .map_or(Ok(received), |errno| some_or(received, errno));
            }
            let Some(connection) = &mut state.connection else { break };
            let piece = connection.stream.peek(buffers.left());
            let link = Arc::clone(&connection.link);
            drop(state);
            // The peer does not write this part of the ring until it is granted anew.
            link.incoming.runs(&piece).into_iter().for_each(|run| buffers.scatter(run));
            state = self.lock();
            received += piece.length() as usize;
            if flags & libc::MSG_PEEK != 0 {
                break;
            }
            if let Some(connection) = &mut state.connection {
                connection.stream.consume(piece.length());
            }
            self.answer(&mut state);
            if flags & libc::MSG_WAITALL == 0 {
                break;
            }
        }
        Ok(received)
    }

    /// # Errors
    /// ENOTCONN. EINVAL: no such direction. EINTR.
    pub(crate) fn shutdown(&self, how: c_int) -> Result<(), Errno> {
        let how = match how {
            libc::SHUT_RD => How::Read,
            libc::SHUT_WR => How::Write,
            libc::SHUT_RDWR => How::Both,
            _ => return Err(INVALID),
        };
        let state = self.lock();
        let (stage, patience) = (state.stage, Patience::Until(outside::now() + LINGERING));
        if stage == Stage::Listening && how != How::Write {
            return Ok(());
        }
        if stage != Stage::Connected {
            return Err(Errno(libc::ENOTCONN));
        }
        self.part(state, how, patience)
    }

    /// Gives up directions, and tells the peer.
    fn part<'a>(&'a self, mut state: Locked<'a>, how: How, patience: Patience) -> Result<(), Errno> {
        let Some(connection) = &mut state.connection else { return Err(Errno(libc::ENOTCONN)) };
        connection.stream.shut(how);
        wake_all(&state);
        drop(state);
        // A thread that is sending notices, and stops.
        let _turn = turn(&self.sending);
        let mut state = self.lock();
        if let Some(connection) = &mut state.connection {
            connection.stream.say_so();
        }
        self.answer(&mut state);
        let said = |state: &mut State| {
            state.connection.as_ref().is_none_or(|connection| connection.stream.is_said())
        };
        self.wait(state, patience, said).map(drop)
    }

    /// Tells the peer that nothing more comes, and waits until everything has arrived.
    pub(crate) fn finish(&self, at_most: Duration) {
        let patience = Patience::Until(outside::now() + at_most);
        let idle = |state: &mut State| {
            state
                .connection
                .as_ref()
                .is_none_or(|connection| connection.stream.end().is_some() || connection.stream.is_idle())
        };
        // A signal does not keep data from arriving.
        let mut parted = self.part(self.lock(), How::Both, patience);
        while parted == Err(Errno(libc::EINTR)) {
            parted = self.wait(self.lock(), patience, idle).map(drop);
        }
        while let Err(Errno(libc::EINTR)) = self.wait(self.lock(), patience, idle).map(drop) {}
    }

    /// As [`StreamSocket::finish`] at the exit of the program, unless another thread holds a lock of the
    /// socket.
    pub(crate) fn finish_unless_busy(&self, at_most: Duration) {
        let free = self.try_lock().is_some_and(|state| state.stage == Stage::Connected);
        if free && self.sending.try_lock().is_ok() {
            self.finish(at_most);
        }
    }
}

/// Data for the peer's ring.
struct Data;

impl Pieces for Data {
    fn is_possible(stream: &Stream) -> bool {
        stream.sending.is_possible()
    }

    fn next(&mut self, Connection { link, stream, .. }: &mut Connection, left: usize, longest: u32) -> Next {
        stream.sending.data(left, longest, link.inline).map_or(Next::NotNow, Next::Piece)
    }

    fn broken(state: &mut State) -> Errno {
        let ended = state.connection.as_ref().and_then(|connection| connection.stream.end());
        let otherwise = if ended.is_some() { libc::ECONNRESET } else { libc::EPIPE };
        StreamSocket::take_error(state).unwrap_or(Errno(otherwise))
    }
}

fn available(state: &State) -> u32 {
    state.connection.as_ref().map_or(0, |connection| connection.stream.available())
}

/// Asks what a socket is ready for, without waiting.
pub(crate) fn readiness(socket: &StreamSocket, events: i16) -> i16 {
    let mut state = socket.lock();
    socket.progress(&mut state);
    readiness_of(&state, events)
}

/// What a locked socket is ready for.
pub(crate) fn readiness_of(state: &State, events: i16) -> i16 {
    const READS: i16 = libc::POLLIN | libc::POLLRDNORM;
    const WRITES: i16 = libc::POLLOUT | libc::POLLWRNORM;
    match (state.stage, &state.connection) {
        (Stage::Listening, _) if !state.waiting.is_empty() => events & READS,
        (Stage::Failed, _) => events & (READS | WRITES) | libc::POLLERR | libc::POLLHUP,
        (Stage::Connected, Some(connection)) => {
            let stream = &connection.stream;
            let mut ready = 0;
            if stream.can_read() {
                ready |= READS;
            }
            if stream.can_write() || !stream.writes() {
                ready |= WRITES;
            }
            if !stream.reads() {
                ready |= libc::POLLRDHUP;
            }
            ready &= events;
            // What has arrived is read first: many programs look at nothing else once they see this.
            if stream.available() == 0 {
                match stream.end() {
                    Some(StreamEnd::Failed(_)) => ready |= libc::POLLERR | libc::POLLHUP,
                    Some(StreamEnd::Parted) => ready |= libc::POLLHUP,
                    None => {}
                }
            }
            ready
        }
        (Stage::Closed, _) => libc::POLLNVAL,
        _ => 0,
    }
}
