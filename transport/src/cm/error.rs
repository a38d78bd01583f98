//! What went wrong: for the caller, and for the counters of ignored MADs.

use core::fmt;

use super::State;
use crate::mad::{CommId, MadError, PrivateDataTooLong, ServiceId};

/// Why a call was refused. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CmError {
    /// There is no such connection, or it was destroyed.
    UnknownId(CommId),
    /// There is no such listener.
    UnknownListener,
    /// The connection is not in a state for it.
    WrongState {
        /// Which connection.
        id: CommId,
        /// The state it is in.
        state: State,
        /// What the call is for.
        wanted: &'static str,
    },
    /// Too much private data or additional information.
    PrivateData(PrivateDataTooLong),
    /// A field does not hold the value.
    OutOfRange {
        /// Which.
        field: &'static str,
        /// The value.
        value: u32,
        /// The largest that fits.
        limit: u32,
    },
    /// No REQ asks for this transport.
    Transport,
    /// This process listens there already.
    ServiceInUse(ServiceId),
    /// No room for another connection.
    TooManyConnections {
        /// How many there may be.
        limit: usize,
    },
    /// No room for another listener.
    TooManyListeners {
        /// How many there may be.
        limit: usize,
    },
}

impl From<PrivateDataTooLong> for CmError {
    fn from(error: PrivateDataTooLong) -> CmError {
        CmError::PrivateData(error)
    }
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CmError::UnknownId(id) => {
                write!(f, "there is no connection {id}: it was destroyed, or never made")
            }
            CmError::UnknownListener => write!(f, "there is no such listener: it was closed"),
            CmError::WrongState { id, state, wanted } => {
                write!(f, "connection {id} is in state {state:?}, but this is for {wanted}")
            }
            CmError::PrivateData(error) => error.fmt(f),
            CmError::OutOfRange { field, value, limit } => {
                write!(f, "{field} {value} does not fit: it can be at most {limit}")
            }
            CmError::Transport => write!(f, "only RC, UC and XRC connections can be asked for"),
            CmError::ServiceInUse(service) => write!(f, "{service} is taken: listen at another"),
            CmError::TooManyConnections { limit } => {
                write!(f, "there are {limit} connections already: destroy one first")
            }
            CmError::TooManyListeners { limit } => {
                write!(f, "there are {limit} listeners already: close one first")
            }
        }
    }
}

impl core::error::Error for CmError {}

/// Why a MAD had no effect on any connection. Some are answered all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// It is no CM message.
    Mad(MadError),
    /// It names no connection of ours, or its sender is not the other end.
    UnknownId,
    /// The connection is in another state.
    WrongState(State),
    /// It was there before.
    Duplicate,
    /// No process listens for the service.
    NoListener,
    /// The request makes no sense, or cannot be served.
    Refused,
    /// The other end of the queue pair that it names is still connected.
    Stale,
    /// The listener's backlog or the table of connections is full.
    Full,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ignored::Mad(error) => error.fmt(f),
            Ignored::UnknownId => write!(f, "it belongs to no connection of this process"),
            Ignored::WrongState(state) => write!(f, "it means nothing to a connection in state {state:?}"),
            Ignored::Duplicate => write!(f, "it was received before"),
            Ignored::NoListener => write!(f, "no process listens for the service"),
            Ignored::Refused => write!(f, "the request cannot be served"),
            Ignored::Stale => write!(f, "it names a queue pair that is still connected"),
            Ignored::Full => write!(f, "there is no room for another request"),
        }
    }
}

impl core::error::Error for Ignored {}
