//! Memory that the simulated devices access by address while the test looks at it.

use std::cell::UnsafeCell;

use pumice_device::hca::Hca;
use pumice_device::memory::RegionKeys;
use pumice_device::platform::table::Handle;
use pumice_transport::types::Access;

/// What devices call the first byte: the same in every run, so that runs can be compared.
pub const IOVA: u64 = 0x7000_0000;

/// Bytes at a fixed, 8-byte aligned address. All accesses go through the cells, as those of a DMA
/// engine do; a test and its devices take turns on one thread.
pub struct Memory {
    words: Box<[UnsafeCell<u64>]>,
}

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        Memory { words: (0..bytes.div_ceil(8)).map(|_| UnsafeCell::new(0)).collect() }
    }

    pub fn len(&self) -> usize {
        self.words.len() * 8
    }

    fn base(&self) -> *mut u8 {
        self.words.as_ptr().cast::<u8>().cast_mut()
    }

    /// Address of the first byte, as devices know it.
    pub fn address(&self) -> u64 {
        IOVA
    }

    pub fn register(&self, hca: &Hca, pd: Handle, access: Access) -> RegionKeys {
        self.register_part(hca, pd, 0, self.len(), access)
    }

    /// Registers a part; devices call its first byte `IOVA + offset`.
    pub fn register_part(
        &self,
        hca: &Hca,
        pd: Handle,
        offset: usize,
        length: usize,
        access: Access,
    ) -> RegionKeys {
        assert!(offset + length <= self.len());
        let (address, iova) = (self.base() as u64 + offset as u64, IOVA + offset as u64);
        // SAFETY: nodes deregister or drop their HCA before their memory; the words are in cells.
        unsafe { hca.reg_mr(pd, address, length as u64, iova, access) }.unwrap()
    }

    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.len());
        let mut out = vec![0; length];
        // SAFETY: in range, checked above; no other thread accesses it during the call.
        unsafe { self.base().add(offset).copy_to_nonoverlapping(out.as_mut_ptr(), length) };
        out
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len());
        // SAFETY: in range, checked above; no other thread accesses it during the call.
        unsafe { self.base().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    pub fn word(&self, offset: usize) -> u64 {
        let bytes = self.read(offset, 8);
        u64::from_ne_bytes(bytes.try_into().unwrap())
    }

    pub fn all(&self) -> Vec<u8> {
        self.read(0, self.len())
    }
}
