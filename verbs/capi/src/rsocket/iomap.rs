//! Mappings: memory of the program that the peer writes to directly, by offset.

use std::ffi::{c_int, c_void};

use super::pieces::{Next, Pieces};
use super::protocol::place::{Mapping, Place};
use super::protocol::stream::Stream;
use super::region::{Buffers, LOCAL, WRITTEN_BY_PEERS};
use super::stream_socket::{Connection, Locked, Patience, State, StreamSocket};
use crate::calls::memory::{ibv_dereg_mr, ibv_reg_mr};
use crate::ground::abi::ibv_mr;
use crate::ground::arguments::Lasting;
use crate::ground::errno::{Errno, INVALID, errno};
use crate::rdma_cm::shared::shared;

/// A registered buffer of the program's.
struct Mapped {
    buffer: usize,
    length: usize,
    mr: *mut ibv_mr,
    /// What the peer's table is told, and in which entry; none, if it is for this side only.
    entry: Option<(u16, Mapping)>,
    told: bool,
}

// SAFETY: the pointer is to an object of our own.
unsafe impl Send for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        ibv_dereg_mr(self.mr);
    }
}

/// The mappings of a socket.
#[derive(Default)]
pub(crate) struct Maps(Vec<Mapped>);

impl Maps {
    /// An entry of the peer's table that is not in use.
    fn free_entry(&self, entries: u16) -> Option<u16> {
        let taken = |index| self.0.iter().any(|map| map.entry.is_some_and(|(entry, _)| entry == index));
        (0..entries).find(|index| !taken(*index))
    }
}

impl StreamSocket {
    /// Maps a buffer; with PROT_WRITE for the peer to write to. The offset by which the peer knows it: its address,
    /// if that is -1.
    ///
    /// # Errors
    /// EINVAL: other rights, or a buffer longer than mappings can be. ENOTCONN. ENOMEM: the peer's table is full.
    /// EFAULT and others: the buffer cannot be registered.
    pub(crate) fn map(
        &self,
        buffer: *mut c_void,
        length: usize,
        rights: c_int,
        offset: i64,
    ) -> Result<i64, Errno> {
        if rights & !libc::PROT_WRITE != 0 || u32::try_from(length).is_err() {
            return Err(INVALID);
        }
        let state = self.connected(self.lock(), Patience::None)?;
        let entries = state.connection.as_ref().map_or(0, |connection| connection.stream.maps());
        drop(state);
        let for_peer = rights & libc::PROT_WRITE != 0;
        let mut maps = self.maps.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let index = if for_peer {
            let full = || "the peer has no room for another mapping: its RDMA_IOMAPSIZE is in use".to_owned();
            Some(maps.free_entry(entries).ok_or_else(|| Errno(libc::ENOMEM).because(full))?)
        } else {
            None
        };
        let access = if for_peer { WRITTEN_BY_PEERS } else { LOCAL };
        // SAFETY: the shared domain; the program keeps the buffer mapped.
        let mr = unsafe { ibv_reg_mr(shared()?.pd, Lasting::new(buffer), length, access) };
        if mr.is_null() {
            return Err(Errno(errno()));
        }
        let address = buffer.expose_provenance() as u64;
        let offset = if offset == -1 { address as i64 } else { offset };
        // SAFETY: a live region.
        let place = Place { address, key: unsafe { (*mr).rkey }, length: length as u32 };
        let entry = index.map(|index| (index, Mapping { offset: offset as u64, place }));
        maps.0.push(Mapped { buffer: buffer.addr(), length, mr, entry, told: !for_peer });
        Ok(offset)
    }

    /// # Errors
    /// EINVAL: it is not mapped.
    pub(crate) fn unmap(&self, buffer: *mut c_void, length: usize) -> Result<(), Errno> {
        let mut maps = self.maps.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let found = maps.0.iter().position(|map| (map.buffer, map.length) == (buffer.addr(), length));
        maps.0.remove(found.ok_or(INVALID)?);
        Ok(())
    }

    /// Tells the peer of mappings that it does not know yet.
    pub(crate) fn send_mappings<'a>(
        &'a self,
        mut state: Locked<'a>,
        patience: Patience,
    ) -> Result<Locked<'a>, Errno> {
        loop {
            let next = {
                let maps = self.maps.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                maps.0.iter().find(|map| !map.told).and_then(|map| map.entry)
            };
            let Some((index, mapping)) = next else { return Ok(state) };
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
            let mut maps = self.maps.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for map in maps.0.iter_mut().filter(|map| map.entry == Some((index, mapping))) {
                map.told = true;
            }
        }
    }

    /// Writes to the peer's mappings from an offset on: how many bytes, less than there are where the mappings end.
    ///
    /// # Errors
    /// As [`StreamSocket::send`].
    ///
    /// # Safety
    /// The buffers are the program's.
    pub(crate) unsafe fn write_mapped(
        &self,
        buffers: &mut Buffers<'_>,
        offset: u64,
        flags: c_int,
    ) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.send_pieces(ToMappings { offset }, buffers, flags) }
    }
}

/// Data for the peer's mappings, from an offset on.
struct ToMappings {
    offset: u64,
}

impl Pieces for ToMappings {
    fn is_possible(stream: &Stream) -> bool {
        stream.sending.direct_is_possible()
    }

    fn next(&mut self, Connection { link, stream, .. }: &mut Connection, left: usize, longest: u32) -> Next {
        let mut mappings = (0..u16::MAX).map_while(|index| link.mapping(index));
        let Some(to) = mappings.find_map(|map| map.find(self.offset)) else { return Next::End };
        let Some(transfer) = stream.sending.direct(left, to, longest, link.inline) else {
            return Next::NotNow;
        };
        self.offset = self.offset.wrapping_add(transfer.length.into());
        Next::Piece(transfer)
    }

    fn broken(_: &mut State) -> Errno {
        Errno(libc::ECONNRESET)
    }
}
