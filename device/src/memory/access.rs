//! Copies between packets and application memory, according to what is behind a region.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use pumice_transport::host::{MemoryError, RemoteKey};
use pumice_transport::types::{Access, AtomicOperation, Sge};

use super::grant::{Backing, Grant};
use super::{RegionTable, on_demand};

impl RegionTable {
    /// From now on copies ask the kernel whether the memory is there, or trust that it is. A program may have unmapped
    /// what it did not deregister: hardware holds the pages, and a plain copy would kill the process. Atomics trust.
    pub(crate) fn set_wary(&mut self, wary: bool) {
        self.wary = wary && on_demand::is_available();
    }

    /// Copies bytes `offset..offset + out.len()` of the buffers in `sges` into `out`.
    ///
    /// # Errors
    /// A key, its domain or a range is wrong, or the buffers are too short. `out` is then partly
    /// written.
    #[inline]
    pub fn gather(&self, pd: u32, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        if let [sge] = sges {
            return self.gather_one(pd, sge, offset, out);
        }
        let mut rest = out;
        walk(sges, offset, rest.len() as u64, |sge, start, length| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(length as usize);
            rest = later;
            self.gather_one(pd, sge, start, now)
        })
    }

    /// Copies `data` to bytes `offset..offset + data.len()` of the buffers in `sges`. With empty
    /// `data` nothing is checked.
    ///
    /// # Errors
    /// As [`RegionTable::gather`], or a region lacks `LOCAL_WRITE`. Earlier buffers are then written.
    #[inline]
    pub fn scatter(&self, pd: u32, sges: &[Sge], offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        if let [sge] = sges {
            return self.scatter_one(pd, sge, offset, data);
        }
        let mut rest = data;
        walk(sges, offset, rest.len() as u64, |sge, start, length| {
            let (now, later) = rest.split_at(length as usize);
            rest = later;
            self.scatter_one(pd, sge, start, now)
        })
    }

    /// Stores `data` at a remote address. The last aligned word lands last and in one piece, so an
    /// application that polls the end of a buffer sees the whole of it.
    ///
    /// # Errors
    /// The key, its domain, its `REMOTE_WRITE` right or the range is wrong.
    #[inline]
    pub fn remote_write(&self, key: RemoteKey, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.remote_grant(key, Access::REMOTE_WRITE)?.write(address, data, self.wary)
    }

    /// Loads `out.len()` bytes from a remote address.
    ///
    /// # Errors
    /// The key, its domain, its `REMOTE_READ` right or the range is wrong.
    #[inline]
    pub fn remote_read(&self, key: RemoteKey, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.remote_grant(key, Access::REMOTE_READ)?.read(address, out, self.wary)
    }

    /// Executes an atomic on 8 bytes in host order and returns the original value. It is atomic
    /// towards the application's own atomics too, unless the region is paged on demand: then only
    /// towards other work of the device.
    ///
    /// # Errors
    /// The key, its domain, its `REMOTE_ATOMIC` right or the range is wrong, or the address (here or
    /// as the peer says it) is not a multiple of 8.
    pub fn remote_atomic(
        &self,
        key: RemoteKey,
        address: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        self.with_word(key, address, Access::REMOTE_ATOMIC, |word| match operation {
            AtomicOperation::CompareSwap { compare, swap } => {
                match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(original) | Err(original) => original,
                }
            }
            AtomicOperation::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
        })
    }

    /// Stores 8 bytes, as they arrived, in one store.
    ///
    /// # Errors
    /// As [`RegionTable::remote_atomic`], with `REMOTE_WRITE`.
    pub fn remote_atomic_write(
        &self,
        key: RemoteKey,
        address: u64,
        data: [u8; 8],
    ) -> Result<(), MemoryError> {
        self.with_word(key, address, Access::REMOTE_WRITE, |word| {
            word.store(u64::from_ne_bytes(data), Ordering::SeqCst);
        })
    }

    /// Makes earlier stores to a range (address, bytes), or to all that the key opens, visible, and
    /// with `FLUSH_PERSISTENT` written back to the file they are mapped from, if any.
    ///
    /// # Errors
    /// The key, its domain, a right in `access` or the range is wrong, or the write-back failed.
    pub fn remote_flush(
        &self,
        key: RemoteKey,
        range: Option<(u64, u64)>,
        access: Access,
    ) -> Result<(), MemoryError> {
        let (start, length) = match range {
            Some((address, length)) => (self.locate_remote(key, address, length, access)?, length),
            None => self.locate_remote_all(key, access)?,
        };
        fence(Ordering::SeqCst);
        if access.contains(Access::FLUSH_PERSISTENT) && length > 0 {
            write_back(start, length)?;
        }
        Ok(())
    }

    #[inline]
    fn gather_one(&self, pd: u32, sge: &Sge, offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        if out.is_empty() {
            return Ok(());
        }
        let address = inside(sge, offset, out.len() as u64)?;
        self.local_grant(pd, sge.lkey, false)?.read(address, out, self.wary)
    }

    #[inline]
    fn scatter_one(&self, pd: u32, sge: &Sge, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        if data.is_empty() {
            return Ok(());
        }
        let address = inside(sge, offset, data.len() as u64)?;
        self.local_grant(pd, sge.lkey, true)?.write(address, data, self.wary)
    }

    fn with_word<R>(
        &self,
        key: RemoteKey,
        address: u64,
        access: Access,
        work: impl FnOnce(&AtomicU64) -> R,
    ) -> Result<R, MemoryError> {
        let grant = self.remote_grant(key, access)?;
        let place = grant.locate(address, 8)?;
        if !address.is_multiple_of(8) || !place.is_multiple_of(8) {
            return Err(MemoryError::Misaligned);
        }
        if grant.backing != Backing::Mapped {
            return grant.with_copy(address, work);
        }
        // SAFETY: `place..place + 8` lies inside a registered range, which `RegionTable::register`
        // requires to stay mapped and writable (an atomic needs LOCAL_WRITE on the region); it is
        // aligned, and access from elsewhere at the same time is what registration permits.
        let word = unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(place as usize)) };
        Ok(work(word))
    }
}

