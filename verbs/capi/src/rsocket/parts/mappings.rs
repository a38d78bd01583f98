//! Mappings of a socket: memory of the program that the peer writes to directly, by offset.

use crate::rdma_cm::id::objects::Registration;
use crate::rsocket::protocol::remote_buffer::Mapping;

/// A registered buffer of the program's.
pub(crate) struct Mapped {
    /// Address and length of the program's buffer.
    pub(crate) buffer: (usize, usize),
    /// The buffer is registered as long as this is there.
    pub(crate) _registration: Registration,
    /// What the peer's table is told, and in which entry; none, if the mapping is for this side only.
    pub(crate) entry: Option<(u16, Mapping)>,
    pub(crate) told: bool,
}

/// The mappings of a socket.
#[derive(Default)]
pub(crate) struct Mappings(pub(crate) Vec<Mapped>);

impl Mappings {
    /// An entry of the peer's table that is not in use.
    pub(crate) fn free_entry(&self, entries: u16) -> Option<u16> {
        let taken = |index| self.0.iter().any(|map| map.entry.is_some_and(|(entry, _)| entry == index));
        (0..entries).find(|index| !taken(*index))
    }

    /// The first mapping that the peer does not know yet.
    pub(crate) fn untold(&self) -> Option<(u16, Mapping)> {
        self.0.iter().find(|map| !map.told).and_then(|map| map.entry)
    }
}
