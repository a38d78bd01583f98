//! Numbers that processes of one user share: a file's worth of atomics.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::real::File;

/// A mapped file. Whoever has the file may write anything at any time: what is read here is a claim. A process that
/// shortens the file ends the processes that use it, which it could also do with a signal.
#[derive(Debug)]
pub(in crate::share) struct SharedMemory {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is reached through atomics only, from any thread, and is unmapped by the owner of this value.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps the first `words` words of a file, which is made longer if it is shorter. The room on the disk is taken
    /// now: a disk that fills up later must not matter.
    ///
    /// # Errors
    /// What the system says: no room, or a file system that cannot reserve it.
    pub(in crate::share) fn map(file: &File, words: usize) -> io::Result<SharedMemory> {
        let bytes = words * size_of::<AtomicU64>();
        let length =
            libc::off_t::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: a call about a descriptor that lives through it.
        if unsafe { libc::fallocate(file.descriptor(), 0, 0, length) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.descriptor(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(SharedMemory { start, words })
    }

    /// The words.
    #[inline]
    pub(in crate::share) fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped until drop, page aligned, of this length; any bits are a number, and others change them
        // atomically as well, or are processes that could do anything else to this one too.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: what `map` mapped, and no borrow of it outlives this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
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
}
