//! Memory regions: memory that the device and peers may access.

#![allow(unsafe_code)] // registration gives addresses away

use std::ops::RangeBounds;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_calls::Call;
use pumice_device::memory::RegionChange;
use pumice_device::platform::table::Handle;
use pumice_transport::types::Access;

use super::ProtectionDomain;
use crate::buffers;
use crate::buffers::buffer::RegionBuffer;
use crate::buffers::{LocalSlice, RemoteSlice};
use crate::device::calls::gated_call;
use crate::error::{Result, VerbsError};

/// Registered memory. Peers and the device may write it at any time, so there are no references to its bytes:
/// copy in and out, or use atomics. Cheap to clone; deregistered (and freed, if owned) with its last clone.
/// Requests that still name it then complete with `LOC_PROT_ERR` here or `REM_ACCESS_ERR` at peers.
#[derive(Debug, Clone)]
pub struct MemoryRegion(Arc<RegionInner>);

#[derive(Debug)]
struct RegionInner {
    /// The buffer; it is taken out when the region is dropped.
    buffer: Option<RegionBuffer>,
    writable: bool,
    /// Address of the first byte for users of the keys.
    iova: u64,
    lkey: u32,
    rkey: u32,
    handle: Handle,
    registration: Mutex<RegionRegistration>,
}

/// The properties of a region that can change.
#[derive(Debug)]
struct RegionRegistration {
    domain: ProtectionDomain,
    access: Access,
}

impl ProtectionDomain {
    /// Allocates and registers `length` zeroed bytes on a page boundary. Rights of peers to write also need
    /// `LOCAL_WRITE`. With `ZERO_BASED`, slices count from 0 instead of from the memory's address.
    ///
    /// # Errors
    /// `Invalid`: there is not enough memory. `Refused`: the rights contradict each other.
    pub fn allocate(&self, length: usize, access: Access) -> Result<MemoryRegion> {
        let buffer = RegionBuffer::zeroed(length).ok_or_else(|| VerbsError::Invalid {
            object: "memory region",
            attribute: "length",
            problem: format!("of {length} bytes is more than the system has"),
            remedy: "ask for less",
        })?;
        // SAFETY: the buffer is mapped and writable until `MemoryRegion` frees it, after deregistration.
        unsafe { MemoryRegion::register(self, buffer, access, true) }
    }

    /// Registers memory of the caller.
    ///
    /// # Safety
    /// Until the last clone of the region is dropped (and, if memory windows are bound to it, until they are
    /// dropped), the range stays mapped, readable, and writable if `access` has `LOCAL_WRITE`. The device and
    /// peers read and write it at any time as `access` permits: no reference to it may exist that forbids
    /// this.
    ///
    /// # Errors
    /// `Invalid`: the null address. `Refused`: the rights contradict each other.
    pub unsafe fn register_raw(&self, start: *mut u8, length: usize, access: Access) -> Result<MemoryRegion> {
        // SAFETY: the caller vouches for the range.
        let buffer = unsafe { RegionBuffer::foreign(start, length) }.ok_or(VerbsError::Invalid {
            object: "memory region",
            attribute: "start",
            problem: "is null".to_owned(),
            remedy: "give mapped memory",
        })?;
        // SAFETY: the caller vouches for the range.
        unsafe { MemoryRegion::register(self, buffer, access, access.contains(Access::LOCAL_WRITE)) }
    }
}

impl MemoryRegion {
    /// # Safety
    /// The buffer stays mapped, with what `access` asks for, until deregistration.
    unsafe fn register(
        domain: &ProtectionDomain,
        buffer: RegionBuffer,
        access: Access,
        writable: bool,
    ) -> Result<MemoryRegion> {
        let (address, length) = (buffer.address(), buffer.len() as u64);
        let (device, pd) = (domain.device(), domain.handle());
        let keys = gated_call(device, Call::ibv_reg_mr, || {
            // SAFETY: the caller guarantees what this function requires.
            let keys = unsafe { device.hca().reg_mr(pd, address, length, address, access) };
            keys.map_err(VerbsError::refused("memory region"))
        })?;
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { address };
        if let Some(check) = device.check() {
            check.region_made(keys.lkey);
        }
        Ok(MemoryRegion(Arc::new(RegionInner {
            buffer: Some(buffer),
            writable,
            iova,
            lkey: keys.lkey,
            rkey: keys.rkey,
            handle: keys.handle,
            registration: Mutex::new(RegionRegistration { domain: domain.clone(), access }),
        })))
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.buffer().map_or(0, RegionBuffer::len)
    }

