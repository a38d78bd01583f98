//! Indirect keys: memory keys that lead to pieces of regions, which work requests choose. mlx5 calls them
//! mkeys.
//!
//! An access by such a key is checked twice: by the rights of the key, and for each piece by those of its
//! region, as if a local buffer named it. So a region that ends takes its pieces with it.

use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::host::{MemoryError, RemoteKey};
use pumice_transport::types::{Access, AtomicOperation, KeyConfiguration, SignatureChange};

use super::MappingCheck;
use super::grant::{Backing, EntryKind, Grant, KeyEntry};
use super::indirect_key::{IndirectKey, IndirectKeyInit, Layout};
use super::region::RegionKeys;
use super::region_table::RegionTable;
use super::signed::Signed;

/// Rights that an indirect key may have.
const KEY_ACCESS: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

impl RegionTable {
    /// Makes an indirect key, which leads to nothing before a work request configures it.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the table is full.
    pub fn make_indirect_key(&mut self, pd: u32, init: IndirectKeyInit) -> Result<RegionKeys, ResourceError> {
        // No access finds anything by the grant: `live` is false, so the indirect key itself is checked.
        let grant = |key| Grant::of_no_memory(key, pd, Backing::OnDemand);
        let key = IndirectKey::new(init);
        let handle = self
            .insert(|number| KeyEntry { grant: grant(number), kind: EntryKind::Indirect(Box::new(key)) })?;
        let key = self.key_of(handle);
        self.signature_keys += u32::from(init.has_signatures);
        Ok(RegionKeys { lkey: key, rkey: key, handle })
    }

    /// Ends an indirect key, configured or not. Returns its protection domain.
    ///
    /// # Errors
    /// Fails with `Invalid` for a stale handle, or one of another object.
    pub fn end_indirect_key(&mut self, handle: Handle) -> Result<u32, ResourceError> {
        let entry = self.entries.require(handle)?;
        let EntryKind::Indirect(key) = &entry.kind else {
            return Err(ResourceError::invalid("this is no indirect memory key"));
        };
        let (pd, has_signatures) = (entry.grant.pd, key.init.has_signatures);
        self.signature_keys -= u32::from(has_signatures);
        self.remove(handle);
        Ok(pd)
    }

