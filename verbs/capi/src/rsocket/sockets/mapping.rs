//! Mapping of the program's memory for the peer, and writing to the peer's mappings.

use std::ffi::c_int;

use super::pieces::{NextPiece, Pieces};
use super::stream::{StreamConnection, StreamSocket, StreamState, WaitLimit};
use crate::platform::errno::{Errno, INVALID};
use crate::rdma_cm::id::objects::Registration;
use crate::rsocket::parts::buffers::{Buffers, DataPointer};
use crate::rsocket::parts::mappings::MappedBuffer;
use crate::rsocket::parts::region::{LOCAL, WRITTEN_BY_PEERS};
use crate::rsocket::protocol::remote_buffer::{Mapping, RemoteBuffer};
use crate::rsocket::protocol::stream::StreamProtocol;

impl StreamSocket {
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
