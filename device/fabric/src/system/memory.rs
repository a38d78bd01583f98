//! Numbers that processes of one user share: a file full of atomics.

use std::io;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
pub(crate) use pumice_platform::outside::fault_guard::{SharedRange, guard_shared};
use pumice_platform::outside::system_call::within_limit;
use rustix::fs::{FallocateFlags, fallocate};

use super::real::File;

/// A mapped file. Any process that has the file may write anything at any time, so what is read here is not
/// trusted. If a process shortens the file, each process that uses it continues with numbers of its own.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// Registered range. Dropped before the mapping, because other memory may be mapped at the same address
    /// afterwards.
    _range: SharedRange,
    mapped: MmapRaw,
    words: usize,
}

impl SharedMemory {
    /// Maps the first `words` words of a file, and extends the file if it is shorter. The room on the disk is
    /// reserved now: a disk that fills up later must not matter.
    ///
    /// # Errors
    /// Fails if there is no room, or if the file system cannot reserve it.
    pub(crate) fn map(file: &File, words: usize) -> io::Result<SharedMemory> {
        let bytes = words
            .checked_mul(size_of::<AtomicU64>())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        within_limit(|| fallocate(file.descriptor(), FallocateFlags::empty(), 0, bytes as u64))?;
        let mapped = MmapOptions::new().len(bytes).map_raw(file.descriptor())?;
        let range = guard_shared(mapped.as_ptr().expose_provenance(), bytes);
        Ok(SharedMemory { _range: range, mapped, words })
    }

    /// Returns the words.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `map` mapped so many words from the beginning of a page, and they stay mapped while `self`
        // is borrowed. Any bits are a number, and all processes change them by atomics; a process of this
        // user that does not could change any other memory of this process too.
        unsafe { std::slice::from_raw_parts(self.mapped.as_ptr().cast::<AtomicU64>(), self.words) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_maps_of_a_file_are_the_same_memory() {
        let path = std::env::temp_dir().join(format!("pumice-shared-memory-{}", std::process::id()));
        let mut options = fs::File::options();
        options.read(true).write(true).create(true);
        let open = || File::from(options.open(&path).unwrap());
        let (a, b) = (SharedMemory::map(&open(), 1000).unwrap(), SharedMemory::map(&open(), 1000).unwrap());
        a.words()[999].store(7, Ordering::Relaxed);
        assert_eq!((b.words().len(), b.words()[999].load(Ordering::Relaxed)), (1000, 7));
        drop(a);
        assert_eq!(b.words()[999].load(Ordering::Relaxed), 7);
        fs::remove_file(&path).unwrap();
        assert!(SharedMemory::map(&fs::File::open("/dev/null").unwrap().into(), 8).is_err());
    }
    #[test]
    fn a_file_that_is_shortened_ends_no_process() {
        let path = std::env::temp_dir().join(format!("pumice-shortened-{}", std::process::id()));
        let mut options = fs::File::options();
        options.read(true).write(true).create(true);
        let file = options.open(&path).unwrap();
        let open = || File::from(options.open(&path).unwrap());
        let (a, b) = (SharedMemory::map(&open(), 2000).unwrap(), SharedMemory::map(&open(), 2000).unwrap());
        a.words()[5].store(7, Ordering::Relaxed);
        file.set_len(0).unwrap();
        b.words()[1999].fetch_add(3, Ordering::Relaxed);
        assert_eq!(b.words()[1999].load(Ordering::Relaxed), 3);
        assert_eq!(b.words()[5].load(Ordering::Relaxed), 0, "numbers of its own");
        assert_eq!(a.words()[1999].load(Ordering::Relaxed), 0);
        drop((a, b));
        let again = SharedMemory::map(&open(), 2000).unwrap();
        again.words()[1999].store(9, Ordering::Relaxed);
        assert_eq!(again.words()[1999].load(Ordering::Relaxed), 9);
        fs::remove_file(&path).unwrap();
    }
}
