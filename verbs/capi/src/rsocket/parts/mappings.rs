//! Mappings of a socket: memory of the program that the peer writes to directly, by offset.

use crate::rdma_cm::id::objects::Registration;
use crate::rsocket::protocol::remote_buffer::Mapping;

/// A registered buffer of the program.
pub(crate) struct MappedBuffer {
    /// Address and length of the program's buffer.
    pub(crate) buffer: (usize, usize),
    /// Registration of the buffer, which ends when this is dropped.
    pub(crate) _registration: Registration,
    /// Entry for the peer's table, and its index; `None` if the mapping is for this side only.
    pub(crate) entry: Option<(u16, Mapping)>,
    pub(crate) is_sent: bool,
}

/// The mappings of a socket.
#[derive(Default)]
pub(crate) struct Mappings(pub(crate) Vec<MappedBuffer>);

impl Mappings {
    /// Returns an entry of the peer's table that is not in use.
    pub(crate) fn free_entry(&self, entries: u16) -> Option<u16> {
        let taken = |index| self.0.iter().any(|map| map.entry.is_some_and(|(entry, _)| entry == index));
        (0..entries).find(|index| !taken(*index))
    }

    /// Returns the first mapping that was not sent to the peer yet.
    pub(crate) fn first_unsent(&self) -> Option<(u16, Mapping)> {
        self.0.iter().find(|map| !map.is_sent).and_then(|map| map.entry)
    }
}
