//! The protocol of stream rsockets, without I/O: what each side tells the other when the connection is made
//! ([`connection_data`]), the words that travel as immediate data ([`word`]), what may be sent ([`sending`])
//! and what has arrived ([`receiving`]), and both together ([`stream`]). Wire-compatible with rdma-core's
//! rsockets, version 1.
//!
//! Each side has a ring for the bytes that it receives and shows the peer one half of it at a time: the first
//! in the private data, the next by writing its address into a table of two entries at the peer. Data is
//! written there, with a word that says how much it was. Words need receives, so data is limited by credits
//! as well.
//!
//! **Invariant**: nothing that a peer says is used without a bound: a word that takes more than was granted
//! ends the connection, and what the peer says of its own memory is only ever sent back to it.

pub(crate) mod connection_data;
pub(crate) mod datagram;
pub(crate) mod receiving;
pub(crate) mod remote_buffer;
pub(crate) mod ring;
pub(crate) mod sending;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod word;

/// Entries of the table that a peer writes the halves of its ring into.
pub(crate) const TABLE_ENTRIES: usize = 2;
/// Send requests that are kept for words of the protocol itself.
pub(crate) const CONTROL_REQUESTS: u32 = 4;
/// Nothing is sent before the ring has this much room, so that streams do not fall into crumbs.
pub(crate) const LEAST_ROOM: u32 = 2048;

/// A peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    /// More bytes than it was given room for.
    TooManyBytes,
    /// More messages than it had credits.
    TooManyMessages,
}
