//! The protocol of stream rsockets, without I/O: the private data that the sides exchange when the connection
//! is made ([`headers`]), the words that travel as immediate data ([`ring`]), the rules for sending and for
//! received data ([`halves`]), and both together ([`stream`]). Wire-compatible with
//! rdma-core's rsockets, version 1.
//!
//! Each side has a ring for the bytes that it receives and grants the peer one half of it at a time: the
//! first in the private data, the next by writing its address into a table of two entries at the peer. Data
//! is written there, with a word that says its length. Words need receives, so data is limited by credits as
//! well.
//!
//! **Invariant**: no value from a peer is used without a bound: a word that takes more than was granted ends
//! the connection, and what the peer says of its own memory is only ever sent back to it.

pub(crate) mod halves;
pub(crate) mod headers;
pub(crate) mod ring;
pub(crate) mod stream;
#[cfg(test)]
mod tests;

/// Number of entries of the table that a peer writes the halves of its ring into.
pub(crate) const TABLE_ENTRIES: usize = 2;
/// Number of send requests that are reserved for words of the protocol itself.
pub(crate) const CONTROL_REQUESTS: u32 = 4;
/// Smallest room in the ring in bytes with which data is sent, so that streams are not split into tiny
/// messages.
pub(crate) const MIN_ROOM: u32 = 2048;

/// A breach of the protocol by a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolViolation {
    /// The peer sent more bytes than it was given room for.
    TooManyBytes,
    /// The peer sent more messages than it had credits.
    TooManyMessages,
}
