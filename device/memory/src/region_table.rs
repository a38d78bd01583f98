//! The table of all objects with a key, and the check that every access passes.

use pumice_platform::clock::Random;
use pumice_platform::error::ResourceError;
use pumice_platform::outside::fault_guard::FaultGuard;
use pumice_platform::table::{Handle, Table, check_room};
use pumice_transport::host::{MemoryError, RemoteKey};
use pumice_transport::types::{Access, MemoryFault, Sge};

use super::grant::{EntryKind, Grant, KeyEntry};

/// All regions and windows of a device, by key. The upper 24 bits of a key are the index in the table plus a
/// number that is never 0 and differs from device to device; the low 8 bits vary from registration to
/// registration, so that a key of a region that is gone is refused.
#[derive(Debug)]
pub struct RegionTable {
    pub(super) entries: Table<KeyEntry>,
    /// Upper 24 bits of the key of index 0. Chosen at random, so that a peer has to be told the keys it uses.
    first_key: u32,
    /// Seed that determines where the low bytes of keys begin.
    seed: u64,
    /// Regions are given different numbers as lkey and rkey, so that a mistaken one can be named.
    keys_apart: bool,
    /// Low byte of the key that each index had last.
    key_parts: Vec<u8>,
    /// Largest number of regions, and of windows: neither takes entries of the other.
    max_regions: u32,
    /// Number of windows among the entries.
    windows: u32,
    /// Number of windows bound to a queue pair: if 0, destroying a queue pair need not search.
    pub(super) qp_bound_windows: u32,
    /// Number of indirect keys that were made for signatures: if 0, lengths are those of buffers.
    pub(super) signature_keys: u32,
    /// Guard of the copies, which are made under the engine's lock.
    pub(super) guard: FaultGuard,
}

impl RegionTable {
    /// Largest number of regions and windows: 24 bits of a key, and index 0 is not used.
    pub const MAX_CAPACITY: u32 = (1 << 24) - 1;

    /// Creates an empty table for at most `max_regions` regions and as many windows.
    pub fn new(max_regions: u32) -> RegionTable {
        let capacity = max_regions.saturating_mul(2).min(RegionTable::MAX_CAPACITY);
        RegionTable {
            entries: Table::new("memory region or window", capacity),
            first_key: 1,
            seed: 0,
            keys_apart: false,
            key_parts: Vec::new(),
            max_regions,
            windows: 0,
            qp_bound_windows: 0,
            signature_keys: 0,
            guard: FaultGuard::new(),
        }
    }

    /// Chooses the keys of what is registered from now on. Only for an empty table: a key is found by its
    /// index.
    pub fn set_first_key(&mut self, seed: u64) {
        if self.is_empty() {
            // The last index has to have a key as well.
            let choices = (1 << 24) - u64::from(self.entries.capacity());
            self.first_key = 1 + (seed % choices) as u32;
            self.seed = seed;
        }
    }

    /// Decides whether the regions registered from now on have different numbers as lkey and rkey. Either
    /// number opens the region for either use.
    pub const fn set_keys_apart(&mut self, apart: bool) {
        self.keys_apart = apart;
    }

    /// Returns the bits in which the two keys of a new region differ.
    pub(super) const fn apart(&self) -> u32 {
        // Within the low byte, so that either key finds the entry.
        if self.keys_apart { 0x80 } else { 0 }
    }

    /// Returns the index in the table of the region or window with a key; the entry may be empty, or have
    /// another key now.
    #[inline]
    pub(super) const fn index_of(&self, key: u32) -> u32 {
        (key >> 8).wrapping_sub(self.first_key)
    }

    /// Returns the number of regions, without windows.
    pub fn region_count(&self) -> usize {
        self.entries.len() - self.windows as usize
    }

