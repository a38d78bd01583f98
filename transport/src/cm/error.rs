//! Errors of the communication manager, for its caller and for the counters of ignored MADs.

use core::fmt;

use super::CmState;
use crate::mad::{CommId, MadError, PrivateDataTooLong, ServiceId};

/// Reason why a call was refused. A refused call changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CmError {
    /// The connection does not exist, or was destroyed.
    UnknownId(CommId),
    /// The listener does not exist.
    UnknownListener,
    /// The connection is not in a state that the call is for.
    WrongState {
        /// Communication id of the connection.
        id: CommId,
        /// State of the connection.
        state: CmState,
        /// Description of the state that the call is for.
        wanted: &'static str,
    },
    /// There is too much private data or additional information.
    PrivateData(PrivateDataTooLong),
    /// A value is too large for its field.
    OutOfRange {
        /// Name of the field.
        field: &'static str,
        /// Value that was given.
        value: u32,
        /// Largest value that fits.
        limit: u32,
    },
    /// No REQ can ask for this transport.
    Transport,
    /// A listener of this process has this service already.
    ServiceInUse(ServiceId),
    /// The table of connections is full.
    TooManyConnections {
        /// Most connections that there may be.
        limit: usize,
    },
    /// The table of listeners is full.
    TooManyListeners {
        /// Most listeners that there may be.
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

/// Reason why a MAD had no effect on any connection. Some of these MADs are answered nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoredMad {
    /// The MAD is no CM message.
    Mad(MadError),
    /// The MAD names no connection of this process, or its sender is not the other end.
    UnknownId,
    /// The connection is in another state.
    WrongState(CmState),
    /// The message is a duplicate of one that was handled before.
    Duplicate,
    /// No process listens for the service.
    NoListener,
    /// The request is malformed, or cannot be served.
    Refused,
    /// The message claims that a connection is stale whose other end is still connected.
    Stale,
    /// The listener's backlog or the table of connections is full.
    Full,
}

impl fmt::Display for IgnoredMad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IgnoredMad::Mad(error) => error.fmt(f),
            IgnoredMad::UnknownId => write!(f, "it belongs to no connection of this process"),
            IgnoredMad::WrongState(state) => write!(f, "it means nothing to a connection in state {state:?}"),
            IgnoredMad::Duplicate => write!(f, "it was received before"),
            IgnoredMad::NoListener => write!(f, "no process listens for the service"),
            IgnoredMad::Refused => write!(f, "the request cannot be served"),
            IgnoredMad::Stale => write!(f, "it names a queue pair that is still connected"),
            IgnoredMad::Full => write!(f, "there is no room for another request"),
        }
    }
}

impl core::error::Error for IgnoredMad {}
