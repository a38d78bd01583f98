//! Transfer of data in both directions, in pieces and by mappings, and its end.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use pumice_device::outside;

use super::{Locked, StreamConnection, StreamSocket, StreamStage, StreamState, WaitLimit, turn, wake_all};
use crate::platform::threads::RESTART;
use crate::platform::{Errno, INVALID};
use crate::rdma_cm::id::objects::Registration;
use crate::rsocket::parts::buffers::{Buffers, DataPointer, LOCAL, MappedBuffer, WRITTEN_BY_PEERS};
use crate::rsocket::protocol::halves::{FIRST_PIECE, Transfer};
use crate::rsocket::protocol::ring::{Mapping, RemoteBuffer};
use crate::rsocket::protocol::stream::{ShutdownHow, StreamEnd, StreamProtocol};

/// Next piece of a call's data.
pub(crate) enum NextPiece {
    RingPiece(Transfer),
    NotNow,
    /// No piece: there is no room for it.
    End,
}

/// A source of a call's pieces, with their destination.
pub(crate) trait Pieces {
    /// Reports whether there is room for one.
    fn is_possible(stream: &StreamProtocol) -> bool;

    /// Returns the next piece of `left` bytes, of at most `longest`.
    fn next(&mut self, connection: &mut StreamConnection, left: usize, longest: u32) -> NextPiece;

    /// Returns the reason why there can be no more.
    fn broken(state: &mut StreamState) -> Errno;
}

fn is_ready<P: Pieces>(state: &mut StreamState) -> bool {
    state
        .connection
        .as_ref()
        .is_none_or(|connection| P::is_possible(&connection.stream) || !connection.stream.writes())
}

fn writes(state: &StreamState) -> bool {
    state.connection.as_ref().is_some_and(|connection| connection.stream.writes())
}

impl StreamSocket {
    /// Sends all bytes, or, if it must not wait, as many as there is room for; returns their number.
    ///
    /// # Errors
    /// Fails with EAGAIN or EINTR if no byte was sent, with ENOTCONN, and as [`Pieces::broken`].
    fn send_pieces<P: Pieces>(
        &self,
        mut pieces: P,
        buffers: &mut Buffers<'_>,
        flags: c_int,
    ) -> Result<usize, Errno> {
        let _turn = turn(&self.sending);
        let mut state = self.lock();
        let patience = WaitLimit::of(&state.options, flags, state.options.send_limit);
        state = self.connected(state, patience)?;
        state = self.send_mappings(state, patience)?;
        let (mut sent, mut longest) = (0, FIRST_PIECE);
        while buffers.left() > 0 {
            if !writes(&state) || !is_ready::<P>(&mut state) {
                state = match self.wait(state, patience, is_ready::<P>) {
                    Ok(state) => state,
                    Err(errno) => return some_or(sent, errno),
                };
            }
            let connection = match &mut state.connection {
                Some(connection) if connection.stream.writes() => connection,
                _ => return some_or(sent, P::broken(&mut state)),
            };
            let link = Arc::clone(&connection.link);
            let transfer = match pieces.next(connection, buffers.left(), longest) {
                NextPiece::RingPiece(transfer) => transfer,
                NextPiece::NotNow => continue,
                NextPiece::End => break,
            };
            drop(state);
            let posted = link.post(&transfer, buffers);
            state = self.lock();
            if posted.is_err() {
                self.fail(&mut state, libc::ECONNRESET);
                continue;
            }
            sent += transfer.length as usize;
            longest = longest.saturating_mul(2);
        }
        Ok(sent)
    }

    /// Sends the peer the mappings that it does not have yet.
    fn send_mappings<'a>(&'a self, mut state: Locked<'a>, patience: WaitLimit) -> Result<Locked<'a>, Errno> {
        loop {
            let Some((index, mapping)) = self.maps().first_unsent() else { return Ok(state) };
            let mut made = None;
            state = self.wait(state, patience, |state| {
                let Some(connection) = &mut state.connection else { return true };
                if !connection.stream.writes() {
                    return true;
                }
                // Entries always fit into the request.
                made = connection.stream.map(index, &mapping, Mapping::LEN as u32);
                made.is_some()
            })?;
            let posted = match (&made, &state.connection) {
                (Some((transfer, bytes)), Some(connection)) => connection.link.post_bytes(transfer, bytes),
                // The caller determines the reason.
                _ => return Ok(state),
            };
            if posted.is_err() {
                self.fail(&mut state, libc::ECONNRESET);
                return Ok(state);
            }
            let mut maps = self.maps();
            for map in maps.0.iter_mut().filter(|map| map.entry == Some((index, mapping))) {
                map.is_sent = true;
            }
        }
    }