    /// Returns the number of regions and windows in the table.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Reports whether nothing is registered.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the process address of `length` bytes at `address` under a local key. Reading is always
    /// allowed; `write` needs `LOCAL_WRITE`.
    ///
    /// # Errors
    /// Fails if the key, its domain, its right or the range is wrong.
    #[inline]
    pub fn locate_local(
        &self,
        pd: u32,
        lkey: u32,
        address: u64,
        length: u64,
        write: bool,
    ) -> Result<u64, MemoryError> {
        self.local_grant(pd, lkey, write)?.locate(address, length)
    }

    #[inline]
    pub(super) fn local_grant(&self, pd: u32, lkey: u32, write: bool) -> Result<&Grant, MemoryError> {
        let entry = self.by_key(lkey).ok_or(MemoryError::UnknownKey)?;
        if !matches!(entry.kind, EntryKind::Region { .. }) {
            return Err(MemoryError::UnknownKey);
        }
        if entry.grant.pd != pd {
            return Err(MemoryError::WrongDomain);
        }
        //= man:ibv_reg_mr
        //| The device may read every region, and writes only those with LOCAL_WRITE.
        if write && !entry.grant.access.contains(Access::LOCAL_WRITE) {
            return Err(MemoryError::AccessDenied);
        }
        Ok(&entry.grant)
    }

