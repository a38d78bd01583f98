//! Sending of a call's data in pieces, as room becomes available.

use std::ffi::c_int;
use std::sync::Arc;

use super::stream::{Locked, StreamConnection, StreamSocket, StreamState, WaitLimit, turn};
use crate::platform::cancellation::RESTART;
use crate::platform::errno::Errno;
use crate::rsocket::parts::buffers::Buffers;
use crate::rsocket::protocol::remote_buffer::Mapping;
use crate::rsocket::protocol::sending::{FIRST_PIECE, Transfer};
use crate::rsocket::protocol::stream::StreamProtocol;

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
    pub(crate) fn send_pieces<P: Pieces>(
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
}

/// Returns the number of bytes moved before an error, if there were any. The end of an attempt is no error:
/// the call continues.
pub(crate) fn some_or(done: usize, errno: Errno) -> Result<usize, Errno> {
    if done > 0 && errno != RESTART { Ok(done) } else { Err(errno) }
}
