//! Memory regions and windows of a device, and the domains they belong to.

use std::sync::Arc;

use pumice_memory::{
    Advice, DeviceMemory, FileMapping, IndirectKeyInit, PageRange, RegionChange, RegionInfo, RegionKeys,
    SignatureError, WindowKeys, WindowType,
};
use pumice_model::event::{Event, Topics};
use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::types::{Access, Sge};

use super::tables::Resources;

impl Resources {
    /// Registers memory; see [`register`](pumice_memory::RegionTable::register).
    ///
    /// # Safety
    /// As [`register`](pumice_memory::RegionTable::register).
    ///
    /// # Errors
    /// As [`register`](pumice_memory::RegionTable::register); a stale PD.
    pub unsafe fn register_region(
        &mut self,
        pd: Handle,
        address: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Result<RegionKeys, ResourceError> {
        self.registers(pd)?;
        // SAFETY: the caller vouches for the range.
        let keys = unsafe { self.objects.memory.register(pd.index, address, length, iova, access) }?;
        self.objects.use_pd(pd);
        self.emit_registered(&keys);
        Ok(keys)
    }

    /// Changes a region; `pd` moves it to another protection domain, and `change.pd` is not used.
    ///
    /// # Safety
    /// As [`rereg`](pumice_memory::RegionTable::rereg).
    ///
    /// # Errors
    /// As [`rereg`](pumice_memory::RegionTable::rereg); a stale PD.
    pub unsafe fn rereg_region(
        &mut self,
        region: Handle,
        pd: Option<Handle>,
        change: RegionChange,
    ) -> Result<RegionKeys, ResourceError> {
        if let Some(pd) = pd {
            self.objects.pds.require(pd)?;
        }
        self.drain_stores();
        let old_pd = self.objects.memory.region(region)?.pd;
        let change = RegionChange { pd: pd.map(|pd| pd.index), ..change };
        // SAFETY: the caller vouches for the range.
        let keys = unsafe { self.objects.memory.rereg(region, change) }?;
        if let Some(pd) = pd {
            self.objects.use_pd(pd);
            self.objects.release_pd(old_pd);
        }
        self.emit_registered(&keys);
        Ok(keys)
    }

    /// Marks a region as one of mapped files; see
    /// [`set_of_files`](pumice_memory::RegionTable::set_of_files).
    ///
    /// # Errors
    /// `Invalid`: a stale handle.
    pub fn set_region_of_files(&mut self, region: Handle) -> Result<(), ResourceError> {
        self.objects.memory.set_of_files(region)
    }

    /// Ends a registration.
    ///
    /// # Errors
    /// `Busy`: windows are bound to the region. `Invalid`: a stale handle.
    pub fn deregister_region(&mut self, region: Handle) -> Result<(), ResourceError> {
        self.drain_stores();
        let RegionKeys { lkey, rkey, .. } = self.objects.memory.keys_of(region);
        let info = self.objects.memory.deregister(region)?;
        self.objects.release_pd(info.pd);
        self.listeners.subscribers.emit(&Event::RegionDeregistered { lkey, rkey });
        Ok(())
    }

    /// Prepares a registration in a domain: who listens to registrations can tell the two keys of a region
    /// apart, and say which one a program took for the other.
    fn registers(&mut self, pd: Handle) -> Result<(), ResourceError> {
        self.objects.pds.require(pd)?;
        self.objects.memory.set_keys_apart(self.listeners.subscribers.listen(Topics::REGIONS));
        Ok(())
    }

    /// Emits an event for memory that was registered.
    fn emit_registered(&self, keys: &RegionKeys) {
        if !self.listeners.subscribers.listen(Topics::REGIONS) {
            return;
        }
        if let Ok(region) = self.objects.memory.region(keys.handle) {
            let RegionInfo { address, length, iova, stays_mapped, access, .. } = region;
            let RegionKeys { lkey, rkey, .. } = *keys;
            let relaxed = access.contains(Access::RELAXED_ORDERING);
            self.listeners.subscribers.emit(&Event::RegionRegistered {
                lkey,
                rkey,
                address,
                length,
                iova,
                stays_mapped,
                relaxed,
            });
        }
    }

    /// Allocates a memory window.
    ///
    /// # Errors
    /// `NoMemory`: the table is full. `Invalid`: a stale PD.
    pub fn alloc_window(&mut self, pd: Handle, window: WindowType) -> Result<WindowKeys, ResourceError> {
        self.objects.pds.require(pd)?;
        let keys = self.objects.memory.alloc_window(pd.index, window)?;
        self.objects.use_pd(pd);
        Ok(keys)
    }

    /// Returns the present key of a memory window; `None`: a stale handle.
    pub fn window_key(&self, window: Handle) -> Option<u32> {
        self.objects.memory.window_key(window)
    }

    /// Frees a memory window, bound or not.
    ///
    /// # Errors
    /// `Invalid`: a stale handle.
    pub fn dealloc_window(&mut self, window: Handle) -> Result<(), ResourceError> {
        self.drain_stores();
        let pd = self.objects.memory.dealloc_window(window)?;
        self.objects.release_pd(pd);
        Ok(())
    }

    /// Creates an indirect key; see
    /// [`make_indirect_key`](pumice_memory::RegionTable::make_indirect_key).
    ///
    /// # Errors
    /// As there; a stale PD.
    pub fn make_indirect_key(
        &mut self,
        pd: Handle,
        init: IndirectKeyInit,
    ) -> Result<RegionKeys, ResourceError> {
        self.objects.pds.require(pd)?;
        let keys = self.objects.memory.make_indirect_key(pd.index, init)?;
        self.objects.use_pd(pd);
        Ok(keys)
    }

    /// Takes the first error in the data of an indirect key since the last call; the outer `None`: no such
    /// key exists.
    pub fn take_signature_error(&mut self, key: u32) -> Option<Option<SignatureError>> {
        self.objects.memory.take_signature_error(key)
    }

    /// Ends an indirect key.
    ///
    /// # Errors
    /// `Invalid`: a stale handle.
    pub fn end_indirect_key(&mut self, key: Handle) -> Result<(), ResourceError> {
        self.drain_stores();
        let pd = self.objects.memory.end_indirect_key(key)?;
        self.objects.release_pd(pd);
        Ok(())
    }

    /// Registers device memory; see
    /// [`register_device_memory`](pumice_memory::RegionTable::register_device_memory).
    ///
    /// # Errors
    /// As there; a stale PD.
    pub fn register_device_memory(
        &mut self,
        pd: Handle,
        memory: &Arc<DeviceMemory>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<RegionKeys, ResourceError> {
        self.registers(pd)?;
        let keys = self.objects.memory.register_device_memory(pd.index, memory, offset, length, access)?;
        self.objects.use_pd(pd);
        self.emit_registered(&keys);
        Ok(keys)
    }

    /// Registers a part of a file; see [`register_file`](pumice_memory::RegionTable::register_file).
    ///
    /// # Errors
    /// As there; a stale PD.
    pub fn register_file(
        &mut self,
        pd: Handle,
        mapping: FileMapping,
        iova: u64,
        access: Access,
    ) -> Result<RegionKeys, ResourceError> {
        self.registers(pd)?;
        let keys = self.objects.memory.register_file(pd.index, mapping, iova, access)?;
        self.objects.use_pd(pd);
        self.emit_registered(&keys);
        Ok(keys)
    }

    /// Creates a null region; see
    /// [`register_nothing`](pumice_memory::RegionTable::register_nothing).
    ///
    /// # Errors
    /// As there; a stale PD.
    pub fn register_nothing(&mut self, pd: Handle) -> Result<RegionKeys, ResourceError> {
        self.objects.pds.require(pd)?;
        let keys = self.objects.memory.register_nothing(pd.index)?;
        self.objects.use_pd(pd);
        Ok(keys)
    }

    /// Returns the region at a table index, if it is of domain `pd`.
    ///
    /// # Errors
    /// `Invalid`: no region has this index, or it is of another domain.
    pub fn region_at(&self, pd: Handle, index: u32) -> Result<(RegionKeys, RegionInfo), ResourceError> {
        self.objects.pds.require(pd)?;
        let (keys, info) = self.objects.memory.region_at(index)?;
        if info.pd != pd.index {
            return Err(ResourceError::invalid(format!(
                "memory region {index} is of another protection domain"
            )));
        }
        Ok((keys, info))
    }

    /// Returns the memory that advice is about; see
    /// [`advised`](pumice_memory::RegionTable::advised).
    ///
    /// # Errors
    /// As there; a stale PD.
    pub fn advised(&self, pd: Handle, advice: Advice, sge: &Sge) -> Result<PageRange, ResourceError> {
        self.objects.pds.require(pd)?;
        self.objects.memory.advised(pd.index, advice, sge)
    }
}