impl Grant {
    #[inline]
    fn read(&self, address: u64, out: &mut [u8], wary: bool) -> Result<(), MemoryError> {
        let source = self.locate(address, out.len() as u64)?;
        if wary || self.backing != Backing::Mapped {
            return self.read_unmapped(source, out);
        }
        load(source, out);
        Ok(())
    }

    #[inline]
    fn write(&self, address: u64, data: &[u8], wary: bool) -> Result<(), MemoryError> {
        let target = self.locate(address, data.len() as u64)?;
        if wary || self.backing != Backing::Mapped {
            return self.write_unmapped(target, data);
        }
        store(target, data);
        Ok(())
    }

    #[cold]
    fn read_unmapped(&self, source: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        if self.backing == Backing::Nothing {
            out.fill(0);
            return Ok(());
        }
        on_demand::load(source, out)
    }

    #[cold]
    fn write_unmapped(&self, target: u64, data: &[u8]) -> Result<(), MemoryError> {
        if self.backing == Backing::Nothing { Ok(()) } else { on_demand::store(target, data) }
    }

    /// Works on a copy of 8 bytes and stores it if it changed. The engine's lock makes this one step
    /// towards all other work of the device.
    #[cold]
    fn with_copy<R>(&self, address: u64, work: impl FnOnce(&AtomicU64) -> R) -> Result<R, MemoryError> {
        let mut before = [0; 8];
        self.read(address, &mut before, false)?;
        let word = AtomicU64::new(u64::from_ne_bytes(before));
        let result = work(&word);
        let after = word.into_inner().to_ne_bytes();
        if after != before {
            self.write(address, &after, false)?;
        }
        Ok(result)
    }
}

/// The address `offset` bytes into a buffer, if `length` bytes from there are inside it.
#[inline]
fn inside(sge: &Sge, offset: u64, length: u64) -> Result<u64, MemoryError> {
    let size = u64::from(sge.length);
    if offset > size || length > size - offset {
        return Err(MemoryError::OutOfRange);
    }
    sge.address.checked_add(offset).ok_or(MemoryError::OutOfRange)
}

/// Calls `part(sge, offset inside it, bytes)` for each buffer that `length` bytes from `offset` of
/// the list touch.
fn walk(
    sges: &[Sge],
    mut offset: u64,
    mut length: u64,
    mut part: impl FnMut(&Sge, u64, u64) -> Result<(), MemoryError>,
) -> Result<(), MemoryError> {
    for sge in sges {
        if length == 0 {
            break;
        }
        let size = u64::from(sge.length);
        if offset >= size {
            offset -= size;
            continue;
        }
        let now = length.min(size - offset);
        part(sge, offset, now)?;
        offset = 0;
        length -= now;
    }
    if length == 0 { Ok(()) } else { Err(MemoryError::OutOfRange) }
}