    /// Executes CONFIGURE_KEY on a queue pair of domain `pd`.
    ///
    /// # Errors
    /// Fails if the key is not an indirect one, or of another domain, if it was made for fewer pieces, or if
    /// it cannot have the rights.
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
            if layout.pieces.len() > usize::from(key.init.max_pieces) {
                return Err(MemoryError::OutOfRange);
            }
            key.layout = Some(Layout::new(layout).ok_or(MemoryError::OutOfRange)?);
        }
        match to.signature {
            SignatureChange::None => {}
            SignatureChange::Set(_) if !key.init.has_signatures => return Err(MemoryError::AccessDenied),
            SignatureChange::Set(signature) => key.signature = Some(signature),
            SignatureChange::Reset => key.signature = None,
        }
        key.access = to.access.unwrap_or(key.access);
        key.is_open = true;
        Ok(())
    }

    /// Notes a posted configuration of a key, for requests behind it that need lengths.
    #[cold]
    pub fn key_posted(&mut self, pd: u32, to: &KeyConfiguration) {
        let index = self.index_of(to.key);
        let entry =
            self.entries.at_mut(index).filter(|entry| entry.grant.key == to.key && entry.grant.pd == pd);
        let Some(KeyEntry { kind: EntryKind::Indirect(key), .. }) = entry else { return };
        match to.signature {
            SignatureChange::None => {}
            SignatureChange::Set(signature) => key.posted_wire = signature.wire,
            SignatureChange::Reset => key.posted_wire = None,
        }
    }

    /// Returns an indirect key, configured or not.
    pub(super) fn indirect_key(&self, key: u32) -> Option<&IndirectKey> {
        match &self.by_key(key)?.kind {
            EntryKind::Indirect(indirect) => Some(indirect),
            _ => None,
        }
    }

    /// Undoes the configuration of an indirect key; `None` if the key is of another kind.
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
                (indirect.signature, indirect.posted_wire) = (None, None);
                Ok(())
            }
        })
    }

    /// Returns the indirect key with a number, if it is configured and of the domain.
    ///
    /// # Errors
    /// Fails if the key, its domain or a right in `access` is wrong.
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

    /// Reports whether a key is an indirect one, configured or not.
    pub(super) fn is_indirect(&self, key: u32) -> bool {
        self.by_key(key).is_some_and(|entry| matches!(entry.kind, EntryKind::Indirect(_)))
    }

    /// Returns the rights that a local access by a key needs.
    const fn local_access(write: bool) -> Access {
        if write { Access::LOCAL_WRITE } else { Access::empty() }
    }

    /// Copies memory of an indirect key into `out`.
    ///
    /// # Errors
    /// Fails if the key, its domain, a right in `access` or the range is wrong, or if those of a piece are.
    #[cold]
    pub(super) fn read_indirect(
        &self,
        pd: u32,
        (key, access): (u32, Access),
        offset: u64,
        out: &mut [u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        let key = self.indirect(pd, key, access)?;
        if let Some(signed) = self.signed(pd, key, check) {
            return signed?.read(offset, out);
        }
        self.read_layout(pd, key.layout(offset, out.len() as u64)?, offset, out, check)
    }

    /// Returns an access to a key that has signatures; `None` if it has none.
    fn signed<'a>(
        &'a self,
        pd: u32,
        key: &'a IndirectKey,
        check: MappingCheck,
    ) -> Option<Result<Signed<'a>, MemoryError>> {
        let signature = key.signature?;
        let layout = key.layout.as_ref().ok_or(MemoryError::OutOfRange);
        Some(layout.map(|layout| Signed { table: self, pd, key, layout, signature, check }))
    }

    /// Copies memory of a layout into `out`.
    pub(super) fn read_layout(
        &self,
        pd: u32,
        layout: &Layout,
        offset: u64,
        out: &mut [u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        let length = out.len() as u64;
        let mut rest = out;
        layout.for_each_piece_part(offset, length, |part| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(part.length as usize);
            rest = later;
            self.local_grant(pd, part.lkey, false)?.read(&self.guard, part.address, now, check)
        })
    }

    /// Stores `data` in memory of an indirect key.
    ///
    /// # Errors
    /// Fails as [`RegionTable::read_indirect`] does, and if a region lacks `LOCAL_WRITE`. Earlier pieces are
    /// then written.
    #[cold]
    pub(super) fn write_indirect(
        &self,
        pd: u32,
        (key, access): (u32, Access),
        offset: u64,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        let key = self.indirect(pd, key, access)?;
        if let Some(signed) = self.signed(pd, key, check) {
            return signed?.write(offset, data);
        }
        self.write_layout(pd, key.layout(offset, data.len() as u64)?, offset, data, check)
    }

    /// Stores `data` in memory of a layout.
    pub(super) fn write_layout(
        &self,
        pd: u32,
        layout: &Layout,
        offset: u64,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        let mut rest = data;
        layout.for_each_piece_part(offset, data.len() as u64, |part| {
            let (now, later) = rest.split_at(part.length as usize);
            rest = later;
            self.local_grant(pd, part.lkey, true)?.write(&self.guard, part.address, now, check)
        })
    }

    /// Calls `visit(process address, bytes)` for each range that these bytes of an indirect key are.
    ///
    /// # Errors
    /// Fails as [`RegionTable::write_indirect`] does.
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
        layout.for_each_piece_part(offset, length, |part| {
            visit(self.locate_local(pd, part.lkey, part.address, part.length, write)?, part.length);
            Ok(())
        })
    }

    /// Executes an operation on a word of an indirect key, all of which is in one piece.
    ///
    /// # Errors
    /// Fails as [`RegionTable::write_indirect`] does, and if the word is not aligned, or in more than one
    /// piece.
    #[cold]
    pub(super) fn operate_indirect(
        &self,
        key: RemoteKey,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        let indirect = self.indirect(key.pd, key.rkey, operation.access())?;
        if indirect.signature.is_some() {
            return Err(MemoryError::AccessDenied);
        }
        let layout = indirect.layout(offset, 8)?;
        let part =
            layout.piece_part_at(offset, 8).filter(|part| part.length == 8).ok_or(MemoryError::Misaligned)?;
        self.local_grant(key.pd, part.lkey, true)?.operate(&self.guard, (offset, part.address), operation)
    }

    /// Checks whether a range of an indirect key can be used at all. Its pieces are checked when they are
    /// used.
    ///
    /// # Errors
    /// Fails if the key, its domain, a right in `access` or the range is wrong.
    #[cold]
    pub(super) fn check_indirect(
        &self,
        pd: u32,
        (key, access): (u32, Access),
        (offset, length): (u64, u64),
    ) -> Result<(), MemoryError> {
        let key = self.indirect(pd, key, access)?;
        match self.signed(pd, key, MappingCheck::Assumed) {
            Some(signed) => signed?.check_range(offset, length),
            None => key.layout(offset, length).map(|_| ()),
        }
    }

    /// Returns why a local buffer of an indirect key cannot be used; `None` if it can.
    #[cold]
    pub(super) fn fault_of_indirect(
        &self,
        pd: u32,
        key: u32,
        range: (u64, u64),
        write: bool,
    ) -> Option<MemoryError> {
        let access = RegionTable::local_access(write);
        let look = || {
            self.check_indirect(pd, (key, access), range)?;
            let layout = self.indirect(pd, key, access)?.layout(0, 0)?;
            layout.for_each_piece(|part| {
                self.locate_local(pd, part.lkey, part.address, part.length, write).map(|_| ())
            })
        };
        look().err()
    }

    /// Returns the rights that a local access by an indirect key needs, with the key.
    pub(super) const fn locally(key: u32, write: bool) -> (u32, Access) {
        (key, RegionTable::local_access(write))
    }
}

#[cfg(test)]
#[path = "indirect_tests.rs"]
mod tests;
