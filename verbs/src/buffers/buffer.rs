//! Memory that the device and its peers access at any time.
//!
//! **Invariant**: no reference to the bytes exists, here or in what the accessors return, except references
//! to atomics. Copies are made through raw pointers, as a driver copies from DMA memory: bytes that a peer
//! writes meanwhile arrive as any mixture of old and new bytes.

#![allow(unsafe_code)] // registered memory is shared with the device by address

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Alignment of owned memory: a page.
pub(crate) const ALIGNMENT: usize = 4096;

/// A range of memory, owned or vouched for by the caller of an unsafe function.
#[derive(Debug)]
pub(crate) struct RegionBuffer {
    start: NonNull<u8>,
    length: usize,
    /// Layout with which it was allocated; `None` if it belongs to the program.
    owned: Option<Layout>,
}

// SAFETY: a Buffer is an address range; every access goes through raw copies or atomics.
unsafe impl Send for RegionBuffer {}
// SAFETY: the same as for `Send`; concurrent accesses are the purpose of the range.
unsafe impl Sync for RegionBuffer {}

impl RegionBuffer {
    /// Allocates `length` zeroed bytes on a page boundary; `None` if there is not enough memory.
    pub(crate) fn zeroed(length: usize) -> Option<RegionBuffer> {
        let layout = Layout::from_size_align(length.max(1), ALIGNMENT).ok()?;
        // SAFETY: the layout's size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(RegionBuffer { start, length, owned: Some(layout) })
    }

    /// Wraps memory that belongs to the program; `None` for the null address.
    ///
    /// # Safety
    /// The range is readable (and writable, if `store` or atomics are used) while the Buffer lives.
    pub(crate) unsafe fn foreign(start: *mut u8, length: usize) -> Option<RegionBuffer> {
        Some(RegionBuffer { start: NonNull::new(start)?, length, owned: None })
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the address, from which the device makes a pointer again.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// Reports whether `length` bytes at `offset` are inside.
    pub(crate) fn contains(&self, offset: usize, length: usize) -> bool {
        offset <= self.length && length <= self.length - offset
    }

    fn pointer_at(&self, offset: usize, length: usize) -> Option<*mut u8> {
        // SAFETY: the offset is inside the range.
        self.contains(offset, length).then(|| unsafe { self.start.as_ptr().add(offset) })
    }

    /// Copies `out.len()` bytes from `offset`; `None` if they are not inside.
    #[inline]
    pub(crate) fn load(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        let pointer = self.pointer_at(offset, out.len())?;
        // The copy comes after all that the application saw arrive by an atomic of this memory.
        fence(Ordering::Acquire);
        // SAFETY: the range is inside the memory, and `out`, being exclusive, does not overlap it.
        unsafe { ptr::copy_nonoverlapping(pointer, out.as_mut_ptr(), out.len()) };
        Some(())
    }

    /// Copies `data` to `offset`; `None` if it does not fit.
    #[inline]
    pub(crate) fn store(&self, offset: usize, data: &[u8]) -> Option<()> {
        let pointer = self.pointer_at(offset, data.len())?;
        // SAFETY: the range is inside the memory. `ptr::copy` because `data` may be a slice that the caller
        // made of this very memory by unsafe means.
        unsafe { ptr::copy(data.as_ptr(), pointer, data.len()) };
        fence(Ordering::Release);
        Some(())
    }

    /// Sets `length` bytes from `offset`; `None` if they are not inside.
    pub(crate) fn fill(&self, offset: usize, length: usize, byte: u8) -> Option<()> {
        let pointer = self.pointer_at(offset, length)?;
        // SAFETY: the range is inside the memory.
        unsafe { ptr::write_bytes(pointer, byte, length) };
        fence(Ordering::Release);
        Some(())
    }

    fn aligned<A>(&self, offset: usize) -> Option<*mut A> {
        let pointer = self.pointer_at(offset, size_of::<A>())?.cast::<A>();
        pointer.is_aligned().then_some(pointer)
    }

    /// Returns the byte at `offset`.
    pub(crate) fn atomic_u8(&self, offset: usize) -> Option<&AtomicU8> {
        let pointer = self.aligned::<u8>(offset)?;
        // SAFETY: inside the memory, which lives as long as `self`; an atomic may be shared.
        Some(unsafe { AtomicU8::from_ptr(pointer) })
    }

    /// Returns the four bytes at `offset`, if aligned.
    pub(crate) fn atomic_u32(&self, offset: usize) -> Option<&AtomicU32> {
        let pointer = self.aligned::<u32>(offset)?;
        // SAFETY: as for the byte, and aligned.
        Some(unsafe { AtomicU32::from_ptr(pointer) })
    }

    /// Returns the eight bytes at `offset`, if aligned.
    pub(crate) fn atomic_u64(&self, offset: usize) -> Option<&AtomicU64> {
        let pointer = self.aligned::<u64>(offset)?;
        // SAFETY: as for the byte, and aligned.
        Some(unsafe { AtomicU64::from_ptr(pointer) })
    }
}

impl Drop for RegionBuffer {
    fn drop(&mut self) {
        if let Some(layout) = self.owned {
            // SAFETY: allocated with this layout, and freed once.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_at_their_edges() {
        let buffer = RegionBuffer::zeroed(16).unwrap();
        assert_eq!(buffer.address() % ALIGNMENT as u64, 0);
        assert!(buffer.store(8, &[7; 8]).is_some());
        assert!(buffer.store(9, &[7; 8]).is_none());
        assert!(buffer.store(usize::MAX, &[7; 8]).is_none());
        assert!(buffer.fill(0, 4, 1).is_some());
        assert!(buffer.fill(1, 16, 1).is_none());
        let mut out = [9; 16];
        assert!(buffer.load(0, &mut out).is_some());
        assert_eq!(out, [1, 1, 1, 1, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert!(buffer.load(1, &mut out).is_none());
        assert!(buffer.load(16, &mut []).is_some());
        assert!(buffer.load(17, &mut []).is_none());
    }

    #[test]
    fn atomics_are_aligned_and_inside() {
        let buffer = RegionBuffer::zeroed(12).unwrap();
        assert!(buffer.atomic_u64(0).is_some());
        assert!(buffer.atomic_u64(4).is_none());
        assert!(buffer.atomic_u64(8).is_none());
        assert!(buffer.atomic_u32(8).is_some());
        assert!(buffer.atomic_u32(10).is_none());
        assert!(buffer.atomic_u8(11).is_some());
        assert!(buffer.atomic_u8(12).is_none());
    }

    #[test]
    fn no_memory_is_no_panic() {
        assert!(RegionBuffer::zeroed(usize::MAX).is_none());
        assert_eq!(RegionBuffer::zeroed(0).unwrap().len(), 0);
    }
}
