//! Memory regions: registration, and the check that every access passes.

use std::sync::Arc;

use pumice_transport::host::{MemoryError, RemoteKey};
use pumice_transport::types::Access;

use super::device_memory::Registration;
use super::grant::{Backing, Entry, Grant, Kind};
use super::{DeviceMemory, on_demand};
use crate::error::ResourceError;
use crate::table::{Handle, Table};

/// What a registration returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionKeys {
    /// Local key, for scatter/gather elements. Never 0.
    pub lkey: u32,
    /// Remote key, for peers. Never 0.
    pub rkey: u32,
    /// Names the region here.
    pub handle: Handle,
}

/// A region as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionInfo {
    /// Protection domain.
    pub pd: u32,
    /// First byte in this process.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The first byte's address as scatter/gather elements and peers say it.
    pub iova: u64,
    /// Rights.
    pub access: Access,
    /// Memory windows bound to it.
    pub bound_windows: u32,
}

/// What to change of a region (`ibv_rereg_mr`); keys stay the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct RegionChange {
    /// Another range: address in this process, bytes, iova.
    pub translation: Option<(u64, u64, u64)>,
    /// Another protection domain.
    pub pd: Option<u32>,
    /// Other rights.
    pub access: Option<Access>,
}

/// All regions and windows of a device, by key. The upper 24 bits of a key are the place in the
/// table plus one; the low 8 bits vary from registration to registration, so that a key of a
/// region that is gone is refused.
#[derive(Debug)]
pub struct RegionTable {
    pub(super) entries: Table<Entry>,
    /// Low byte of the key that each place had last.
    pub(super) key_parts: Vec<u8>,
    /// Windows bound to a queue pair: if 0, destroying a queue pair need not search.
    pub(super) qp_bound_windows: u32,
    /// Copies ask the kernel whether the memory is there, instead of trusting that it is.
    pub(super) wary: bool,
}

impl RegionTable {
    /// Rights that a region may have.
    const REGION_ACCESS: Access = Access::all();
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