    /// Returns which of the buffers cannot be used locally, and why; `None` if all can.
    pub fn find_fault(&self, pd: u32, sges: &[Sge], stores: bool) -> Option<MemoryFault> {
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let (key, range) = (sge.lkey, (sge.address, u64::from(sge.length)));
            let error = match self.is_indirect(key) {
                true => self.fault_of_indirect(pd, key, range, stores),
                false => self.locate_local(pd, key, range.0, range.1, stores).err(),
            };
            let Some(error) = error.or_else(|| self.lost_by(sge)) else { continue };
            let entry = self.by_key(sge.lkey).filter(|entry| matches!(entry.kind, EntryKind::Region { .. }));
            let region = entry.map(|entry| (entry.grant.iova, entry.grant.length));
            return Some(MemoryFault { error, element: Some(*sge), region, stores });
        }
        None
    }

    /// Returns the error if the program has taken away memory of this buffer.
    fn lost_by(&self, sge: &Sge) -> Option<MemoryError> {
        let grant = &self.by_key(sge.lkey)?.grant;
        let first = grant.locate(sge.address, sge.length.into()).ok()?;
        let has_lost = grant.watched?.has_lost_of(&(first..first.saturating_add(sge.length.into())));
        has_lost.then_some(MemoryError::NotMapped)
    }

    /// Returns the names of the regions and windows of a protection domain, by their keys.
    pub fn names_in(&self, pd: u32) -> Vec<String> {
        let of_domain = self.entries.iter().filter(|(_, entry)| entry.grant.pd == pd);
        let name = |entry: &KeyEntry| match entry.kind {
            EntryKind::Region { .. } => format!("memory region of lkey {:#010x}", entry.grant.key),
            EntryKind::Window { .. } => format!("memory window of rkey {:#010x}", entry.grant.key),
            EntryKind::Indirect(_) => format!("indirect memory key {:#010x}", entry.grant.key),
        };
        of_domain.map(|(_, entry)| name(entry)).collect()
    }

    /// Returns the process address of `length` bytes at `address` under a remote key.
    ///
    /// # Errors
    /// Fails if the key, its domain (or queue pair), a right in `access`, or the range is wrong.
    #[inline]
    pub fn locate_remote(
        &self,
        key: RemoteKey,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<u64, MemoryError> {
        self.remote_grant(key, access)?.locate(address, length)
    }

    /// Returns all memory that a remote key opens: process address and bytes.
    ///
    /// # Errors
    /// Fails as [`RegionTable::locate_remote`] does.
    pub fn locate_remote_all(&self, key: RemoteKey, access: Access) -> Result<(u64, u64), MemoryError> {
        let grant = self.remote_grant(key, access)?;
        Ok((grant.address, grant.length))
    }

    #[inline]
    pub(super) fn remote_grant(&self, key: RemoteKey, access: Access) -> Result<&Grant, MemoryError> {
        let grant = &self.by_key(key.rkey).ok_or(MemoryError::UnknownKey)?.grant;
        if !grant.live {
            return Err(MemoryError::UnknownKey);
        }
        //= linux:rxe_mr.c#lookup_mr
        //| A key serves its protection domain only.
        if grant.pd != key.pd || grant.qpn.is_some_and(|qpn| qpn != key.qpn) {
            return Err(MemoryError::WrongDomain);
        }
        //= linux:rxe_mr.c#lookup_mr
        //| A region is accessed only in the ways that its rights allow.
        if !grant.access.contains(access) {
            return Err(MemoryError::AccessDenied);
        }
        Ok(grant)
    }

    /// Reports whether a key opens memory that stays mapped, so that a store which is right now is right
    /// later. A page of the program's that vanishes meanwhile, with the end of a file or because the program
    /// unmaps it, takes the data with it.
    pub fn stays_mapped(&self, key: u32) -> bool {
        self.by_key(key).is_some_and(|entry| entry.grant.backing.stays_mapped())
    }

    /// Reports whether a key opens memory whose region lets adapters relax the order of what they store: all
    /// of it, or of an indirect key a piece.
    pub fn has_relaxed_order(&self, key: u32) -> bool {
        let Some(entry) = self.by_key(key) else { return false };
        match &entry.kind {
            EntryKind::Region { .. } => entry.grant.access.contains(Access::RELAXED_ORDERING),
            EntryKind::Window { region, .. } => {
                let region = region.and_then(|index| self.entries.at(index));
                region.is_some_and(|region| region.grant.access.contains(Access::RELAXED_ORDERING))
            }
            // Its pieces are regions, never other indirect keys.
            EntryKind::Indirect(indirect) => {
                let keys = indirect.layout.iter().flat_map(|layout| layout.keys());
                let mut regions = keys.filter_map(|key| self.by_key(key));
                regions.any(|region| region.grant.access.contains(Access::RELAXED_ORDERING))
            }
        }
    }

    #[inline]
    pub(super) fn by_key(&self, key: u32) -> Option<&KeyEntry> {
        let entry = self.entries.at(self.index_of(key))?;
        entry.grant.has_key(key).then_some(entry)
    }

    /// Adds a region under a fresh key.
    pub(super) fn insert(&mut self, make: impl FnOnce(u32) -> KeyEntry) -> Result<Handle, ResourceError> {
        check_room("memory regions", self.entries.len() - self.windows as usize, self.max_regions)?;
        self.insert_entry(make)
    }

    /// Adds a window under a fresh key.
    pub(super) fn insert_window(
        &mut self,
        make: impl FnOnce(u32) -> KeyEntry,
    ) -> Result<Handle, ResourceError> {
        check_room("memory windows", self.windows as usize, self.max_regions)?;
        let handle = self.insert_entry(make)?;
        self.windows += 1;
        Ok(handle)
    }

    fn insert_entry(&mut self, make: impl FnOnce(u32) -> KeyEntry) -> Result<Handle, ResourceError> {
        let RegionTable { key_parts, first_key, seed, .. } = self;
        self.entries.insert_with(|handle| {
            let index = handle.index as usize;
            if key_parts.len() <= index {
                // Different indices start differently, so that adding 256 to a key is a bad guess too.
                let part = Random::new(*seed ^ (index as u64) << 32).next_u64() as u8;
                key_parts.resize(index + 1, part);
            }
            let part = key_parts.get_mut(index).map_or(0, |part| {
                *part = part.wrapping_add(1);
                *part
            });
            make(((handle.index + *first_key) << 8) | u32::from(part))
        })
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Option<KeyEntry> {
        let entry = self.entries.remove(handle)?;
        self.windows -= u32::from(matches!(entry.kind, EntryKind::Window { .. }));
        if let Some(part) = self.key_parts.get_mut(handle.index as usize) {
            *part = entry.grant.key as u8;
        }
        Some(entry)
    }

    /// Returns the key of an object; 0 for a stale handle.
    pub fn key_of(&self, handle: Handle) -> u32 {
        self.entries.get(handle).map_or(0, |entry| entry.grant.key)
    }
}