    /// Reports whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the local key.
    pub fn lkey(&self) -> u32 {
        self.0.lkey
    }

    /// Returns the remote key.
    pub fn rkey(&self) -> u32 {
        self.0.rkey
    }

    /// Returns the handle that names the region in calls of [`crate::Device::hca`].
    pub fn handle(&self) -> Handle {
        self.0.handle
    }

    /// Returns the present access rights.
    pub fn access(&self) -> Access {
        self.0.registration().access
    }

    /// Returns the present protection domain.
    pub fn protection_domain(&self) -> ProtectionDomain {
        self.0.registration().domain.clone()
    }

    /// Returns a pointer to the first byte in this process, for operations that only unsafe code can do.
    pub fn as_ptr(&self) -> *mut u8 {
        self.buffer().map_or(std::ptr::null_mut(), RegionBuffer::as_ptr)
    }

    /// Returns a part of the region for local use in requests, by byte offsets.
    ///
    /// # Errors
    /// `Invalid`: the range leaves the region, or is longer than 2^32 - 1 bytes.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<LocalSlice> {
        let (start, length) = buffers::resolve("memory region", range, self.len() as u64)?;
        Ok(LocalSlice { address: self.0.iova.wrapping_add(start), length, lkey: self.0.lkey })
    }

    /// Returns the region as peers name it; its first 2^32 - 1 bytes, if it is longer.
    pub fn remote(&self) -> RemoteSlice {
        let length = u32::try_from(self.len()).unwrap_or(u32::MAX);
        RemoteSlice { address: self.0.iova, rkey: self.0.rkey, length }
    }

    /// Returns a part of the region as peers name it, by byte offsets.
    ///
    /// # Errors
    /// The errors of [`MemoryRegion::slice`].
    pub fn remote_slice(&self, range: impl RangeBounds<usize>) -> Result<RemoteSlice> {
        let LocalSlice { address, length, .. } = self.slice(range)?;
        Ok(RemoteSlice { address, rkey: self.0.rkey, length })
    }

    /// Copies bytes from `offset` into `out`. Data whose arrival a completion reported is there; data that a
    /// peer is writing meanwhile is any mixture of old and new.
    ///
    /// # Errors
    /// `Invalid`: the range leaves the region.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let length = out.len();
        self.buffer().and_then(|buffer| buffer.load(offset, out)).ok_or_else(|| self.outside(offset, length))
    }

    /// Copies `length` bytes from `offset` into a new vector, as [`MemoryRegion::read`] does.
    ///
    /// # Errors
    /// `Invalid`: the range leaves the region.
    pub fn to_vec(&self, offset: usize, length: usize) -> Result<Vec<u8>> {
        if !self.buffer().is_some_and(|buffer| buffer.contains(offset, length)) {
            return Err(self.outside(offset, length));
        }
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// `Invalid`: the range leaves the region, or the region is raw memory registered without `LOCAL_WRITE`.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<()> {
        self.check_writable()?;
        let stored = self.buffer().and_then(|buffer| buffer.store(offset, data));
        stored.ok_or_else(|| self.outside(offset, data.len()))
    }

    /// Sets all bytes.
    ///
    /// # Errors
    /// `Invalid`: raw memory registered without `LOCAL_WRITE`.
    pub fn fill(&self, byte: u8) -> Result<()> {
        self.check_writable()?;
        let filled = self.buffer().and_then(|buffer| buffer.fill(0, buffer.len(), byte));
        filled.ok_or_else(|| self.outside(0, self.len()))
    }

    /// Returns the byte at `offset`, to watch or set while peers write.
    ///
    /// # Errors
    /// `Invalid`: outside, or not writable.
    pub fn atomic_u8(&self, offset: usize) -> Result<&AtomicU8> {
        self.check_writable()?;
        self.buffer().and_then(|buffer| buffer.atomic_u8(offset)).ok_or_else(|| self.outside(offset, 1))
    }

    /// Returns the 4 bytes at `offset`, which is a multiple of 4. A peer's WRITE that ends with them stores
    /// them last and in one piece.
    ///
    /// # Errors
    /// `Invalid`: outside, misaligned, or not writable.
    pub fn atomic_u32(&self, offset: usize) -> Result<&AtomicU32> {
        self.check_writable()?;
        self.buffer().and_then(|buffer| buffer.atomic_u32(offset)).ok_or_else(|| self.outside(offset, 4))
    }

    /// Returns the 8 bytes at `offset`, which is a multiple of 8. Peers' atomics are atomic towards it.
    ///
    /// # Errors
    /// `Invalid`: outside, misaligned, or not writable.
    pub fn atomic_u64(&self, offset: usize) -> Result<&AtomicU64> {
        self.check_writable()?;
        self.buffer().and_then(|buffer| buffer.atomic_u64(offset)).ok_or_else(|| self.outside(offset, 8))
    }

    /// Changes the rights (not `ZERO_BASED`); keys stay the same.
    ///
    /// # Errors
    /// `Refused`: the rights contradict each other, or memory windows are bound. `Invalid`: raw memory
    /// registered without `LOCAL_WRITE` cannot get it.
    pub fn set_access(&self, access: Access) -> Result<()> {
        let mut registration = self.0.registration();
        if access.contains(Access::LOCAL_WRITE) {
            self.check_writable()?;
        }
        let access = access.difference(Access::ZERO_BASED) | (registration.access & Access::ZERO_BASED);
        let change = RegionChange { access: Some(access), ..RegionChange::default() };
        let device = registration.domain.device();
        gated_call(device, Call::ibv_rereg_mr, || {
            // SAFETY: the same range, which is writable if this asks for it.
            let changed = unsafe { device.hca().rereg_mr(self.0.handle, None, change) };
            changed.map_err(VerbsError::refused("memory region"))
        })?;
        registration.access = access;
        Ok(())
    }

    /// Moves the region to another protection domain of the same device; keys stay the same.
    ///
    /// # Errors
    /// `Refused`: memory windows are bound. `Invalid`: another device.
    pub fn set_protection_domain(&self, domain: &ProtectionDomain) -> Result<()> {
        let mut registration = self.0.registration();
        let device = registration.domain.device();
        if !device.is_same(domain.device()) {
            return Err(VerbsError::foreign("memory region", "memory"));
        }
        let pd = domain.handle();
        let change = RegionChange { pd: Some(pd.index), ..RegionChange::default() };
        gated_call(device, Call::ibv_rereg_mr, || {
            // SAFETY: the same range with the same rights.
            let changed = unsafe { device.hca().rereg_mr(self.0.handle, Some(pd), change) };
            changed.map_err(VerbsError::refused("memory region"))
        })?;
        registration.domain = domain.clone();
        Ok(())
    }

    fn buffer(&self) -> Option<&RegionBuffer> {
        self.0.buffer.as_ref()
    }

    fn check_writable(&self) -> Result<()> {
        if self.0.writable {
            return Ok(());
        }
        Err(VerbsError::Invalid {
            object: "memory region",
            attribute: "access",
            problem: "was without LOCAL_WRITE when the memory was registered".to_owned(),
            remedy: "register memory that is writable with LOCAL_WRITE",
        })
    }

    fn outside(&self, offset: usize, length: usize) -> VerbsError {
        VerbsError::Invalid {
            object: "memory region",
            attribute: "offset",
            problem: format!("{offset} leaves no {length} aligned bytes inside its {}", self.len()),
            remedy: "stay inside; atomics at multiples of their size",
        }
    }
}

impl RegionInner {
    fn registration(&self) -> MutexGuard<'_, RegionRegistration> {
        self.registration.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RegionInner {
    fn drop(&mut self) {
        let buffer = self.buffer.take();
        if let Some(check) = self.registration().domain.device().check() {
            check.region_destroyed(self.lkey);
        }
        self.registration().domain.device().deregister(self.handle, buffer);
    }
}
