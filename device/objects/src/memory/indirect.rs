//! Indirect keys: memory keys that lead to pieces of regions, which work requests choose. mlx5 calls them
//! mkeys.
//!
//! What an access by such a key may do is checked twice: by the rights of the key, and for each piece by those
//! of its region, as if a local buffer named it. So a region that goes takes its pieces with it.

use pumice_ground::error::ResourceError;
use pumice_ground::table::Handle;
use pumice_transport::host::{MemoryError, RemoteKey};
use pumice_transport::types::{Access, AtomicOperation, KeyConfiguration, KeyLayout, KeyPiece};

use super::grant::{Backing, Entry, EntryKind, Grant};
use super::region::RegionKeys;
use super::region_table::RegionTable;
use super::MappingCheck;

/// What an indirect key is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndirectKeyInit {
    /// Most pieces of a layout.
    pub most_pieces: u16,
    /// Peers may invalidate it (SEND with invalidate).
    pub is_invalidated_by_peers: bool,
}

/// An indirect key.
#[derive(Debug)]
pub(super) struct IndirectKey {
    init: IndirectKeyInit,
    access: Access,
    layout: Option<Layout>,
    /// It was configured, and not invalidated since.
    is_open: bool,
}

/// Rights that an indirect key may have.
const KEY_ACCESS: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// A layout in which an offset is found quickly.
#[derive(Debug)]
struct Layout {
    pieces: Vec<KeyPiece>,
    /// Where each piece ends in a round.
    ends: Vec<u64>,
    rounds: u32,
    length: u64,
}

/// A part of a piece: the key of its region, the address there, and bytes.
struct Part {
    lkey: u32,
    address: u64,
    length: u64,
}

impl Layout {
    /// None: more bytes than an address can say.
    fn new(layout: &KeyLayout) -> Option<Layout> {
        let mut end = 0_u64;
        let mut ends = Vec::with_capacity(layout.pieces.len());
        for piece in &layout.pieces {
            end = end.checked_add(piece.length.into())?;
            ends.push(end);
        }
        let length = end.checked_mul(layout.rounds.into())?;
        Some(Layout { pieces: layout.pieces.clone(), ends, rounds: layout.rounds, length })
    }

    fn check(&self, offset: u64, length: u64) -> Result<(), MemoryError> {
        let is_inside = offset <= self.length && length <= self.length - offset;
        if is_inside { Ok(()) } else { Err(MemoryError::OutOfRange) }
    }

    /// Calls `visit` for each part that these bytes are. Every part has a byte at least, so that a packet has
    /// as many parts as bytes at most.
    fn for_each_part(
        &self,
        offset: u64,
        length: u64,
        mut visit: impl FnMut(Part) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        self.check(offset, length)?;
        let (mut at, mut left) = (offset, length);
        while left > 0 {
            let part = self.part_at(at, left).ok_or(MemoryError::OutOfRange)?;
            (at, left) = (at + part.length, left - part.length);
            visit(part)?;
        }
        Ok(())
    }

    /// The part that begins at an offset, of `most` bytes at most.
    fn part_at(&self, offset: u64, most: u64) -> Option<Part> {
        let round_bytes = *self.ends.last()?;
        let round = offset.checked_div(round_bytes)?;
        let within = offset - round * round_bytes;
        // Empty pieces end where others begin.
        let index = self.ends.partition_point(|end| *end <= within);
        let (piece, left) = (self.pieces.get(index)?, self.ends.get(index)? - within);
        let stride = u64::from(piece.length) + u64::from(piece.skip);
        let into = round.checked_mul(stride)?.checked_add(u64::from(piece.length) - left)?;
        let address = piece.address.checked_add(into)?;
        Some(Part { lkey: piece.lkey, address, length: left.min(most) })
    }

    /// Calls `visit` for each piece as far as it reaches over all rounds.
    fn for_each_piece(
        &self,
        mut visit: impl FnMut(Part) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        let before_last = u64::from(self.rounds.saturating_sub(1));
        for KeyPiece { address, length, skip, lkey } in self.pieces.iter().copied() {
            let stride = u64::from(length) + u64::from(skip);
            let length = before_last.checked_mul(stride).and_then(|bytes| bytes.checked_add(length.into()));
            visit(Part { lkey, address, length: length.ok_or(MemoryError::OutOfRange)? })?;
        }
        Ok(())
    }
}