/// Copies application memory at `source` into `out`.
#[inline]
pub(super) fn load(source: u64, out: &mut [u8]) {
    // SAFETY: the caller located `source..source + out.len()` inside a registered range, which
    // `RegionTable::register` requires to stay mapped. `out` is the device's own buffer, so the two
    // do not overlap. The application may write at the same time: the bytes are then any mixture.
    unsafe {
        ptr::copy_nonoverlapping(
            ptr::with_exposed_provenance::<u8>(source as usize),
            out.as_mut_ptr(),
            out.len(),
        );
    }
}

/// Copies `data` into application memory at `target`, the last aligned word last.
#[inline]
pub(super) fn store(target: u64, data: &[u8]) {
    let end = target.wrapping_add(data.len() as u64);
    if let Some((head, tail)) = data.split_last_chunk::<8>()
        && end.is_multiple_of(8)
    {
        store_bytes(target, head);
        let place = ptr::with_exposed_provenance_mut::<u64>((end - 8) as usize);
        // SAFETY: as in `store_bytes`; the word is aligned and inside the range.
        unsafe { AtomicU64::from_ptr(place) }.store(u64::from_ne_bytes(*tail), Ordering::Release);
    } else if let Some((head, tail)) = data.split_last_chunk::<4>()
        && end.is_multiple_of(4)
    {
        store_bytes(target, head);
        let place = ptr::with_exposed_provenance_mut::<u32>((end - 4) as usize);
        // SAFETY: as in `store_bytes`; the word is aligned and inside the range.
        unsafe { AtomicU32::from_ptr(place) }.store(u32::from_ne_bytes(*tail), Ordering::Release);
    } else if let Some((last, head)) = data.split_last() {
        store_bytes(target, head);
        fence(Ordering::Release);
        store_bytes(end - 1, std::slice::from_ref(last));
    }
}

#[inline]
fn store_bytes(target: u64, data: &[u8]) {
    // SAFETY: the caller located `target..target + data.len()` inside a registered range with a
    // write right, which `RegionTable::register` requires to stay mapped and writable. `data` is the
    // device's own buffer, so the two do not overlap.
    unsafe {
        ptr::copy_nonoverlapping(
            data.as_ptr(),
            ptr::with_exposed_provenance_mut::<u8>(target as usize),
            data.len(),
        );
    }
}

