//! Memory: regions and windows, device memory, advice.

use std::sync::Arc;

use pumice_memory::{
    Advice, DeviceMemory, FileMapping, IndirectKeyInit, RegionChange, RegionInfo, RegionKeys, SignatureError,
    WindowKeys, WindowType,
};
use pumice_platform::table::Handle;
use pumice_transport::types::{Access, Sge};

use super::{Hca, HcaError};

impl Hca {
    /// Registers `length` bytes at `address` of this process; peers and scatter/gather elements call
    /// the first byte `iova`.
    ///
    /// # Safety
    /// The range stays mapped, with the rights that `access` asks for, until it is deregistered.
    /// Reads and writes by peers happen at any time in between, as with any DMA.
    ///
    /// # Errors
    /// The range wraps, the rights contradict each other, the PD is stale, the table is full.
    pub unsafe fn reg_mr(
        &self,
        pd: Handle,
        address: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Result<RegionKeys, HcaError> {
        // SAFETY: the caller vouches for the range.
        let made = unsafe { self.core.lock().resources.register_region(pd, address, length, iova, access) };
        Ok(self.publish_after(made)?)
    }

    /// Changes a region: translation, protection domain, rights.
    ///
    /// # Safety
    /// As [`Hca::reg_mr`] for the new range.
    ///
    /// # Errors
    /// As [`Hca::reg_mr`]; the old registration stays.
    pub unsafe fn rereg_mr(
        &self,
        region: Handle,
        pd: Option<Handle>,
        change: RegionChange,
    ) -> Result<RegionKeys, HcaError> {
        // SAFETY: the caller vouches for the range.
        Ok(unsafe { self.core.lock().resources.rereg_region(region, pd, change) }?)
    }

    /// Marks a region as one of mapped files, which another process may shorten: its faults are expected.
    ///
    /// # Errors
    /// A stale handle.
    pub fn set_mr_of_files(&self, region: Handle) -> Result<(), HcaError> {
        Ok(self.core.lock().resources.set_region_of_files(region)?)
    }

    /// Returns the present attributes of a region.
    ///
    /// # Errors
    /// A stale handle.
    pub fn query_mr(&self, region: Handle) -> Result<RegionInfo, HcaError> {
        Ok(self.core.lock().resources.memory().region(region)?)
    }

    /// Ends a registration: from now on the device does not access the range.
    ///
    /// # Errors
    /// Busy: windows are bound to the region.
    pub fn dereg_mr(&self, region: Handle) -> Result<(), HcaError> {
        let ended = self.core.lock_own()?.resources.deregister_region(region);
        Ok(self.publish_after(ended)?)
    }

    /// Allocates a memory window.
    ///
    /// # Errors
    /// The table is full, the PD is stale.
    pub fn alloc_mw(&self, pd: Handle, window: WindowType) -> Result<WindowKeys, HcaError> {
        Ok(self.core.lock().resources.alloc_window(pd, window)?)
    }

    /// Returns the present key of a memory window, which is that of the last bind that was executed; `None`:
    /// a stale handle.
    pub fn window_key(&self, window: Handle) -> Option<u32> {
        self.core.lock().resources.window_key(window)
    }

    /// Frees a memory window, bound or not.
    ///
    /// # Errors
    /// A stale handle.
    pub fn dealloc_mw(&self, window: Handle) -> Result<(), HcaError> {
        Ok(self.core.lock_own()?.resources.dealloc_window(window)?)
    }

    /// Creates an indirect key; a work request configures later to which pieces of regions it leads.
    ///
    /// # Errors
    /// The table is full, the PD is stale.
    pub fn make_indirect_key(&self, pd: Handle, init: IndirectKeyInit) -> Result<RegionKeys, HcaError> {
        let made = self.core.lock().resources.make_indirect_key(pd, init);
        Ok(self.publish_after(made)?)
    }

    /// Takes the first error in the data of an indirect key since the last call; the outer `None`: no such
    /// key exists.
    pub fn take_signature_error(&self, key: u32) -> Option<Option<SignatureError>> {
        self.core.lock().resources.take_signature_error(key)
    }

    /// Ends an indirect key, configured or not.
    ///
    /// # Errors
    /// A stale handle.
    pub fn end_indirect_key(&self, key: Handle) -> Result<(), HcaError> {
        let ended = self.core.lock_own()?.resources.end_indirect_key(key);
        Ok(self.publish_after(ended)?)
    }

    /// Allocates device memory.
    ///
    /// # Errors
    /// A length of 0, an alignment beyond a page, or more memory than there is.
    pub fn alloc_dm(&self, length: u64, log_align: u32) -> Result<Arc<DeviceMemory>, HcaError> {
        Ok(self.device_memory.allocate(length, log_align)?)
    }

    /// Registers part of device memory; the address of its first byte is 0.
    ///
    /// # Errors
    /// Not zero-based, not inside the device memory, rights that contradict each other, a stale PD, a full
    /// table.
    pub fn reg_dm_mr(
        &self,
        pd: Handle,
        memory: &Arc<DeviceMemory>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<RegionKeys, HcaError> {
        let made = self.core.lock().resources.register_device_memory(pd, memory, offset, length, access);
        Ok(self.publish_after(made)?)
    }

    /// Registers a part of a file, which stays mapped until it is deregistered; peers and scatter/gather
    /// elements call its first byte `iova`.
    ///
    /// # Errors
    /// On demand, rights that contradict each other, a range that wraps, a stale PD, a full table.
    pub fn reg_file_mr(
        &self,
        pd: Handle,
        mapping: FileMapping,
        iova: u64,
        access: Access,
    ) -> Result<RegionKeys, HcaError> {
        let made = self.core.lock().resources.register_file(pd, mapping, iova, access);
        Ok(self.publish_after(made)?)
    }

    /// Creates a null region: it has every address, its bytes read as 0, and stores to it are dropped; for
    /// local use.
    ///
    /// # Errors
    /// A stale PD, a full table.
    pub fn alloc_null_mr(&self, pd: Handle) -> Result<RegionKeys, HcaError> {
        let made = self.core.lock().resources.register_nothing(pd);
        Ok(self.publish_after(made)?)
    }

    /// Returns the region at a table index, as another context of the program names it: its handle, its keys,
    /// and its attributes.
    ///
    /// # Errors
    /// No region has this index, or it is of another protection domain.
    pub fn region_at(&self, pd: Handle, index: u32) -> Result<(RegionKeys, RegionInfo), HcaError> {
        Ok(self.core.lock().resources.region_at(pd, index)?)
    }

    /// Prefetches ranges of on-demand regions: with `wait` their pages are present afterwards, else errors of
    /// the pages themselves are not reported.
    ///
    /// # Errors
    /// ENOENT: no such key. EPERM: another domain, or a right is missing. EINVAL: not an on-demand region.
    /// EFAULT: outside of the region, or not mapped.
    pub fn advise_mr(&self, pd: Handle, advice: Advice, sges: &[Sge], wait: bool) -> Result<(), HcaError> {
        // All elements are checked before the first one is touched.
        for sge in sges {
            self.core.lock().resources.advised(pd, advice, sge)?;
        }
        for sge in sges {
            let range = self.core.lock().resources.advised(pd, advice, sge)?;
            match range.page_in(advice) {
                Err(error) if wait => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}