impl IndirectKey {
    /// The layout, if it has one and these bytes are inside.
    fn layout(&self, offset: u64, length: u64) -> Result<&Layout, MemoryError> {
        let layout = self.layout.as_ref().ok_or(MemoryError::OutOfRange)?;
        layout.check(offset, length)?;
        Ok(layout)
    }
}

impl RegionTable {
    /// Makes an indirect key, which leads to nothing before a work request configures it.
    ///
    /// # Errors
    /// `NoMemory`: the table is full.
    pub fn make_indirect_key(&mut self, pd: u32, init: IndirectKeyInit) -> Result<RegionKeys, ResourceError> {
        // No access finds anything by the grant: `live` is false, and so the key is looked at here.
        let grant = |key| Grant {
            key,
            pd,
            address: 0,
            iova: 0,
            length: 0,
            access: Access::empty(),
            backing: Backing::OnDemand,
            live: false,
            qpn: None,
            watched: None,
        };
        let key = IndirectKey { init, access: Access::empty(), layout: None, is_open: false };
        let handle =
            self.insert(|number| Entry { grant: grant(number), kind: EntryKind::Indirect(Box::new(key)) })?;
        let key = self.key_of(handle);
        Ok(RegionKeys { lkey: key, rkey: key, handle })
    }

    /// Ends an indirect key, configured or not. Returns its protection domain.
    ///
    /// # Errors
    /// `Invalid`: a stale handle, or one of another object.
    pub fn end_indirect_key(&mut self, handle: Handle) -> Result<u32, ResourceError> {
        let entry = self.entries.require(handle)?;
        if !matches!(entry.kind, EntryKind::Indirect(_)) {
            return Err(ResourceError::invalid("this is no indirect memory key"));
        }
        let pd = entry.grant.pd;
        self.remove(handle);
        Ok(pd)
    }

    /// Executes CONFIGURE_KEY on a queue pair of domain `pd`.
    ///
    /// # Errors
    /// The key is none, or of another domain; it was made for fewer pieces, or cannot have the rights.
    pub fn configure_key(&mut self, pd: u32, to: &KeyConfiguration) -> Result<(), MemoryError> {
        let index = self.index_of(to.key);
        let entry = self.entries.at_mut(index).ok_or(MemoryError::UnknownKey)?;
        let EntryKind::Indirect(key) = &mut entry.kind else { return Err(MemoryError::UnknownKey) };
        if entry.grant.key != to.key {
            return Err(MemoryError::UnknownKey);
        }
        if entry.grant.pd != pd {
            return Err(MemoryError::WrongDomain);
        }
        if to.access.is_some_and(|access| !KEY_ACCESS.contains(access)) {
            return Err(MemoryError::AccessDenied);
        }
        if let Some(layout) = &to.layout {
            if layout.pieces.len() > usize::from(key.init.most_pieces) {
                return Err(MemoryError::OutOfRange);
            }
            key.layout = Some(Layout::new(layout).ok_or(MemoryError::OutOfRange)?);
        }
        key.access = to.access.unwrap_or(key.access);
        key.is_open = true;
        Ok(())
    }

    /// Takes back what an indirect key was configured for, if it is one; none: it is something else.
    pub(super) fn invalidate_indirect(
        &mut self,
        key: RemoteKey,
        for_peer: bool,
    ) -> Option<Result<(), MemoryError>> {
        let index = self.index_of(key.rkey);
        let entry = self.entries.at_mut(index).filter(|entry| entry.grant.key == key.rkey)?;
        let EntryKind::Indirect(indirect) = &mut entry.kind else { return None };
        Some(match () {
            () if !indirect.is_open => Err(MemoryError::UnknownKey),
            () if entry.grant.pd != key.pd => Err(MemoryError::WrongDomain),
            () if for_peer && !indirect.init.is_invalidated_by_peers => Err(MemoryError::AccessDenied),
            () => {
                (indirect.is_open, indirect.layout, indirect.access) = (false, None, Access::empty());
                Ok(())
            }
        })
    }

    /// The indirect key with a number, if it is configured and of the domain.
    ///
    /// # Errors
    /// The key, its domain or a right in `access` is wrong.
    fn indirect(&self, pd: u32, key: u32, access: Access) -> Result<&IndirectKey, MemoryError> {
        let entry = self.by_key(key).ok_or(MemoryError::UnknownKey)?;
        let EntryKind::Indirect(indirect) = &entry.kind else { return Err(MemoryError::UnknownKey) };
        if !indirect.is_open {
            return Err(MemoryError::UnknownKey);
        }
        if entry.grant.pd != pd {
            return Err(MemoryError::WrongDomain);
        }
        if indirect.access.contains(access) { Ok(indirect) } else { Err(MemoryError::AccessDenied) }
    }