    /// Registers `length` bytes of this process at `address`; users of the keys call the first byte
    /// `iova`, or 0 with [`Access::ZERO_BASED`]. Length 0 is legal: every access then fails.
    ///
    /// With [`Access::ON_DEMAND`] the range need not be mapped: an access to a page that is not there
    /// fails. Address 0 and length 2^64 - 1 then mean the whole address space (an implicit region).
    ///
    /// # Safety
    /// Until the region is deregistered, the range must stay mapped with the rights that `access`
    /// asks for (unless it is on demand), and must be memory for which reads and writes by the device (from any thread, at
    /// any time) are acceptable to its owner.
    ///
    /// # Errors
    /// `Invalid`: remote write or atomic without local write, unknown access flags, a range that
    /// wraps. `NotSupported`: on demand, where the kernel refuses the system calls for it. `NoMemory`: the
    /// table is full.
    pub unsafe fn register(
        &mut self,
        pd: u32,
        address: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Result<RegionKeys, ResourceError> {
        let access = RegionTable::check_access(access)?;
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { iova };
        RegionTable::check_range(address, length, iova, access)?;
        self.insert_region(None, |key| Grant {
            key,
            pd,
            address,
            iova,
            length,
            access,
            backing: Backing::of(access),
            live: true,
            qpn: None,
        })
    }

    /// Registers part of device memory, whose first byte users of the keys call 0.
    ///
    /// # Errors
    /// `Invalid`: not zero-based, more than the device memory has, rights as at
    /// [`RegionTable::register`]. `NoMemory`: the table is full.
    pub fn register_device_memory(
        &mut self,
        pd: u32,
        memory: &Arc<DeviceMemory>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<RegionKeys, ResourceError> {
        let access = RegionTable::check_access(access)?;
        if !access.contains(Access::ZERO_BASED) || access.contains(Access::ON_DEMAND) {
            return Err(ResourceError::invalid("device memory is registered ZERO_BASED, and not ON_DEMAND"));
        }
        let address = memory.locate(offset, length)?;
        self.insert_region(Some(Registration::new(memory)), |key| Grant {
            key,
            pd,
            address,
            iova: 0,
            length,
            access,
            backing: Backing::Mapped,
            live: true,
            qpn: None,
        })
    }

    /// Makes a region of every address that reads as zeros and forgets what is written; local use only.
    ///
    /// # Errors
    /// `NoMemory`: the table is full.
    pub fn register_nothing(&mut self, pd: u32) -> Result<RegionKeys, ResourceError> {
        self.insert_region(None, |key| Grant {
            key,
            pd,
            address: 0,
            iova: 0,
            length: u64::MAX,
            access: Access::LOCAL_WRITE,
            backing: Backing::Nothing,
            live: true,
            qpn: None,
        })
    }

    fn insert_region(
        &mut self,
        device_memory: Option<Registration>,
        grant: impl FnOnce(u32) -> Grant,
    ) -> Result<RegionKeys, ResourceError> {
        let handle = self.insert(|key| Entry {
            grant: grant(key),
            kind: Kind::Region { bound_windows: 0, device_memory },
        })?;
        let key = self.key_of(handle);
        Ok(RegionKeys { lkey: key, rkey: key, handle })
    }

    /// Changes a region in place. On an error the region is as before.
    ///
    /// # Safety
    /// As [`RegionTable::register`], for the range and rights after the change.
    ///
    /// # Errors
    /// `Invalid`: as at registration; a new range that is null or empty; a stale handle. `Busy`:
    /// windows are bound to the region.
    pub unsafe fn rereg(
        &mut self,
        handle: Handle,
        change: RegionChange,
    ) -> Result<RegionKeys, ResourceError> {
        let info = self.region(handle)?;
        if info.bound_windows != 0 {
            return Err(busy_with_windows(info.bound_windows));
        }
        if !self.entries.require(handle)?.is_own_memory() {
            return Err(ResourceError::invalid(
                "null regions and regions of device memory cannot be changed",
            ));
        }
        let access = match change.access {
            Some(access) => RegionTable::check_access(access)?,
            None => info.access,
        };
        let (address, length, mut iova) = match change.translation {
            Some((address, length, _)) if address == 0 || length == 0 || length == u64::MAX => {
                return Err(ResourceError::invalid(format!(
                    "the new range of the region ({length} bytes at {address:#x}) must not be null, empty or everything"
                )));
            }
            Some(translation) => translation,
            None => (info.address, info.length, info.iova),
        };
        if access.contains(Access::ZERO_BASED) {
            iova = 0;
        }
        RegionTable::check_range(address, length, iova, access)?;
        let entry = self.entries.require_mut(handle)?;
        let pd = change.pd.unwrap_or(entry.grant.pd);
        let backing = Backing::of(access);
        entry.grant = Grant { pd, address, iova, length, access, backing, ..entry.grant };
        let key = entry.grant.key;
        Ok(RegionKeys { lkey: key, rkey: key, handle })
    }

    /// Ends a registration; its keys are refused from now on. Returns what it was.
    ///
    /// # Errors
    /// `Busy`: windows are bound to it. `Invalid`: a stale handle, or a window's.
    pub fn deregister(&mut self, handle: Handle) -> Result<RegionInfo, ResourceError> {
        let info = self.region(handle)?;
        if info.bound_windows != 0 {
            return Err(busy_with_windows(info.bound_windows));
        }
        self.remove(handle);
        Ok(info)
    }

    /// The region with this handle.
    ///
    /// # Errors
    /// `Invalid`: a stale handle, or a window's.
    pub fn region(&self, handle: Handle) -> Result<RegionInfo, ResourceError> {
        let entry = self.entries.require(handle)?;
        let Kind::Region { bound_windows, .. } = entry.kind else {
            return Err(ResourceError::invalid("a memory window was given where a memory region belongs"));
        };
        let Grant { pd, address, length, iova, access, .. } = entry.grant;
        Ok(RegionInfo { pd, address, length, iova, access, bound_windows })
    }

    /// The region at a place of the table: its keys, and what it is.
    ///
    /// # Errors
    /// `Invalid`: there is no region.
    pub fn region_at(&self, index: u32) -> Result<(RegionKeys, RegionInfo), ResourceError> {
        let handle = self
            .entries
            .handle_at(index)
            .ok_or_else(|| ResourceError::invalid(format!("there is no memory region {index}")))?;
        let info = self.region(handle)?;
        let key = self.key_of(handle);
        Ok((RegionKeys { lkey: key, rkey: key, handle }, info))
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

    fn key_of(&self, handle: Handle) -> u32 {
        self.entries.get(handle).map_or(0, |entry| entry.grant.key)
    }

    fn check_access(access: Access) -> Result<Access, ResourceError> {
        let required = access.bits() & !Access::OPTIONAL_RANGE;
        let unknown = required & !RegionTable::REGION_ACCESS.bits();
        if unknown != 0 {
            return Err(ResourceError::invalid(format!("unknown access flags {unknown:#x}")));
        }
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !access.contains(Access::LOCAL_WRITE)
        {
            return Err(ResourceError::invalid(
                "access flags: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well",
            ));
        }
        Ok(Access::from_bits_truncate(access.bits()))
    }

    fn check_range(address: u64, length: u64, iova: u64, access: Access) -> Result<(), ResourceError> {
        if access.contains(Access::ON_DEMAND) && !on_demand::is_available() {
            return Err(ResourceError::not_supported(
                "ON_DEMAND: the system calls process_vm_readv and process_vm_writev are refused here",
            ));
        }
        if length == u64::MAX {
            return if address == 0 && iova == 0 && access.contains(Access::ON_DEMAND) {
                Ok(())
            } else {
                Err(ResourceError::invalid(
                    "length 2^64 - 1: only implicit on-demand regions have it, at address 0",
                ))
            };
        }
        let last = length.saturating_sub(1);
        for (name, first) in [("address", address), ("iova", iova)] {
            if first.checked_add(last).is_none() {
                return Err(ResourceError::invalid(format!(
                    "{length} bytes from {name} {first:#x} wrap around the address space"
                )));
            }
        }
        if usize::try_from(address.saturating_add(last)).is_err() {
            return Err(ResourceError::BadAddress { address, length });
        }
        Ok(())
    }
}

fn busy_with_windows(count: u32) -> ResourceError {
    ResourceError::busy(format!(
        "the memory region has {count} memory windows bound to it; unbind them first"
    ))
}

#[cfg(test)]
mod tests {
    use pumice_transport::wire::Qpn;

    use super::*;

    const REMOTE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

    /// Registers made-up addresses; nothing in these tests touches the memory.
    fn register(
        table: &mut RegionTable,
        address: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Result<RegionKeys, ResourceError> {
        // SAFETY: the range is only located, never accessed.
        unsafe { table.register(7, address, length, iova, access) }
    }

    fn key(rkey: u32) -> RemoteKey {
        RemoteKey { rkey, pd: 7, qpn: Qpn::new(0x11) }
    }

    #[test]
    fn an_access_must_lie_inside_the_range() {
        let mut table = RegionTable::new(8);
        let keys = register(&mut table, 0x7000, 0x100, 0x5000_0000, REMOTE).unwrap();
        let locate =
            |address, length| table.locate_remote(key(keys.rkey), address, length, Access::REMOTE_READ);
        assert_eq!(locate(0x5000_0000, 0x100), Ok(0x7000));
        assert_eq!(locate(0x5000_0010, 0xf0), Ok(0x7010));
        assert_eq!(locate(0x5000_0100, 0), Ok(0x7100));
        for (address, length) in [
            (0x5000_0000, 0x101),
            (0x5000_0101, 0),
            (0x4fff_ffff, 1),
            (0x4fff_ffff, 2),
            (0x5000_0001, u64::MAX),
            (0x5000_00ff, u64::MAX - 0x5000_00fe),
            (0, 1),
            (u64::MAX, 1),
        ] {
            assert_eq!(locate(address, length), Err(MemoryError::OutOfRange), "{length} at {address:#x}");
        }
    }

    #[test]
    fn a_region_may_end_at_the_end_of_the_iova_space_but_not_wrap() {
        let mut table = RegionTable::new(8);
        let top = u64::MAX - 0xff;
        let keys = register(&mut table, 0x7000, 0x100, top, REMOTE).unwrap();
        let locate = |address, length| table.locate_local(7, keys.lkey, address, length, true);
        assert_eq!(locate(u64::MAX, 1), Ok(0x70ff));
        assert_eq!(locate(u64::MAX, 2), Err(MemoryError::OutOfRange));
        assert_eq!(locate(0, 1), Err(MemoryError::OutOfRange));
        assert_eq!(register(&mut table, 0x7000, 0x101, top, REMOTE).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(register(&mut table, top, 0x101, 0, REMOTE).unwrap_err().errno(), libc::EINVAL);
    }

    #[test]
    fn registration_checks_flags_and_keeps_optional_ones_harmless() {
        let mut table = RegionTable::new(8);
        for bad in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::from_bits_retain(0x400)] {
            assert_eq!(register(&mut table, 0x7000, 8, 0, bad).unwrap_err().errno(), libc::EINVAL, "{bad:?}");
        }
        let optional = Access::from_bits_retain(1 << 25) | Access::RELAXED_ORDERING;
        let keys = register(&mut table, 0x7000, 8, 0x7000, optional).unwrap();
        assert_eq!(table.region(keys.handle).unwrap().access, Access::RELAXED_ORDERING);
        register(&mut table, 0, u64::MAX, 0, Access::ON_DEMAND).unwrap();
        assert_eq!(register(&mut table, 0, u64::MAX, 0, Access::empty()).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(
            register(&mut table, 8, u64::MAX, 0, Access::ON_DEMAND).unwrap_err().errno(),
            libc::EINVAL
        );
    }

    #[test]
    fn length_zero_registers_and_opens_nothing() {
        let mut table = RegionTable::new(8);
        let keys = register(&mut table, 0x7000, 0, 0x7000, REMOTE).unwrap();
        assert_eq!(table.locate_local(7, keys.lkey, 0x7000, 1, false), Err(MemoryError::OutOfRange));
        assert_eq!(table.locate_local(7, keys.lkey, 0x7000, 0, false), Ok(0x7000));
    }

    #[test]
    fn keys_of_gone_regions_are_refused_while_their_place_is_reused() {
        let mut table = RegionTable::new(1);
        let mut seen = Vec::new();
        for _ in 0..256 {
            let keys = register(&mut table, 0x7000, 8, 0x7000, REMOTE).unwrap();
            assert_ne!(keys.rkey, 0);
            for stale in &seen {
                assert_eq!(
                    table.locate_remote(key(*stale), 0x7000, 1, Access::empty()),
                    Err(MemoryError::UnknownKey)
                );
            }
            assert!(!seen.contains(&keys.rkey));
            seen.push(keys.rkey);
            table.deregister(keys.handle).unwrap();
        }
        for key in [0, 0xff, 0x100, u32::MAX] {
            assert_eq!(table.locate_local(7, key, 0x7000, 1, false), Err(MemoryError::UnknownKey));
        }
    }

    #[test]
    fn domain_and_rights_are_checked() {
        let mut table = RegionTable::new(8);
        let keys = register(&mut table, 0x7000, 8, 0x7000, Access::REMOTE_READ).unwrap();
        assert_eq!(table.locate_local(7, keys.lkey, 0x7000, 8, false), Ok(0x7000));
        assert_eq!(table.locate_local(7, keys.lkey, 0x7000, 8, true), Err(MemoryError::AccessDenied));
        assert_eq!(table.locate_local(8, keys.lkey, 0x7000, 8, false), Err(MemoryError::WrongDomain));
        let remote = |pd, access| table.locate_remote(RemoteKey { pd, ..key(keys.rkey) }, 0x7000, 8, access);
        assert_eq!(remote(7, Access::REMOTE_READ), Ok(0x7000));
        assert_eq!(remote(7, Access::REMOTE_WRITE), Err(MemoryError::AccessDenied));
        assert_eq!(remote(8, Access::REMOTE_READ), Err(MemoryError::WrongDomain));
    }

    #[test]
    fn zero_based_regions_count_from_zero() {
        let mut table = RegionTable::new(8);
        let keys = register(&mut table, 0x7000, 8, 0x7000, REMOTE | Access::ZERO_BASED).unwrap();
        assert_eq!(table.locate_local(7, keys.lkey, 4, 4, true), Ok(0x7004));
        assert_eq!(table.locate_local(7, keys.lkey, 0x7000, 4, true), Err(MemoryError::OutOfRange));
    }

    #[test]
    fn rereg_changes_only_what_it_is_asked_to_or_nothing() {
        let mut table = RegionTable::new(8);
        let keys = register(&mut table, 0x7000, 8, 0x7000, REMOTE).unwrap();
        let before = table.region(keys.handle).unwrap();
        let mut rereg = |change| {
            // SAFETY: the range is only located, never accessed.
            let result = unsafe { table.rereg(keys.handle, change) };
            (result, table.region(keys.handle).unwrap())
        };
        let bad = [
            RegionChange { translation: Some((0, 8, 0)), ..RegionChange::default() },
            RegionChange { translation: Some((0x9000, 0, 0x9000)), ..RegionChange::default() },
            RegionChange { translation: Some((u64::MAX, 2, 0)), pd: Some(9), access: None },
            RegionChange { pd: Some(9), access: Some(Access::REMOTE_WRITE), translation: None },
        ];
        for change in bad {
            let (result, now) = rereg(change);
            assert_eq!(result.unwrap_err().errno(), libc::EINVAL);
            assert_eq!(now, before);
        }
        let (result, now) = rereg(RegionChange { pd: Some(9), ..RegionChange::default() });
        assert_eq!((result, now), (Ok(keys), RegionInfo { pd: 9, ..before }));
        let (_, now) = rereg(RegionChange { access: Some(Access::LOCAL_WRITE), ..RegionChange::default() });
        assert_eq!(now, RegionInfo { pd: 9, access: Access::LOCAL_WRITE, ..before });
        let (_, now) =
            rereg(RegionChange { translation: Some((0x9000, 4, 0xa000)), ..RegionChange::default() });
        assert_eq!((now.address, now.length, now.iova), (0x9000, 4, 0xa000));
        assert_eq!(table.locate_local(9, keys.lkey, 0xa002, 2, true), Ok(0x9002));
    }
}
