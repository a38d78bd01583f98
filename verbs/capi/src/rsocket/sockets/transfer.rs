//! Transfer of data in both directions, and its end.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use pumice_device::outside;

use super::pieces::{NextPiece, Pieces, some_or};
use super::stream::{
    Locked, StreamConnection, StreamSocket, StreamStage, StreamState, WaitLimit, turn, wake_all,
};
use crate::platform::errno::{Errno, INVALID};
use crate::rsocket::parts::buffers::Buffers;
use crate::rsocket::protocol::stream::{ShutdownHow, StreamEnd, StreamProtocol};

/// Longest time that closing waits for sent data to arrive. The transport gives up a dead peer before.
pub(crate) const LINGERING: Duration = Duration::from_secs(30);

fn can_read(state: &mut StreamState) -> bool {
    state.connection.as_ref().is_none_or(|connection| connection.stream.can_read())
}

impl StreamSocket {
    /// Sends all bytes, or, if it must not wait, as many as there is room for; returns their number.
    ///
    /// # Errors
    /// Fails with EAGAIN or EINTR if no byte was sent, with ENOTCONN, with EPIPE if this side has shut down
    /// sending, and with ECONNRESET or ETIMEDOUT if the connection is broken.
    pub(crate) fn send(&self, buffers: &mut Buffers<'_>, flags: c_int) -> Result<usize, Errno> {
        self.send_pieces(DataPieces, buffers, flags)
    }

    /// Receives the data that is there, and waits for it if there is none; returns the number of bytes, 0 at
    /// the end.
    ///
    /// # Errors
    /// Fails with EAGAIN or EINTR if no data has come, with ENOTCONN, and with ECONNRESET or ETIMEDOUT if the
    /// connection is broken.
    pub(crate) fn receive(&self, buffers: &mut Buffers<'_>, flags: c_int) -> Result<usize, Errno> {
        let _turn = turn(&self.receiving);
        let mut state = self.lock();
        let patience = WaitLimit::of(&state.options, flags, state.options.receive_limit);
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
                // This is the end, or the error that caused it.
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
    /// Fails with ENOTCONN, with EINVAL if there is no such direction, and with EINTR.
    pub(crate) fn shutdown(&self, how: c_int) -> Result<(), Errno> {
        let how = match how {
            libc::SHUT_RD => ShutdownHow::Read,
            libc::SHUT_WR => ShutdownHow::Write,
            libc::SHUT_RDWR => ShutdownHow::Both,
            _ => return Err(INVALID),
        };
        let state = self.lock();
        let (stage, patience) = (state.stage, WaitLimit::Until(outside::now() + LINGERING));
        if stage == StreamStage::Listening && how != ShutdownHow::Write {
            return Ok(());
        }
        if stage != StreamStage::Connected {
            return Err(Errno(libc::ENOTCONN));
        }
        self.part(state, how, patience)
    }

    /// Shuts down directions, and notifies the peer.
    fn part<'a>(&'a self, mut state: Locked<'a>, how: ShutdownHow, patience: WaitLimit) -> Result<(), Errno> {
        let Some(connection) = &mut state.connection else { return Err(Errno(libc::ENOTCONN)) };
        connection.stream.shut(how);
        wake_all(&state);
        drop(state);
        // A thread that is sending notices this, and stops.
        let _turn = turn(&self.sending);
        let mut state = self.lock();
        if let Some(connection) = &mut state.connection {
            connection.stream.queue_shutdown_word();
        }
        self.answer(&mut state);
        let is_notified = |state: &mut StreamState| {
            state.connection.as_ref().is_none_or(|connection| connection.stream.shutdown_is_sent())
        };
        self.wait(state, patience, is_notified).map(drop)
    }

    /// Notifies the peer that no more data comes, and waits until all data has arrived.
    pub(crate) fn finish(&self, max_wait: Duration) {
        let patience = WaitLimit::Until(outside::now() + max_wait);
        let idle = |state: &mut StreamState| {
            state
                .connection
                .as_ref()
                .is_none_or(|connection| connection.stream.end().is_some() || connection.stream.is_idle())
        };
        // A signal does not keep data from arriving.
        let mut parted = self.part(self.lock(), ShutdownHow::Both, patience);
        while parted == Err(Errno(libc::EINTR)) {
            parted = self.wait(self.lock(), patience, idle).map(drop);
        }
        while let Err(Errno(libc::EINTR)) = self.wait(self.lock(), patience, idle).map(drop) {}
    }

    /// Finishes as [`StreamSocket::finish`] does, at the exit of the program, unless another thread holds a
    /// lock of the socket.
    pub(crate) fn finish_unless_busy(&self, max_wait: Duration) {
        let free = self.try_lock().is_some_and(|state| state.stage == StreamStage::Connected);
        if free && self.sending.try_lock().is_ok() {
            self.finish(max_wait);
        }
    }
}

/// The pieces of data for the peer's ring.
struct DataPieces;

impl Pieces for DataPieces {
    fn is_possible(stream: &StreamProtocol) -> bool {
        stream.sending.is_possible()
    }

    fn next(
        &mut self,
        StreamConnection { link, stream, .. }: &mut StreamConnection,
        left: usize,
        longest: u32,
    ) -> NextPiece {
        stream.sending.data(left, longest, link.inline).map_or(NextPiece::NotNow, NextPiece::RingPiece)
    }

    fn broken(state: &mut StreamState) -> Errno {
        let ended = state.connection.as_ref().and_then(|connection| connection.stream.end());
        let otherwise = if ended.is_some() { libc::ECONNRESET } else { libc::EPIPE };
        StreamSocket::take_error(state).unwrap_or(Errno(otherwise))
    }
}

fn available(state: &StreamState) -> u32 {
    state.connection.as_ref().map_or(0, |connection| connection.stream.available())
}

/// Returns the events that a socket is ready for, without waiting.
pub(crate) fn readiness(socket: &StreamSocket, events: i16) -> i16 {
    let mut state = socket.lock();
    socket.progress(&mut state);
    readiness_of(&state, events)
}

/// Returns the events that a locked socket is ready for.
pub(crate) fn readiness_of(state: &StreamState, events: i16) -> i16 {
    const READS: i16 = libc::POLLIN | libc::POLLRDNORM;
    const WRITES: i16 = libc::POLLOUT | libc::POLLWRNORM;
    match (state.stage, &state.connection) {
        (StreamStage::Listening, _) if !state.waiting.is_empty() => events & READS,
        (StreamStage::Failed, _) => events & (READS | WRITES) | libc::POLLERR | libc::POLLHUP,
        (StreamStage::Connected, Some(connection)) => {
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
            // Received data is read first: many programs read no more once they see these events.
            if stream.available() == 0 {
                match stream.end() {
                    Some(StreamEnd::Failed(_)) => ready |= libc::POLLERR | libc::POLLHUP,
                    Some(StreamEnd::Graceful) => ready |= libc::POLLHUP,
                    None => {}
                }
            }
            ready
        }
        (StreamStage::Closed, _) => libc::POLLNVAL,
        _ => 0,
    }
}