/// Writes the pages of a range back to their file; memory without a file needs nothing.
fn write_back(start: u64, length: u64) -> Result<(), MemoryError> {
    // SAFETY: no memory is involved.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1);
    let first = start - start % page;
    let bytes = (start - first).saturating_add(length);
    // SAFETY: msync does not change memory, and fails on pages that are not mapped.
    let result = unsafe {
        libc::msync(ptr::with_exposed_provenance_mut(first as usize), bytes as usize, libc::MS_SYNC)
    };
    if result == 0 { Ok(()) } else { Err(MemoryError::AccessDenied) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::RegionKeys;
    use pumice_transport::wire::Qpn;

    /// Application memory, reached like the device reaches it.
    struct Buffer {
        words: Box<[AtomicU64]>,
    }

    impl Buffer {
        fn new(words: usize) -> Buffer {
            Buffer { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
        }

        fn address(&self) -> u64 {
            self.words.as_ptr().expose_provenance() as u64
        }

        fn bytes(&self) -> Vec<u8> {
            self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
        }

        fn register(&self, table: &mut RegionTable) -> RegionKeys {
            let access = Access::all() - Access::ZERO_BASED;
            // SAFETY: the buffer outlives the table in every test, and consists of atomics.
            unsafe { table.register(1, self.address(), 8 * self.words.len() as u64, self.address(), access) }
                .unwrap()
        }
    }

    fn key(keys: RegionKeys) -> RemoteKey {
        RemoteKey { rkey: keys.rkey, pd: 1, qpn: Qpn::new(3) }
    }

    #[test]
    fn gather_and_scatter_are_inverses_at_every_offset() {
        let buffer = Buffer::new(8);
        let mut table = RegionTable::new(4);
        let keys = buffer.register(&mut table);
        let sge = |start, length| Sge { address: buffer.address() + start, length, lkey: keys.lkey };
        let lists: [&[Sge]; 3] =
            [&[sge(3, 20)], &[sge(40, 5), sge(0, 0), sge(3, 15)], &[sge(0, 1), sge(9, 18), sge(63, 1)]];
        for sges in lists {
            for offset in 0..=20_u64 {
                for length in 0..=(20 - offset as usize) {
                    let data: Vec<u8> = (0..length).map(|n| (n as u8) ^ 0xa5 ^ offset as u8).collect();
                    table.scatter(1, sges, offset, &data).unwrap();
                    let mut back = vec![0; length];
                    table.gather(1, sges, offset, &mut back).unwrap();
                    assert_eq!(back, data, "{length} bytes at offset {offset} of {sges:?}");
                }
                let too_many = vec![0; 21 - offset as usize];
                assert_eq!(table.scatter(1, sges, offset, &too_many), Err(MemoryError::OutOfRange));
            }
        }
    }

    #[test]
    fn stores_touch_exactly_their_range() {
        let buffer = Buffer::new(6);
        let mut table = RegionTable::new(4);
        let keys = buffer.register(&mut table);
        for start in 0..16_usize {
            for length in 0..24_usize {
                for word in &buffer.words {
                    word.store(u64::MAX, Ordering::Relaxed);
                }
                let data: Vec<u8> = (1..=length as u8).collect();
                table.remote_write(key(keys), buffer.address() + start as u64, &data).unwrap();
                let bytes = buffer.bytes();
                assert_eq!(bytes[start..start + length], data[..]);
                assert!(bytes[..start].iter().chain(&bytes[start + length..]).all(|byte| *byte == 0xff));
                let mut back = vec![0; length];
                table.remote_read(key(keys), buffer.address() + start as u64, &mut back).unwrap();
                assert_eq!(back, data);
            }
        }
    }

    #[test]
    fn empty_elements_and_empty_data_need_no_key() {
        let table = RegionTable::new(4);
        let nothing = Sge { address: 0, length: 0, lkey: 0 };
        assert_eq!(table.scatter(1, &[nothing], 0, &[]), Ok(()));
        assert_eq!(table.scatter(1, &[], 0, &[]), Ok(()));
        assert_eq!(table.gather(1, &[nothing, nothing], 0, &mut []), Ok(()));
        assert_eq!(table.gather(1, &[], 0, &mut [0]), Err(MemoryError::OutOfRange));
        let wrong = Sge { address: 0, length: 8, lkey: 0x1234 };
        assert_eq!(table.gather(1, &[wrong], 0, &mut [0]), Err(MemoryError::UnknownKey));
        let wrapping = Sge { address: u64::MAX, length: 8, lkey: 0x1234 };
        assert_eq!(table.gather(1, &[wrapping], 4, &mut [0]), Err(MemoryError::OutOfRange));
    }

    #[test]
    fn atomics_return_the_original_value() {
        let buffer = Buffer::new(2);
        let mut table = RegionTable::new(4);
        let keys = buffer.register(&mut table);
        buffer.words[1].store(5, Ordering::Relaxed);
        let at = |offset| buffer.address() + offset;
        let add = |offset, add| table.remote_atomic(key(keys), at(offset), AtomicOperation::FetchAdd { add });
        let swap = |compare, swap| {
            table.remote_atomic(key(keys), at(8), AtomicOperation::CompareSwap { compare, swap })
        };
        assert_eq!(add(8, u64::MAX), Ok(5));
        assert_eq!(swap(5, 9), Ok(4));
        assert_eq!(swap(4, 9), Ok(4));
        assert_eq!(buffer.words[1].load(Ordering::Relaxed), 9);
        assert_eq!(add(4, 1), Err(MemoryError::Misaligned));
        assert_eq!(add(16, 1), Err(MemoryError::OutOfRange));
        table.remote_atomic_write(key(keys), at(0), [1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert_eq!(buffer.bytes()[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(table.remote_atomic_write(key(keys), at(1), [0; 8]), Err(MemoryError::Misaligned));
    }

    #[test]
    fn an_iova_that_hides_a_misaligned_buffer_is_noticed() {
        let buffer = Buffer::new(4);
        let mut table = RegionTable::new(4);
        let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
        // SAFETY: the buffer outlives the table, and consists of atomics.
        let keys = unsafe { table.register(1, buffer.address() + 4, 16, 0x1000, access) }.unwrap();
        let operation = AtomicOperation::FetchAdd { add: 1 };
        assert_eq!(table.remote_atomic(key(keys), 0x1000, operation), Err(MemoryError::Misaligned));
    }

    #[test]
    fn flush_checks_rights_and_range() {
        let buffer = Buffer::new(4);
        let mut table = RegionTable::new(4);
        let keys = buffer.register(&mut table);
        let both = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        assert_eq!(table.remote_flush(key(keys), Some((buffer.address() + 1, 31)), both), Ok(()));
        assert_eq!(table.remote_flush(key(keys), None, both), Ok(()));
        assert_eq!(
            table.remote_flush(key(keys), Some((buffer.address() + 1, 32)), both),
            Err(MemoryError::OutOfRange)
        );
        // SAFETY: the buffer outlives the table, and consists of atomics.
        let plain =
            unsafe { table.register(1, buffer.address(), 8, buffer.address(), Access::REMOTE_READ) }.unwrap();
        assert_eq!(
            table.remote_flush(key(plain), None, Access::FLUSH_GLOBAL),
            Err(MemoryError::AccessDenied)
        );
    }

    #[test]
    fn on_demand_regions_fail_where_nothing_is_mapped() {
        let buffer = Buffer::new(2);
        let mut table = RegionTable::new(4);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::ON_DEMAND;
        // SAFETY: the whole address space, of which only the buffer is accessed.
        let keys = unsafe { table.register(1, 0, u64::MAX, 0, access) }.unwrap();
        let sge = |address, length| [Sge { address, length, lkey: keys.lkey }];
        table.scatter(1, &sge(buffer.address(), 16), 0, b"0123456789abcdef").unwrap();
        let mut out = [0; 4];
        table.gather(1, &sge(buffer.address(), 16), 3, &mut out).unwrap();
        assert_eq!(&out, b"3456");
        assert_eq!(table.gather(1, &sge(16, 8), 0, &mut out), Err(MemoryError::NotMapped));
        assert_eq!(table.scatter(1, &sge(16, 8), 0, &out), Err(MemoryError::NotMapped));
        assert_eq!(table.remote_write(key(keys), 16, &out), Err(MemoryError::NotMapped));
        assert_eq!(table.remote_write(key(keys), u64::MAX - 1, &out), Err(MemoryError::OutOfRange));

        buffer.words[1].store(5, Ordering::Relaxed);
        let word = buffer.address() + 8;
        let add = AtomicOperation::FetchAdd { add: 2 };
        assert_eq!(table.remote_atomic(key(keys), word, add), Ok(5));
        let swap = AtomicOperation::CompareSwap { compare: 6, swap: 9 };
        assert_eq!(table.remote_atomic(key(keys), word, swap), Ok(7));
        assert_eq!(buffer.words[1].load(Ordering::Relaxed), 7);
        table.remote_atomic_write(key(keys), word, 9_u64.to_ne_bytes()).unwrap();
        assert_eq!(buffer.words[1].load(Ordering::Relaxed), 9);
        assert_eq!(table.remote_atomic(key(keys), 16, add), Err(MemoryError::NotMapped));
        assert_eq!(table.remote_atomic(key(keys), word + 4, add), Err(MemoryError::Misaligned));
    }

    #[test]
    fn a_null_region_reads_as_zeros_and_keeps_nothing() {
        let mut table = RegionTable::new(4);
        let keys = table.register_nothing(1).unwrap();
        let sges = [Sge { address: 0x1234, length: 8, lkey: keys.lkey }];
        let mut out = [7; 8];
        table.scatter(1, &sges, 0, &out).unwrap();
        table.gather(1, &sges, 0, &mut out).unwrap();
        assert_eq!(out, [0; 8]);
        assert_eq!(table.gather(2, &sges, 0, &mut out), Err(MemoryError::WrongDomain));
        assert_eq!(table.remote_read(key(keys), 0, &mut out), Err(MemoryError::AccessDenied));
        assert_eq!(table.remote_write(key(keys), 0, &out), Err(MemoryError::AccessDenied));
        let change = super::super::RegionChange { access: Some(Access::all()), ..Default::default() };
        // SAFETY: it is refused.
        assert_eq!(unsafe { table.rereg(keys.handle, change) }.unwrap_err().errno(), libc::EINVAL);
    }

    #[test]
    fn device_memory_lives_as_long_as_it_is_registered() {
        let pool = super::super::DeviceMemoryPool::new(64);
        let memory = pool.allocate(64, 0).unwrap();
        let mut table = RegionTable::new(4);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::ZERO_BASED;
        let register = |table: &mut RegionTable, offset, length, access| {
            table.register_device_memory(1, &memory, offset, length, access)
        };
        for (offset, length, access) in [
            (0, 65, access),
            (60, 8, access),
            (0, 8, Access::LOCAL_WRITE),
            (0, 8, access | Access::ON_DEMAND),
        ] {
            assert_eq!(register(&mut table, offset, length, access).unwrap_err().errno(), libc::EINVAL);
        }
        let keys = register(&mut table, 16, 48, access).unwrap();
        table.remote_write(key(keys), 4, b"text").unwrap();
        let mut out = [0; 4];
        memory.read(20, &mut out).unwrap();
        assert_eq!(&out, b"text");
        assert_eq!(table.remote_write(key(keys), 45, b"text"), Err(MemoryError::OutOfRange));
        drop(memory);
        assert!(pool.allocate(1, 0).is_err());
        table.deregister(keys.handle).unwrap();
        pool.allocate(64, 0).unwrap();
    }
}
