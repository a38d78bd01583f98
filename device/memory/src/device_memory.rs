//! Memory of the device (`ibv_alloc_dm`): bytes that programs reach by copies, or through a file that they
//! ask for, and peers through a registration.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use pumice_platform::error::ResourceError;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::copy::{load_own, store_own};

/// A piece of device memory, zeroed.
#[derive(Debug)]
pub struct DeviceMemory {
    /// Whole pages, which begin at a multiple of every alignment.
    pages: MmapRaw,
    /// File that the pages are of; `None` where the operating system gives no such file.
    file: Option<File>,
    length: u64,
    pool: Arc<AtomicU64>,
    registrations: AtomicU32,
}

/// A registration, until it is dropped; the memory lives as long.
#[derive(Debug)]
pub(super) struct Registration(Arc<DeviceMemory>);

impl Registration {
    pub(super) fn new(memory: &Arc<DeviceMemory>) -> Registration {
        memory.registrations.fetch_add(1, Ordering::Relaxed);
        Registration(Arc::clone(memory))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.0.registrations.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The device memory of a device.
#[derive(Debug)]
pub struct DeviceMemoryPool {
    size: u64,
    used: Arc<AtomicU64>,
}

impl DeviceMemoryPool {
    /// Base-2 logarithm of the largest alignment: a page.
    pub const MAX_LOG_ALIGN: u32 = 12;

    /// Creates a pool of `size` bytes in all.
    pub fn new(size: u64) -> DeviceMemoryPool {
        DeviceMemoryPool { size, used: Arc::default() }
    }

    /// Allocates `length` bytes at a multiple of `1 << log_align`.
    ///
    /// # Errors
    /// Fails with `Invalid` for no bytes, or a larger alignment than a page, and with `NoMemory` if there is
    /// not as much.
    pub fn allocate(&self, length: u64, log_align: u32) -> Result<Arc<DeviceMemory>, ResourceError> {
        if length == 0 || log_align > DeviceMemoryPool::MAX_LOG_ALIGN {
            return Err(ResourceError::invalid(format!(
                "device memory of {length} bytes at a multiple of 2^{log_align}: at least 1 byte, at most \
                2^{}",
                DeviceMemoryPool::MAX_LOG_ALIGN
            )));
        }
        let more = |used: u64| used.checked_add(length).filter(|sum| *sum <= self.size);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|used| {
            ResourceError::no_memory(format!(
                "device memory: {length} bytes asked for, {used} of {} in use",
                self.size
            ))
        })?;
        let (pages, file) = pages(length).map_err(|error| {
            self.used.fetch_sub(length, Ordering::Relaxed);
            ResourceError::no_memory(format!("{length} bytes of device memory: {error}"))
        })?;
        let (pool, registrations) = (Arc::clone(&self.used), AtomicU32::new(0));
        Ok(Arc::new(DeviceMemory { pages, file, length, pool, registrations }))
    }
}

/// Returns pages for this number of bytes, and the file that they are of. A sandbox may forbid files that
/// have no name.
fn pages(length: u64) -> io::Result<(MmapRaw, Option<File>)> {
    let page = 1_u64 << DeviceMemoryPool::MAX_LOG_ALIGN;
    let bytes = length.checked_next_multiple_of(page).ok_or(io::ErrorKind::OutOfMemory)?;
    match file(bytes) {
        Ok(file) => Ok((MmapOptions::new().map_raw(&file)?, Some(file))),
        Err(_) => {
            let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
            Ok((MmapOptions::new().len(bytes).map_anon()?.into(), None))
        }
    }
}

/// Returns a file of this length, which cannot change.
fn file(bytes: u64) -> io::Result<File> {
    let file = File::from(memfd_create("pumice-dm", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.set_len(bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

impl DeviceMemory {
    /// Unit of copies in bytes: programs copy whole units, at multiples of it.
    pub const COPY_UNIT: u64 = 4;

    /// Returns the length in bytes.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns how many regions it is registered as.
    pub fn registrations(&self) -> u32 {
        self.registrations.load(Ordering::Relaxed)
    }

    /// Returns a descriptor of the file that has its bytes from offset 0 on, for `ibv_reg_dmabuf_mr` and
    /// mmap(2). The bytes stay as long as it is open.
    ///
    /// # Errors
    /// Fails with `NotSupported` if the operating system gives no such file, and with the operating system's
    /// error if there is no descriptor.
    pub fn export(&self) -> Result<OwnedFd, ResourceError> {
        let none = || ResourceError::not_supported("a sandbox forbids memfd_create(2), which this needs");
        let file = self.file.as_ref().ok_or_else(none)?.try_clone();
        let errno = |error: io::Error| error.raw_os_error().unwrap_or(libc::EMFILE);
        let refused =
            |error| ResourceError::Os { what: "a descriptor of device memory", errno: errno(error) };
        Ok(file.map_err(refused)?.into())
    }

    /// Copies bytes from `offset` into `out`.
    ///
    /// # Errors
    /// Fails with `Invalid` if not of whole units of [`DeviceMemory::COPY_UNIT`], and with EFAULT if not
    /// inside.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), ResourceError> {
        load_own(self.check_copy(offset, out.len() as u64)?, out);
        Ok(())
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// Fails with `Invalid` if not of whole units of [`DeviceMemory::COPY_UNIT`], and with EFAULT if not
    /// inside.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), ResourceError> {
        store_own(self.check_copy(offset, data.len() as u64)?, data);
        Ok(())
    }

    /// Returns the address of a copy.
    ///
    /// # Errors
    /// Fails with `Invalid` if not of whole units, and with EFAULT if not inside.
    fn check_copy(&self, offset: u64, length: u64) -> Result<u64, ResourceError> {
        let unit = DeviceMemory::COPY_UNIT;
        if !offset.is_multiple_of(unit) || !length.is_multiple_of(unit) {
            return Err(ResourceError::invalid(format!(
                "a copy of {length} bytes at offset {offset} of device memory: both must be multiples of \
                {unit}"
            )));
        }
        let beyond =
            ResourceError::Os { what: "a copy beyond the end of device memory", errno: libc::EFAULT };
        self.locate(offset, length).map_err(|_| beyond)
    }

    /// Returns the address of the first byte.
    fn start(&self) -> u64 {
        self.pages.as_ptr().expose_provenance() as u64
    }

    /// Returns the address of `length` bytes from `offset`.
    ///
    /// # Errors
    /// Fails with `Invalid` if not inside.
    pub(super) fn locate(&self, offset: u64, length: u64) -> Result<u64, ResourceError> {
        if offset > self.length || length > self.length - offset {
            return Err(ResourceError::invalid(format!(
                "{length} bytes at offset {offset} are more than device memory of {} bytes",
                self.length
            )));
        }
        Ok(self.start() + offset)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        debug_assert!(self.pages.len() as u64 >= self.length);
        self.pool.fetch_sub(self.length, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_of_whole_units_inside() {
        let pool = DeviceMemoryPool::new(64);
        let memory = pool.allocate(20, 6).unwrap();
        assert_eq!(memory.start() % 64, 0);
        memory.write(8, b"device memory").unwrap_err();
        memory.write(8, b"device memor").unwrap();
        let mut out = [1; 12];
        memory.read(4, &mut out).unwrap();
        assert_eq!(&out, b"\0\0\0\0device m");
        let errno = |result: Result<(), ResourceError>| result.unwrap_err().errno();
        assert_eq!(errno(memory.read(12, &mut out)), libc::EFAULT);
        assert_eq!(errno(memory.read(u64::MAX - 3, &mut out)), libc::EFAULT);
        assert_eq!(errno(memory.read(2, &mut out[..4])), libc::EINVAL);
    }

    #[test]
    fn a_file_has_the_bytes_and_keeps_its_length() {
        let memory = DeviceMemoryPool::new(1 << 20).allocate(100, 0).unwrap();
        memory.write(96, b"last").unwrap();
        let file = File::from(memory.export().unwrap());
        let view = MmapOptions::new().map_raw(&file).unwrap();
        assert_eq!(view.len(), 4096);
        let mut out = [0; 4];
        load_own(view.as_ptr().expose_provenance() as u64 + 96, &mut out);
        assert_eq!(&out, b"last");
        store_own(view.as_ptr().expose_provenance() as u64, b"here");
        memory.read(0, &mut out).unwrap();
        assert_eq!(&out, b"here");
        assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
    }

    #[test]
    fn there_is_as_much_as_the_device_has() {
        let pool = DeviceMemoryPool::new(64);
        let errno = |result: Result<Arc<DeviceMemory>, ResourceError>| result.unwrap_err().errno();
        assert_eq!(errno(pool.allocate(65, 0)), libc::ENOMEM);
        assert_eq!(errno(pool.allocate(u64::MAX, 0)), libc::ENOMEM);
        assert_eq!(errno(pool.allocate(0, 0)), libc::EINVAL);
        assert_eq!(errno(pool.allocate(1, 13)), libc::EINVAL);
        let first = pool.allocate(60, 0).unwrap();
        assert_eq!(errno(pool.allocate(5, 0)), libc::ENOMEM);
        drop(first);
        pool.allocate(64, 12).unwrap();
    }
}
