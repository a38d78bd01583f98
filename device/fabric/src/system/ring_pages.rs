//! The memory of a ring: pages without a name, which live as long as a process has them mapped or open.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
use pumice_platform::outside::system_call::within_limit;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create,
};

use crate::ring::{Geometry, RingMemory, SLOT_WORDS};

/// Seals that keep every process with the pages from changing their length. Shortened pages would end this
/// process with a signal when it touches them.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Pages that are mapped here. Any process that has them may write anything at any time, so what is read here
/// is not trusted.
#[derive(Debug)]
pub(crate) struct RingPages {
    mapped: MmapRaw,
    geometry: Geometry,
}

/// Returns a function for `map_err` that adds the name of the refused call to an error.
fn refused<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> io::Error {
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{call}: {error}"))
    }
}

/// Pages as they are handed to another process.
#[derive(Debug)]
pub(crate) struct RingFile(OwnedFd);

impl RingFile {
    /// Wraps a descriptor that came from another process. [`RingPages::open`] checks it.
    pub(crate) fn new(descriptor: OwnedFd) -> RingFile {
        RingFile(descriptor)
    }

    /// Returns the descriptor, for the other process.
    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.0
    }
}

impl RingPages {
    /// Makes new pages, all zero. They are reserved now: memory that runs out later must not matter.
    ///
    /// # Errors
    /// Fails with the error of the operating system, and the name of the call: no memory, or no such call.
    pub(crate) fn create(geometry: Geometry) -> io::Result<(RingPages, RingFile)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("pumice-ring", flags).map_err(refused("memfd_create"))?;
        within_limit(|| fallocate(&file, FallocateFlags::empty(), 0, geometry.bytes() as u64))
            .map_err(refused("fallocate"))?;
        fcntl_add_seals(&file, SEALS).map_err(refused("sealing"))?;
        let pages = RingPages::map(&file, geometry).map_err(refused("mmap"))?;
        Ok((pages, RingFile(file)))
    }

    /// Maps the pages that another process made.
    ///
    /// # Errors
    /// Fails with `InvalidData` if they are not as long as a ring of this geometry, or may be shortened, and
    /// with errors of the operating system.
    pub(crate) fn open(file: &RingFile, geometry: Geometry) -> io::Result<RingPages> {
        let is_sealed = fcntl_get_seals(&file.0)?.contains(SEALS);
        let is_long =
            u64::try_from(fstat(&file.0)?.st_size).is_ok_and(|bytes| bytes >= geometry.bytes() as u64);
        if !is_sealed || !is_long {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        RingPages::map(&file.0, geometry)
    }

    fn map(file: &OwnedFd, geometry: Geometry) -> io::Result<RingPages> {
        let mapped = MmapOptions::new().len(geometry.bytes()).populate().map_raw(file)?;
        Ok(RingPages { mapped, geometry })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `map` mapped at least so many words from the beginning of a page, they stay mapped while
        // `self` is borrowed, and the seals keep the file from becoming shorter. Any bits are a number, and
        // both processes change them by atomics.
        unsafe { std::slice::from_raw_parts(self.mapped.as_ptr().cast::<AtomicU64>(), self.geometry.words()) }
    }

    /// Returns the address of bytes of the data, if all of them are inside.
    fn data(&self, data_offset: usize, length: usize) -> Option<*mut u8> {
        let is_inside = data_offset.checked_add(length)? <= self.geometry.data_bytes() as usize;
        let offset = self.geometry.words() * size_of::<u64>() + data_offset;
        is_inside.then(|| self.mapped.as_mut_ptr().wrapping_add(offset))
    }
}

impl RingMemory for RingPages {
    type AtomicWord = AtomicU64;

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        self.words().get(index).unwrap_or(&NOTHING)
    }

    #[inline]
    fn slot(&self, first: usize) -> Option<&[AtomicU64; SLOT_WORDS]> {
        self.words().get(first..)?.first_chunk()
    }

    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) {
        let Some(to) = self.data(offset, bytes.len()) else { return };
        // SAFETY: `data` says that so many mapped bytes are there, and `bytes` is this process's own memory,
        // so the two do not overlap. The other process may read or write them at the same time: what it sees
        // is then any mixture, which it has to expect.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    fn stream(&self, offset: usize, bytes: &[u8]) {
        let Some(to) = self.data(offset, bytes.len()) else { return };
        // SAFETY: as in `write`.
        unsafe { stream_bytes(to, bytes) }
    }

    #[inline]
    fn read(&self, offset: usize, bytes: &mut [u8]) {
        let Some(from) = self.data(offset, bytes.len()) else { return };
        // SAFETY: as in `write`. What is copied is any mixture if the other process writes at the same time;
        // it is looked at only after it has been copied.
        unsafe { ptr::copy_nonoverlapping(from.cast_const(), bytes.as_mut_ptr(), bytes.len()) }
    }
}

