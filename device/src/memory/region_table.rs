//! All that has a key, and the check that every access passes.

use pumice_transport::host::{MemoryError, RemoteKey};
use pumice_transport::types::Access;

use super::grant::{Entry, Grant, Kind};
use crate::error::ResourceError;
use crate::table::{Handle, Table};

/// All regions and windows of a device, by key. The upper 24 bits of a key are the place in the
/// table plus one; the low 8 bits vary from registration to registration, so that a key of a
/// region that is gone is refused.
#[derive(Debug)]
pub struct RegionTable {
    pub(super) entries: Table<Entry>,
    /// Low byte of the key that each place had last.
    key_parts: Vec<u8>,
    /// Windows bound to a queue pair: if 0, destroying a queue pair need not search.
    pub(super) qp_bound_windows: u32,
    /// Copies ask the kernel whether the memory is there, instead of trusting that it is.
    pub(super) wary: bool,
}

impl RegionTable {
    /// Most regions and windows: 24 bits of a key, and index 0 is not used.
    pub const MAX_CAPACITY: u32 = (1 << 24) - 1;

    /// An empty table for at most `capacity` regions and windows together.
    pub fn new(capacity: u32) -> RegionTable {
        RegionTable {
            entries: Table::new("memory region or window", capacity.min(RegionTable::MAX_CAPACITY)),
            key_parts: Vec::new(),
            qp_bound_windows: 0,
            wary: false,
        }
    }

    /// Regions and windows in the table.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is registered.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Process address of `length` bytes at `address` under a local key. Reading is always allowed;
    /// `write` needs `LOCAL_WRITE`.
    ///
    /// # Errors
    /// The key, its domain, its right or the range is wrong.
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
        if !matches!(entry.kind, Kind::Region { .. }) {
            return Err(MemoryError::UnknownKey);
        }
        if entry.grant.pd != pd {
            return Err(MemoryError::WrongDomain);
        }
        if write && !entry.grant.access.contains(Access::LOCAL_WRITE) {
            return Err(MemoryError::AccessDenied);
        }
        Ok(&entry.grant)
    }

    /// Process address of `length` bytes at `address` under a remote key.
    ///
    /// # Errors
    /// The key, its domain (or queue pair), a right in `access`, or the range is wrong.
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

    /// All memory that a remote key opens: process address and bytes.
    ///
    /// # Errors
    /// As [`RegionTable::locate_remote`].
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
        if grant.pd != key.pd || grant.qpn.is_some_and(|qpn| qpn != key.qpn) {
            return Err(MemoryError::WrongDomain);
        }
        if !grant.access.contains(access) {
            return Err(MemoryError::AccessDenied);
        }
        Ok(grant)
    }

    #[inline]
    pub(super) fn by_key(&self, key: u32) -> Option<&Entry> {
        let entry = self.entries.at((key >> 8).wrapping_sub(1))?;
        (entry.grant.key == key).then_some(entry)
    }

    /// Adds an entry under a fresh key.
    pub(super) fn insert(&mut self, make: impl FnOnce(u32) -> Entry) -> Result<Handle, ResourceError> {
        let key_parts = &mut self.key_parts;
        self.entries.insert_with(|handle| {
            let place = handle.index as usize;
            if key_parts.len() <= place {
                // Different places start differently, so that adding 256 to a key is a bad guess too.
                key_parts.resize_with(place + 1, || (place as u8).wrapping_mul(0x9d));
            }
            let part = key_parts.get_mut(place).map_or(0, |part| {
                *part = part.wrapping_add(1);
                *part
            });
            make(((handle.index + 1) << 8) | u32::from(part))
        })
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Option<Entry> {
        let entry = self.entries.remove(handle)?;
        if let Some(part) = self.key_parts.get_mut(handle.index as usize) {
            *part = entry.grant.key as u8;
        }
        Some(entry)
    }

    pub(super) fn key_of(&self, handle: Handle) -> u32 {
        self.entries.get(handle).map_or(0, |entry| entry.grant.key)
    }
}
