//! Memory regions: registration, change and end.

use std::sync::Arc;

use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::types::Access;

use super::device_memory::Registration;
use super::grant::{BackedBy, Backing, EntryKind, Grant, KeyEntry};
use super::watch::Watch;
use super::{DeviceMemory, FileMapping, RegionTable, on_demand};

/// The keys and the handle that a registration returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionKeys {
    /// Local key, for scatter/gather elements. Never 0.
    pub lkey: u32,
    /// Remote key, for peers. Never 0.
    pub rkey: u32,
    /// Handle of the region.
    pub handle: Handle,
}

/// The current state of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionInfo {
    /// Protection domain.
    pub pd: u32,
    /// Address of the first byte in this process.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Address of the first byte as scatter/gather elements and peers give it.
    pub iova: u64,
    /// Access rights.
    pub access: Access,
    /// Number of memory windows bound to it.
    pub bound_windows: u32,
    /// The region is not paged on demand: it is mapped unless the program takes it away.
    pub stays_mapped: bool,
}

/// Changes of a region (`ibv_rereg_mr`); keys stay the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct RegionChange {
    /// Another range: address in this process, bytes, iova.
    pub translation: Option<(u64, u64, u64)>,
    /// Another protection domain.
    pub pd: Option<u32>,
    /// Other rights.
    pub access: Option<Access>,
}

/// Least size of a page.
const PAGE_BYTES: u64 = 4096;

impl RegionTable {
    /// Rights that a region may have.
    const REGION_ACCESS: Access = Access::all();