/// Reports whether the processor has stores that pass the cache.
pub(crate) const fn can_stream() -> bool {
    cfg!(target_arch = "x86_64")
}

/// Copies bytes by non-temporal stores, but for what is in no whole line. What was stored is seen by all
/// before any later store.
///
/// # Safety
/// At `to` there is room for so many bytes, which `bytes` does not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn stream_bytes(to: *mut u8, bytes: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const LINE: usize = 64;
    let (lines, rest) = bytes.as_chunks::<LINE>();
    if !to.addr().is_multiple_of(LINE) {
        // SAFETY: as the caller says. Batches begin at lines, so that this is never so.
        return unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
    let mut at = to;
    for line in lines {
        // SAFETY: the line has four vectors, and so has the room at `at`, which begins at a line. Loads may
        // be anywhere. `_mm_sfence` comes before any other access.
        unsafe {
            let from = line.as_ptr().cast::<__m128i>();
            let vectors = [0, 1, 2, 3].map(|n| _mm_loadu_si128(from.add(n)));
            for (n, vector) in vectors.into_iter().enumerate() {
                _mm_stream_si128(at.cast::<__m128i>().add(n), vector);
            }
            at = at.add(LINE);
        }
    }
    // SAFETY: the room at `to` is as long as `bytes`, of which this is the rest. The fence needs SSE, which
    // every x86-64 processor has.
    unsafe {
        ptr::copy_nonoverlapping(rest.as_ptr(), at, rest.len());
        _mm_sfence();
    }
}

/// Copies bytes by ordinary stores.
///
/// # Safety
/// At `to` there is room for so many bytes, which `bytes` does not overlap.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream_bytes(to: *mut u8, bytes: &[u8]) {
    // SAFETY: as the caller says.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use rustix::fs::ftruncate;

    use super::*;

    #[test]
    fn two_maps_are_the_same_memory_and_no_process_can_shorten_it() {
        let geometry = Geometry::new(4, 128).unwrap();
        let (a, file) = RingPages::create(geometry).unwrap();
        let b = RingPages::open(&file, geometry).unwrap();
        a.word(geometry.words() - 1).store(7, Ordering::Relaxed);
        a.write(126, &[1, 2]);
        let mut bytes = [0; 2];
        b.read(126, &mut bytes);
        assert_eq!((b.word(geometry.words() - 1).load(Ordering::Relaxed), bytes), (7, [1, 2]));
        for length in [1, 63, 64, 65, 128] {
            let bytes: Vec<u8> = (0..length).map(|n| n as u8 ^ length as u8).collect();
            for offset in [0, 64].into_iter().filter(|offset| offset + length <= 128) {
                a.stream(offset, &bytes);
                let mut seen = vec![0; length];
                b.read(offset, &mut seen);
                assert_eq!(seen, bytes, "{length} bytes at {offset}");
            }
        }
        a.stream(1, &[5; 126]);
        a.stream(126, &[1, 2]);
        b.read(125, &mut bytes);
        assert_eq!(bytes, [5, 1]);
        // Nothing beyond the end is written or read.
        a.stream(127, &[9, 9]);
        a.write(127, &[9, 9]);
        a.word(geometry.words()).store(0, Ordering::Relaxed);
        b.read(126, &mut bytes);
        assert_eq!(bytes, [1, 2]);
        assert!(ftruncate(&file.0, 0).is_err());
        assert!(RingPages::open(&file, Geometry::new(8, 128).unwrap()).is_err(), "longer than the file");
        let unsealed = RingFile::new(memfd_create("x", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&unsealed.0, geometry.bytes() as u64).unwrap();
        assert!(RingPages::open(&unsealed, geometry).is_err());
        let other = RingFile::new(std::fs::File::open("/dev/zero").unwrap().into());
        assert!(RingPages::open(&other, geometry).is_err());
    }
}