    /// Whether a key is an indirect one, configured or not.
    pub(super) fn is_indirect(&self, key: u32) -> bool {
        self.by_key(key).is_some_and(|entry| matches!(entry.kind, EntryKind::Indirect(_)))
    }

    /// What a local access by a key needs of its rights.
    const fn local_access(write: bool) -> Access {
        if write { Access::LOCAL_WRITE } else { Access::empty() }
    }

    /// Copies memory of an indirect key into `out`.
    ///
    /// # Errors
    /// The key, its domain, a right in `access` or the range is wrong, or those of a piece are.
    #[cold]
    pub(super) fn read_indirect(
        &self,
        pd: u32,
        (key, access): (u32, Access),
        offset: u64,
        out: &mut [u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        let layout = self.indirect(pd, key, access)?.layout(offset, out.len() as u64)?;
        let length = out.len() as u64;
        let mut rest = out;
        layout.for_each_part(offset, length, |part| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(part.length as usize);
            rest = later;
            self.local_grant(pd, part.lkey, false)?.read(&self.guard, part.address, now, check)
        })
    }

    /// Stores `data` in memory of an indirect key.
    ///
    /// # Errors
    /// As [`RegionTable::read_indirect`]; a region lacks `LOCAL_WRITE`. Earlier pieces are then written.
    #[cold]
    pub(super) fn write_indirect(
        &self,
        pd: u32,
        (key, access): (u32, Access),
        offset: u64,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        let layout = self.indirect(pd, key, access)?.layout(offset, data.len() as u64)?;
        let mut rest = data;
        layout.for_each_part(offset, data.len() as u64, |part| {
            let (now, later) = rest.split_at(part.length as usize);
            rest = later;
            self.local_grant(pd, part.lkey, true)?.write(&self.guard, part.address, now, check)
        })
    }

    /// Calls `visit(process address, bytes)` for each range that these bytes of an indirect key are.
    ///
    /// # Errors
    /// As [`RegionTable::write_indirect`].
    #[cold]
    pub(super) fn indirect_ranges(
        &self,
        pd: u32,
        (key, access): (u32, Access),
        (offset, length): (u64, u64),
        visit: &mut impl FnMut(u64, u64),
    ) -> Result<(), MemoryError> {
        let write = access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let layout = self.indirect(pd, key, access)?.layout(offset, length)?;
        layout.for_each_part(offset, length, |part| {
            visit(self.locate_local(pd, part.lkey, part.address, part.length, write)?, part.length);
            Ok(())
        })
    }

    /// Executes an operation on a word of an indirect key, all of which is in one piece.
    ///
    /// # Errors
    /// As [`RegionTable::write_indirect`]; the word is not aligned, or in more than one piece.
    #[cold]
    pub(super) fn operate_indirect(
        &self,
        key: RemoteKey,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        let layout = self.indirect(key.pd, key.rkey, operation.access())?.layout(offset, 8)?;
        let part = layout.part_at(offset, 8).filter(|part| part.length == 8).ok_or(MemoryError::Misaligned)?;
        self.local_grant(key.pd, part.lkey, true)?.operate(&self.guard, (offset, part.address), operation)
    }

    /// Whether a range of an indirect key can be used at all. Its pieces are looked at when they are used.
    ///
    /// # Errors
    /// The key, its domain, a right in `access` or the range is wrong.
    #[cold]
    pub(super) fn check_indirect(
        &self,
        pd: u32,
        (key, access): (u32, Access),
        (offset, length): (u64, u64),
    ) -> Result<(), MemoryError> {
        self.indirect(pd, key, access)?.layout(offset, length).map(|_| ())
    }

    /// Why a local buffer of an indirect key cannot be used; none, if it can.
    #[cold]
    pub(super) fn fault_of_indirect(&self, pd: u32, key: u32, range: (u64, u64), write: bool) -> Option<MemoryError> {
        let access = RegionTable::local_access(write);
        let look = || {
            let layout = self.indirect(pd, key, access)?.layout(range.0, range.1)?;
            layout.for_each_piece(|part| {
                self.locate_local(pd, part.lkey, part.address, part.length, write).map(|_| ())
            })
        };
        look().err()
    }

    /// The rights that a local access by an indirect key needs, with the key.
    pub(super) const fn locally(key: u32, write: bool) -> (u32, Access) {
        (key, RegionTable::local_access(write))
    }
}

#[cfg(test)]
#[path = "indirect_tests.rs"]
mod tests;
