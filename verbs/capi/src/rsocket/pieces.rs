//! Sending what a call has, piece by piece, as there is room.

use std::ffi::c_int;
use std::sync::Arc;

use super::protocol::sending::{FIRST_PIECE, Transfer};
use super::protocol::stream::Stream;
use super::region::Buffers;
use super::stream_socket::{Connection, Patience, State, StreamSocket, turn};
use crate::ground::cancellation::RESTART;
use crate::ground::errno::Errno;

/// What comes next of a call's pieces.
pub(crate) enum Next {
    Piece(Transfer),
    NotNow,
    /// Nothing: there is no place for it.
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
    ///
    /// # Safety
    /// The buffers are the program's.
    pub(crate) unsafe fn send_pieces<P: Pieces>(
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
            // SAFETY: the caller's promise.
            let posted = unsafe { link.post(&transfer, buffers) };
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
}

/// What was done before an error came, if something was. The end of an attempt is no error: the call goes on.
pub(crate) fn some_or(done: usize, errno: Errno) -> Result<usize, Errno> {
    if done > 0 && errno != RESTART { Ok(done) } else { Err(errno) }
}
