//! Memory of the device (`ibv_alloc_dm`): bytes that programs reach only by copies, and peers through
//! a registration.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::copy::{load_own, store_own};
use crate::ground::error::ResourceError;

/// A piece of device memory, zeroed.
#[derive(Debug)]
pub struct DeviceMemory {
    /// Some more than asked for, to begin at a multiple of the alignment.
    words: Box<[AtomicU64]>,
    start: u64,
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

/// What the device has of it.
#[derive(Debug)]
pub struct DeviceMemoryPool {
    size: u64,
    used: Arc<AtomicU64>,
}

impl DeviceMemoryPool {
    /// Largest alignment: a page.
    pub const MAX_LOG_ALIGN: u32 = 12;

    /// Memory of `size` bytes in all.
    pub fn new(size: u64) -> DeviceMemoryPool {
        DeviceMemoryPool { size, used: Arc::default() }
    }

    /// Allocates `length` bytes at a multiple of `1 << log_align`.
    ///
    /// # Errors
    /// `Invalid`: no bytes, or a larger alignment than a page. `NoMemory`: there is not as much.
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
        let align = 8_u64 << log_align.saturating_sub(3);
        let words: Box<[AtomicU64]> = (0..(length + align).div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        let start = (words.as_ptr().expose_provenance() as u64).next_multiple_of(align);
        let (pool, registrations) = (Arc::clone(&self.used), AtomicU32::new(0));
        Ok(Arc::new(DeviceMemory { words, start, length, pool, registrations }))
    }
}

impl DeviceMemory {
    /// Programs copy whole units of as many bytes, at multiples of it.
    pub const COPY_UNIT: u64 = 4;

    /// Bytes.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Regions that it is registered as.
    pub fn registrations(&self) -> u32 {
        self.registrations.load(Ordering::Relaxed)
    }

    /// Copies bytes from `offset` into `out`.
    ///
    /// # Errors
    /// `Invalid`: not of whole units of [`DeviceMemory::COPY_UNIT`]. EFAULT: not inside.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), ResourceError> {
        load_own(self.check_copy(offset, out.len() as u64)?, out);
        Ok(())
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// `Invalid`: not of whole units of [`DeviceMemory::COPY_UNIT`]. EFAULT: not inside.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), ResourceError> {
        store_own(self.check_copy(offset, data.len() as u64)?, data);
        Ok(())
    }

    /// Where a copy goes.
    ///
    /// # Errors
    /// `Invalid`: not of whole units. EFAULT: not inside.
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

    /// Address of `length` bytes from `offset`.
    ///
    /// # Errors
    /// `Invalid`: not inside.
    pub(super) fn locate(&self, offset: u64, length: u64) -> Result<u64, ResourceError> {
        if offset > self.length || length > self.length - offset {
            return Err(ResourceError::invalid(format!(
                "{length} bytes at offset {offset} are more than device memory of {} bytes",
                self.length
            )));
        }
        Ok(self.start + offset)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        debug_assert!(self.words.len() as u64 * 8 >= self.length);
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
        assert_eq!(memory.start % 64, 0);
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
