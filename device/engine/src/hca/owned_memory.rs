//! Memory that is registered for as long as it lives.

use std::cell::UnsafeCell;
use std::sync::Arc;

use pumice_memory::RegionKeys;
use pumice_platform::table::Handle;
use pumice_transport::types::{Access, RemoteTarget, Sge};

use super::{Hca, HcaError};

/// Zeroed, 8-byte aligned memory and its registration. The device accesses registered memory under the
/// engine's lock; reading and writing here take the same lock, so no access is torn.
pub struct OwnedMemory {
    hca: Arc<Hca>,
    keys: RegionKeys,
    iova: u64,
    /// The memory; only `drop` empties it.
    words: Option<Box<[UnsafeCell<u64>]>>,
}

// SAFETY: the cells are only accessed under the engine's lock.
unsafe impl Send for OwnedMemory {}
// SAFETY: as above.
unsafe impl Sync for OwnedMemory {}

impl OwnedMemory {
    /// Registers `length` new bytes, rounded up to a multiple of 8, whose first one peers and scatter/gather
    /// elements call `iova`.
    ///
    /// # Errors
    /// As [`Hca::reg_mr`].
    pub fn register(
        hca: &Arc<Hca>,
        pd: Handle,
        length: usize,
        iova: u64,
        access: Access,
    ) -> Result<OwnedMemory, HcaError> {
        let words: Box<[UnsafeCell<u64>]> =
            (0..length.div_ceil(8).max(1)).map(|_| UnsafeCell::new(0)).collect();
        let bytes = words.len() as u64 * 8;
        // SAFETY: the words stay where they are until `drop` has deregistered them.
        let keys = unsafe { hca.reg_mr(pd, words.as_ptr() as u64, bytes, iova, access) }?;
        Ok(OwnedMemory { hca: Arc::clone(hca), keys, iova, words: Some(words) })
    }

    /// Returns the number of bytes registered.
    pub fn len(&self) -> usize {
        self.words.as_ref().map_or(0, |words| words.len() * 8)
    }

    /// Reports whether the memory is empty, which it never is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a scatter/gather element over part of the memory; the range is checked when it is used.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { address: self.iova.wrapping_add(offset), length, lkey: self.keys.lkey }
    }

    /// Returns the address and the key by which peers name the byte at `offset`.
    pub fn target(&self, offset: u64) -> RemoteTarget {
        RemoteTarget { address: self.iova.wrapping_add(offset), rkey: self.keys.rkey }
    }

    fn pointer(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let words = self.words.as_ref()?;
        let end = offset.checked_add(length)?;
        (end <= words.len() * 8).then(|| words.as_ptr().cast::<u8>().cast_mut().wrapping_add(offset))
    }

    /// Copies bytes from `offset` into `out`. Returns false, and copies nothing, if they are not all inside.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        let Some(pointer) = self.pointer(offset, out.len()) else { return false };
        let _engine = self.hca.core.lock();
        // SAFETY: in range, checked above; the lock keeps the device and other callers away.
        unsafe { pointer.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        true
    }

    /// Copies `bytes` to `offset`. Returns false, and copies nothing, if they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let Some(pointer) = self.pointer(offset, bytes.len()) else { return false };
        let _engine = self.hca.core.lock();
        // SAFETY: in range, checked above; the lock keeps the device and other callers away.
        unsafe { pointer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        true
    }
}

impl Drop for OwnedMemory {
    fn drop(&mut self) {
        if self.hca.dereg_mr(self.keys.handle).is_err() {
            // A window is still bound: peers may go on writing, so the bytes must stay.
            std::mem::forget(self.words.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use pumice_fabric::FabricConfig;

    use super::*;
    use crate::world::World;

    #[test]
    fn accesses_stay_inside_and_the_registration_ends_with_the_memory() {
        let mut world = World::new(FabricConfig::default());
        let hca = world.add_hca("10.0.0.1".parse().unwrap()).unwrap();
        let pd = hca.alloc_pd().unwrap();
        let memory = OwnedMemory::register(&hca, pd, 13, 0x1000, Access::LOCAL_WRITE).unwrap();
        assert_eq!(memory.len(), 16);
        assert!(memory.write(3, b"hello"));
        let mut out = [0; 6];
        assert!(memory.read(2, &mut out));
        assert_eq!(&out, b"\0hello");
        assert!(!memory.write(12, b"hello") && !memory.read(usize::MAX, &mut out));
        assert_eq!(memory.sge(3, 5).address, 0x1003);
        assert_eq!(hca.dealloc_pd(pd).unwrap_err().errno(), libc::EBUSY);
        drop(memory);
        hca.dealloc_pd(pd).unwrap();
    }
}
