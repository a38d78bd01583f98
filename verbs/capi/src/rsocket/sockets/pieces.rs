//! Sending what a call has, piece by piece, as there is room.

use std::ffi::c_int;
use std::sync::Arc;

use super::stream::{Connection, Locked, Patience, State, StreamSocket, turn};
use crate::ground::cancellation::RESTART;
use crate::ground::errno::Errno;
use crate::rsocket::parts::buffers::Buffers;
use crate::rsocket::protocol::remote_buffer::Mapping;
use crate::rsocket::protocol::sending::{FIRST_PIECE, Transfer};
use crate::rsocket::protocol::stream::Stream;

/// What comes next of a call's pieces.
pub(crate) enum Next {
    Piece(Transfer),
    NotNow,
    /// Nothing: there is no room for it.
    End,
}

/// How a call's pieces are made, and where they go.
pub(crate) trait Pieces {
    /// Whether there is room for one.
    fn is_possible(stream: &Stream) -> bool;

    /// The next of `left` bytes, of at most `longest`.
    fn next(&mut self, connection: &mut Connection, left: usize, longest: u32) -> Next;

    /// Why there can be none any more.
    fn broken(state: &mut State) -> Errno;
}

fn is_ready<P: Pieces>(state: &mut State) -> bool {
    state
        .connection
        .as_ref()
        .is_none_or(|connection| P::is_possible(&connection.stream) || !connection.stream.writes())
}

fn writes(state: &State) -> bool {
    state.connection.as_ref().is_some_and(|connection| connection.stream.writes())
}

impl StreamSocket {
    /// Sends as much as there is, or, if it must not wait, as there is room for: how many bytes.
    ///
    /// # Errors
    /// EAGAIN, EINTR: nothing was sent. ENOTCONN. [`Pieces::broken`].
    pub(crate) fn send_pieces<P: Pieces>(
        &self,
        mut pieces: P,
        buffers: &mut Buffers<'_>,
        flags: c_int,
    ) -> Result<usize, Errno> {
        let _turn = turn(&self.sending);
        let mut state = self.lock();
        let patience = Patience::of(&state.options, flags, state.options.send_limit);
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
                Next::Piece(transfer) => transfer,
                Next::NotNow => continue,
                Next::End => break,
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

    /// Tells the peer of mappings that it does not know yet.
    fn send_mappings<'a>(&'a self, mut state: Locked<'a>, patience: Patience) -> Result<Locked<'a>, Errno> {
        loop {
            let Some((index, mapping)) = self.maps().untold() else { return Ok(state) };
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
                // The caller finds out why.
                _ => return Ok(state),
            };
            if posted.is_err() {
                self.fail(&mut state, libc::ECONNRESET);
                return Ok(state);
            }
            let mut maps = self.maps();
            for map in maps.0.iter_mut().filter(|map| map.entry == Some((index, mapping))) {
                map.told = true;
            }
        }
    }
}

/// What was done before an error came, if something was. The end of an attempt is no error: the call goes on.
pub(crate) fn some_or(done: usize, errno: Errno) -> Result<usize, Errno> {
    if done > 0 && errno != RESTART { Ok(done) } else { Err(errno) }
}