    /// Maps a buffer; with PROT_WRITE for the peer to write to. Returns the offset by which the peer knows
    /// it: its address, if `offset` is -1.
    ///
    /// # Errors
    /// Fails with EINVAL for other rights, or a buffer longer than mappings can be; with ENOTCONN; with
    /// ENOMEM if the peer's table is full; with EFAULT and others if the buffer cannot be registered.
    pub(crate) fn map(
        &self,
        buffer: DataPointer,
        length: usize,
        rights: c_int,
        offset: i64,
    ) -> Result<i64, Errno> {
        if rights & !libc::PROT_WRITE != 0 || u32::try_from(length).is_err() {
            return Err(INVALID);
        }
        let state = self.connected(self.lock(), WaitLimit::None)?;
        let entries = state.connection.as_ref().map_or(0, |connection| connection.stream.maps());
        drop(state);
        let for_peer = rights & libc::PROT_WRITE != 0;
        let mut maps = self.maps();
        let index = if for_peer {
            let full = || "the peer has no room for another mapping: its RDMA_IOMAPSIZE is in use".to_owned();
            Some(maps.free_entry(entries).ok_or_else(|| Errno(libc::ENOMEM).because(full))?)
        } else {
            None
        };
        let access = if for_peer { WRITTEN_BY_PEERS } else { LOCAL };
        let pd = self.id.id().shared()?.pd();
        // SAFETY: the program does not unmap the buffer before `riounmap` or `rclose`, and gives it to the
        // peer to write.
        let registration = unsafe { Registration::new(pd, buffer.as_ptr(), length, access) }?;
        let address = buffer.as_ptr().expose_provenance() as u64;
        let offset = if offset == -1 { address as i64 } else { offset };
        let remote = RemoteBuffer { address, key: registration.rkey, length: length as u32 };
        let entry = index.map(|index| (index, Mapping { offset: offset as u64, buffer: remote }));
        let buffer = (buffer.as_ptr().addr(), length);
        maps.0.push(MappedBuffer { buffer, _registration: registration, entry, is_sent: !for_peer });
        Ok(offset)
    }

    /// # Errors
    /// Fails with EINVAL if it is not mapped.
    pub(crate) fn unmap(&self, buffer: DataPointer, length: usize) -> Result<(), Errno> {
        let mut maps = self.maps();
        let found = maps.0.iter().position(|map| map.buffer == (buffer.as_ptr().addr(), length));
        maps.0.remove(found.ok_or(INVALID)?);
        Ok(())
    }

    /// Writes to the peer's mappings from an offset on; returns the number of bytes, which is smaller where
    /// the mappings end.
    ///
    /// # Errors
    /// Fails as [`StreamSocket::send`].
    pub(crate) fn write_mapped(
        &self,
        buffers: &mut Buffers<'_>,
        offset: u64,
        flags: c_int,
    ) -> Result<usize, Errno> {
        self.send_pieces(ToMappings { offset }, buffers, flags)
    }

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

/// Returns the number of bytes moved before an error, if there were any. The end of an attempt is no error:
/// the call continues.
pub(crate) fn some_or(done: usize, errno: Errno) -> Result<usize, Errno> {
    if done > 0 && errno != RESTART { Ok(done) } else { Err(errno) }
}

/// Data for the peer's mappings, from an offset on.
struct ToMappings {
    offset: u64,
}

impl Pieces for ToMappings {
    fn is_possible(stream: &StreamProtocol) -> bool {
        stream.sending.direct_is_possible()
    }

    fn next(
        &mut self,
        StreamConnection { link, stream, .. }: &mut StreamConnection,
        left: usize,
        longest: u32,
    ) -> NextPiece {
        let mut mappings = (0..u16::MAX).map_while(|index| link.mapping(index));
        let Some(to) = mappings.find_map(|map| map.find(self.offset)) else { return NextPiece::End };
        let Some(transfer) = stream.sending.direct(left, to, longest, link.inline) else {
            return NextPiece::NotNow;
        };
        self.offset = self.offset.wrapping_add(transfer.length.into());
        NextPiece::RingPiece(transfer)
    }

    fn broken(_: &mut StreamState) -> Errno {
        Errno(libc::ECONNRESET)
    }
}

/// Longest time that closing waits for sent data to arrive. The transport gives up a dead peer before.
pub(crate) const LINGERING: Duration = Duration::from_secs(30);

fn can_read(state: &mut StreamState) -> bool {
    state.connection.as_ref().is_none_or(|connection| connection.stream.can_read())
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