    /// Registers `length` bytes of this process at `address`; users of the keys call the first byte `iova`,
    /// or 0 with [`Access::ZERO_BASED`]. Length 0 is legal inside a page: every access then fails.
    ///
    /// With [`Access::ON_DEMAND`] the range need not be mapped: an access to a page that is not mapped fails.
    /// Address 0 and length 2^64 - 1 then mean the whole address space (an implicit region).
    ///
    /// # Safety
    /// Until the region is deregistered, the range must be memory for which reads and writes by the device
    /// (from any thread, at any time) are acceptable to its owner. If the program takes it away (unless it is
    /// on demand), a [`MappingChange`](super::MappingChange) must say so, or nothing else may come there.
    ///
    /// # Errors
    /// Fails with `Invalid` for remote write or atomic without local write, unknown access flags, a range
    /// that wraps, or that has no page (nothing, from the beginning of one); with `NotSupported` for on
    /// demand, where the kernel refuses the system calls for it; and with `NoMemory` if the table is full.
    pub unsafe fn register(
        &mut self,
        pd: u32,
        address: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Result<RegionKeys, ResourceError> {
        let access = RegionTable::check_access(access)?;
        //= man:ibv_reg_mr
        //| The addresses of a zero-based region count from its beginning.
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { iova };
        RegionTable::check_range(address, length, iova, access)?;
        let watch = watch_of(address, length, access);
        let watched = watch.as_ref().map(Watch::watched);
        self.insert_region(watch.map(|watch| BackedBy::Program { _watch: watch }), |(key, apart)| Grant {
            key,
            apart,
            pd,
            address,
            iova,
            length,
            access,
            backing: Backing::of(access),
            live: true,
            qpn: None,
            watched,
        })
    }

    /// Registers part of device memory, whose first byte users of the keys call 0.
    ///
    /// # Errors
    /// Fails with `Invalid` if not zero-based, for more than the device memory has, and for rights as
    /// [`RegionTable::register`] does; with `NoMemory` if the table is full.
    pub fn register_device_memory(
        &mut self,
        pd: u32,
        memory: &Arc<DeviceMemory>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<RegionKeys, ResourceError> {
        let access = RegionTable::check_access(access)?;
        //= man:ibv_alloc_dm
        //| Device memory is registered with ZERO_BASED.
        if !access.contains(Access::ZERO_BASED) || access.contains(Access::ON_DEMAND) {
            return Err(ResourceError::invalid("device memory is registered ZERO_BASED, and not ON_DEMAND"));
        }
        let address = memory.locate(offset, length)?;
        let backed_by = BackedBy::DeviceMemory { _registration: Registration::new(memory) };
        self.insert_region(Some(backed_by), |(key, apart)| Grant {
            key,
            apart,
            pd,
            address,
            iova: 0,
            length,
            access,
            backing: Backing::Mapped,
            live: true,
            qpn: None,
            watched: None,
        })
    }

    /// Registers a part of a file, whose first byte users of the keys call `iova`.
    ///
    /// # Errors
    /// Fails with `Invalid` for on demand, for rights as [`RegionTable::register`] does, and for a range that
    /// wraps; with `NoMemory` if the table is full.
    pub fn register_file(
        &mut self,
        pd: u32,
        mapping: FileMapping,
        iova: u64,
        access: Access,
    ) -> Result<RegionKeys, ResourceError> {
        let access = RegionTable::check_access(access)?;
        if access.contains(Access::ON_DEMAND) {
            return Err(ResourceError::invalid("a DMA-buf or another file is not registered ON_DEMAND"));
        }
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { iova };
        let (address, length) = (mapping.address(), mapping.length());
        RegionTable::check_range(address, length, iova, access)?;
        // A page that vanishes with a shorter file must not end the process.
        let backing = if mapping.is_fixed() { Backing::Mapped } else { Backing::OnDemand };
        self.insert_region(Some(BackedBy::File { _mapping: mapping }), |(key, apart)| Grant {
            key,
            apart,
            pd,
            address,
            iova,
            length,
            access,
            backing,
            live: true,
            qpn: None,
            watched: None,
        })
    }

    /// Makes a region of every address that reads as zeros and drops written data; local use only.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the table is full.
    pub fn register_nothing(&mut self, pd: u32) -> Result<RegionKeys, ResourceError> {
        self.insert_region(None, |(key, apart)| Grant {
            key,
            apart,
            pd,
            address: 0,
            iova: 0,
            length: u64::MAX,
            access: Access::LOCAL_WRITE,
            backing: Backing::Nothing,
            live: true,
            qpn: None,
            watched: None,
        })
    }

    fn insert_region(
        &mut self,
        backed_by: Option<BackedBy>,
        grant: impl FnOnce((u32, u32)) -> Grant,
    ) -> Result<RegionKeys, ResourceError> {
        let apart = self.apart();
        let handle = self.insert(|key| KeyEntry {
            grant: grant((key, apart)),
            kind: EntryKind::Region { bound_windows: 0, backed_by },
        })?;
        Ok(self.keys_of(handle))
    }

    /// Returns the keys of a region; 0 for a stale handle.
    pub fn keys_of(&self, handle: Handle) -> RegionKeys {
        let grant = self.entries.get(handle).map(|entry| &entry.grant);
        let (lkey, rkey) = grant.map_or((0, 0), |grant| (grant.key, grant.rkey()));
        RegionKeys { lkey, rkey, handle }
    }

    /// Changes a region in place. On an error the region is as before.
    ///
    /// # Safety
    /// As for [`RegionTable::register`], for the range and rights after the change.
    ///
    /// # Errors
    /// Fails with `Invalid` as at registration, for a new range that is null or empty, and for a stale
    /// handle; with `Busy` if windows are bound to the region.
    pub unsafe fn rereg(
        &mut self,
        handle: Handle,
        change: RegionChange,
    ) -> Result<RegionKeys, ResourceError> {
        let info = self.region(handle)?;
        if info.bound_windows != 0 {
            return Err(self.busy_with_windows(handle, info.bound_windows));
        }
        if !self.entries.require(handle)?.is_own_memory() {
            return Err(ResourceError::invalid(
                "null regions and regions of device memory or files cannot be changed",
            ));
        }
        let access = match change.access {
            Some(access) => RegionTable::check_access(access)?,
            None => info.access,
        };
        let (address, length, mut iova) = match change.translation {
            Some((address, length, _)) if address == 0 || length == 0 || length == u64::MAX => {
                return Err(ResourceError::invalid(format!(
                    "the new range of the region ({length} bytes at {address:#x}) must not be null, empty \
                    or everything"
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
        let backing = match Backing::of(access) {
            Backing::Mapped if change.translation.is_none() && entry.grant.backing == Backing::File => {
                Backing::File
            }
            backing => backing,
        };
        if change.translation.is_some() || backing != entry.grant.backing {
            // The registration now covers the memory that is mapped now.
            let watch = watch_of(address, length, access);
            entry.grant.watched = watch.as_ref().map(Watch::watched);
            if let EntryKind::Region { backed_by, .. } = &mut entry.kind {
                *backed_by = watch.map(|watch| BackedBy::Program { _watch: watch });
            }
        }
        entry.grant = Grant { pd, address, iova, length, access, backing, ..entry.grant };
        Ok(self.keys_of(handle))
    }

    /// Marks a region as being of mapped files, in part or whole: another process may shorten them.
    ///
    /// # Errors
    /// Fails with `Invalid` for a stale handle.
    pub fn set_of_files(&mut self, handle: Handle) -> Result<(), ResourceError> {
        let grant = &mut self.entries.require_mut(handle)?.grant;
        if grant.backing == Backing::Mapped {
            grant.backing = Backing::File;
        }
        Ok(())
    }

    /// Ends a registration; its keys are refused from now on. Returns its last state.
    ///
    /// # Errors
    /// Fails with `Busy` if windows are bound to it, and with `Invalid` for a stale handle, or a window's.
    pub fn deregister(&mut self, handle: Handle) -> Result<RegionInfo, ResourceError> {
        let info = self.region(handle)?;
        //= statement:46
        //| A region with bound windows stays.
        if info.bound_windows != 0 {
            return Err(self.busy_with_windows(handle, info.bound_windows));
        }
        self.remove(handle);
        Ok(info)
    }

    /// Returns the region with this handle.
    ///
    /// # Errors
    /// Fails with `Invalid` for a stale handle, or a window's.
    pub fn region(&self, handle: Handle) -> Result<RegionInfo, ResourceError> {
        let entry = self.entries.require(handle)?;
        let EntryKind::Region { bound_windows, .. } = entry.kind else {
            return Err(ResourceError::invalid("another key was given where a memory region belongs"));
        };
        let Grant { pd, address, length, iova, access, backing, .. } = entry.grant;
        let stays_mapped = backing.stays_mapped();
        Ok(RegionInfo { pd, address, length, iova, access, bound_windows, stays_mapped })
    }

    /// Returns all regions: the keys of each, and its state.
    pub fn regions(&self) -> impl Iterator<Item = (RegionKeys, RegionInfo)> {
        let handles = self.entries.iter().map(|(handle, _)| handle);
        handles.filter_map(|handle| Some((self.keys_of(handle), self.region(handle).ok()?)))
    }

    /// Returns the region at an index of the table: its keys, and its state.
    ///
    /// # Errors
    /// Fails with `Invalid` if there is no region.
    pub fn region_at(&self, index: u32) -> Result<(RegionKeys, RegionInfo), ResourceError> {
        let handle = self
            .entries
            .handle_at(index)
            .ok_or_else(|| ResourceError::invalid(format!("there is no memory region {index}")))?;
        let info = self.region(handle)?;
        Ok((self.keys_of(handle), info))
    }

    fn check_access(access: Access) -> Result<Access, ResourceError> {
        let required = access.bits() & !Access::OPTIONAL_RANGE;
        let unknown = required & !RegionTable::REGION_ACCESS.bits();
        if unknown != 0 {
            return Err(ResourceError::invalid(format!("unknown access flags {unknown:#x}")));
        }
        //= man:ibv_reg_mr
        //| REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE.
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
            //= man:ibv_reg_mr
            //| A region of the whole address space is on demand, begins at 0 and has the largest length.
            return if address == 0 && iova == 0 && access.contains(Access::ON_DEMAND) {
                Ok(())
            } else {
                Err(ResourceError::invalid(
                    "length 2^64 - 1: only implicit on-demand regions have it, at address 0",
                ))
            };
        }
        if length == 0 && address.is_multiple_of(PAGE_BYTES) {
            // As in every driver of Linux that pins: nothing inside a page is one page, and nothing at the
            // beginning of a page is none.
            return Err(ResourceError::invalid(format!(
                "a region of length 0 at {address:#x}, the beginning of a page, has no page"
            )));
        }
        for (name, first) in [("address", address), ("iova", iova)] {
            if wraps(first, length) {
                return Err(ResourceError::invalid(format!(
                    "{length} bytes from {name} {first:#x} wrap around the address space"
                )));
            }
        }
        if usize::try_from(address.saturating_add(length.saturating_sub(1))).is_err() {
            return Err(ResourceError::BadAddress { address, length });
        }
        Ok(())
    }

    /// Returns the error for a region that windows are bound to, which names them.
    fn busy_with_windows(&self, handle: Handle, count: u32) -> ResourceError {
        let windows = self.entries.iter().filter(|(_, entry)| match entry.kind {
            EntryKind::Window { region, .. } => region == Some(handle.index),
            EntryKind::Region { .. } | EntryKind::Indirect(_) => false,
        });
        let rkeys: Vec<String> =
            windows.take(6).map(|(_, entry)| format!("{:#010x}", entry.grant.key)).collect();
        ResourceError::busy(format!(
            "the memory region has {count} memory windows bound to it (rkeys {}); unbind them first",
            rkeys.join(", ")
        ))
    }
}

/// Reports whether the last byte of a range is beyond the last address.
const fn wraps(first: u64, length: u64) -> bool {
    first.checked_add(length.saturating_sub(1)).is_none()
}

/// Watches memory of the program that is not paged on demand.
fn watch_of(address: u64, length: u64, access: Access) -> Option<Watch> {
    (Backing::of(access) == Backing::Mapped).then(|| Watch::new(address, length))
}

#[cfg(any(test, kani))]
#[path = "region_proofs.rs"]
mod proofs;

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
