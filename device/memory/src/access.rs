//! Copies between packets and application memory, according to the backing of a region.

use std::sync::atomic::{Ordering, fence};

use pumice_platform::outside::fault_guard::FaultGuard;
use pumice_transport::host::{MemoryError, RemoteKey};
use pumice_transport::types::{Access, AtomicOperation, Sge};

use super::copy::RegionMemory;
use super::grant::{Backing, Grant};
use super::watch::Presence;
use super::{MappingCheck, RegionTable, copy, on_demand, watch};

impl RegionTable {
    /// Copies bytes `offset..offset + out.len()` of the buffers in `sges` into `out`.
    ///
    /// # Errors
    /// Fails if a key, its domain or a range is wrong, or if the buffers are too short. `out` is then partly
    /// written.
    #[inline]
    pub fn gather(
        &self,
        pd: u32,
        sges: &[Sge],
        offset: u64,
        out: &mut [u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        if self.has_signatures() {
            return self.gather_for_wire(pd, sges, offset, out, check);
        }
        if let [sge] = sges {
            return self.gather_one(pd, sge, offset, out, check);
        }
        let mut rest = out;
        walk(sges, offset, rest.len() as u64, |sge, start, length| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(length as usize);
            rest = later;
            self.gather_one(pd, sge, start, now, check)
        })
    }

    /// Copies `data` to bytes `offset..offset + data.len()` of the buffers in `sges`. With empty `data`
    /// nothing is checked.
    ///
    /// # Errors
    /// Fails as [`RegionTable::gather`] does, or if a region lacks `LOCAL_WRITE`. Earlier buffers are then
    /// written.
    #[inline]
    pub fn scatter(
        &self,
        pd: u32,
        sges: &[Sge],
        offset: u64,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        if self.has_signatures() {
            return self.scatter_from_wire(pd, sges, offset, data, check);
        }
        if let [sge] = sges {
            return self.scatter_one(pd, sge, offset, data, check);
        }
        let mut rest = data;
        walk(sges, offset, rest.len() as u64, |sge, start, length| {
            let (now, later) = rest.split_at(length as usize);
            rest = later;
            self.scatter_one(pd, sge, start, now, check)
        })
    }

    /// Calls `visit(process address, length in bytes)` for each range that these bytes of the buffers are.
    ///
    /// # Errors
    /// Fails as [`RegionTable::gather`] does; with `write` as [`RegionTable::scatter`] does.
    pub fn for_each_range(
        &self,
        pd: u32,
        sges: &[Sge],
        bytes: std::ops::Range<u64>,
        write: bool,
        mut visit: impl FnMut(u64, u64),
    ) -> Result<(), MemoryError> {
        walk(sges, bytes.start, bytes.end.saturating_sub(bytes.start), |sge, start, length| {
            let address = inside(sge, start, length)?;
            match self.locate_local(pd, sge.lkey, address, length, write) {
                Err(_) if self.is_indirect(sge.lkey) => {
                    let key = RegionTable::locally(sge.lkey, write);
                    self.indirect_ranges(pd, key, (address, length), &mut visit)
                }
                located => {
                    visit(located?, length);
                    Ok(())
                }
            }
        })
    }

    /// Calls `visit(process address, length in bytes)` for each range that these remote bytes are.
    ///
    /// # Errors
    /// Fails as [`RegionTable::locate_remote`] does.
    pub fn for_each_remote_range(
        &self,
        key: RemoteKey,
        (address, length): (u64, u64),
        access: Access,
        mut visit: impl FnMut(u64, u64),
    ) -> Result<(), MemoryError> {
        match self.locate_remote(key, address, length, access) {
            Err(_) if self.is_indirect(key.rkey) => {
                self.indirect_ranges(key.pd, (key.rkey, access), (address, length), &mut visit)
            }
            located => {
                visit(located?, length);
                Ok(())
            }
        }
    }

    /// Checks whether a remote range can be used, which may be one of an indirect key.
    ///
    /// # Errors
    /// Fails if the key, its domain, a right in `access` or the range is wrong.
    #[inline]
    pub fn check_remote(
        &self,
        key: RemoteKey,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<(), MemoryError> {
        match self.locate_remote(key, address, length, access) {
            Ok(_) => Ok(()),
            Err(_) if self.is_indirect(key.rkey) => {
                self.check_indirect(key.pd, (key.rkey, access), (address, length))
            }
            Err(error) => Err(error),
        }
    }

    /// Stores `data` at a remote address. The last aligned word is stored last and in one piece, so an
    /// application that polls the end of a buffer sees the whole of it.
    ///
    /// # Errors
    /// Fails if the key, its domain, its `REMOTE_WRITE` right or the range is wrong.
    #[inline]
    pub fn remote_write(
        &self,
        key: RemoteKey,
        address: u64,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        match self.remote_grant(key, Access::REMOTE_WRITE) {
            Ok(grant) => grant.write(&self.guard, address, data, check),
            Err(_) if self.is_indirect(key.rkey) => {
                self.write_indirect(key.pd, (key.rkey, Access::REMOTE_WRITE), address, data, check)
            }
            Err(error) => Err(error),
        }
    }

    /// Loads `out.len()` bytes from a remote address.
    ///
    /// # Errors
    /// Fails if the key, its domain, its `REMOTE_READ` right or the range is wrong.
    #[inline]
    pub fn remote_read(
        &self,
        key: RemoteKey,
        address: u64,
        out: &mut [u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        match self.remote_grant(key, Access::REMOTE_READ) {
            Ok(grant) => grant.read(&self.guard, address, out, check),
            Err(_) if self.is_indirect(key.rkey) => {
                self.read_indirect(key.pd, (key.rkey, Access::REMOTE_READ), address, out, check)
            }
            Err(error) => Err(error),
        }
    }

    /// Executes an operation on 8 bytes in one piece and returns the original value, in host order. It is
    /// atomic towards the application's own atomics too, unless the region is paged on demand: then only
    /// towards other work of the device.
    ///
    /// # Errors
    /// Fails if the key, its domain, the right that the operation takes or the range is wrong, or if the
    /// address (here or as the peer gives it) is not a multiple of 8.
    pub fn remote_atomic(
        &self,
        key: RemoteKey,
        address: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        match self.remote_grant(key, operation.access()) {
            Ok(grant) => grant.operate(&self.guard, (address, address), operation),
            Err(_) if self.is_indirect(key.rkey) => self.operate_indirect(key, address, operation),
            Err(error) => Err(error),
        }
    }

    /// Makes earlier stores to a range (address, bytes), or to all that the key opens, visible, and with
    /// `FLUSH_PERSISTENT` written back to the file they are mapped from, if any.
    ///
    /// # Errors
    /// Fails if the key, its domain, a right in `access` or the range is wrong, or if the write-back failed.
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
        //= linux:rxe_mr.c#rxe_flush_pmem_iova
        //| FLUSH with persistence writes the memory back.
        if access.contains(Access::FLUSH_PERSISTENT) && length > 0 {
            write_back(start, length)?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn gather_one(
        &self,
        pd: u32,
        sge: &Sge,
        offset: u64,
        out: &mut [u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        if out.is_empty() {
            return Ok(());
        }
        let address = inside(sge, offset, out.len() as u64)?;
        match self.local_grant(pd, sge.lkey, false) {
            Ok(grant) => grant.read(&self.guard, address, out, check),
            Err(_) if self.is_indirect(sge.lkey) => {
                self.read_indirect(pd, RegionTable::locally(sge.lkey, false), address, out, check)
            }
            Err(error) => Err(error),
        }
    }

    #[inline]
    pub(super) fn scatter_one(
        &self,
        pd: u32,
        sge: &Sge,
        offset: u64,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        //= linux:rxe_mr.c#copy_data
        //| A copy of no bytes looks at no key.
        if data.is_empty() {
            return Ok(());
        }
        let address = inside(sge, offset, data.len() as u64)?;
        match self.local_grant(pd, sge.lkey, true) {
            Ok(grant) => grant.write(&self.guard, address, data, check),
            Err(_) if self.is_indirect(sge.lkey) => {
                self.write_indirect(pd, RegionTable::locally(sge.lkey, true), address, data, check)
            }
            Err(error) => Err(error),
        }
    }
}

impl Grant {
    /// Executes an operation on the word at an address, which a user of another key calls `named`.
    ///
    /// # Errors
    /// Fails if the range is wrong, or if the address (here or as named) is not a multiple of 8.
    pub(super) fn operate(
        &self,
        guard: &FaultGuard,
        (named, address): (u64, u64),
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        let located = self.locate(address, 8)?;
        //= linux:rxe_mr.c#rxe_mr_do_atomic_op
        //| An atomic operation needs an address that is a multiple of eight.
        if !named.is_multiple_of(8) || !located.is_multiple_of(8) {
            return Err(MemoryError::Misaligned);
        }
        match self.backing {
            Backing::Mapped | Backing::File => copy::operate(self.memory(guard, located), operation),
            Backing::OnDemand => on_demand::operate(located, operation),
            // A null region reads as zeros.
            Backing::Nothing => Ok(0),
        }
    }

    #[inline(always)]
    pub(super) fn read(
        &self,
        guard: &FaultGuard,
        address: u64,
        out: &mut [u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        let source = self.locate(address, out.len() as u64)?;
        if check.asks() || self.backing != Backing::Mapped {
            return self.read_otherwise(guard, source, out, check);
        }
        copy::load(self.memory(guard, source), out)
    }

    #[inline(always)]
    pub(super) fn write(
        &self,
        guard: &FaultGuard,
        address: u64,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        let target = self.locate(address, data.len() as u64)?;
        if check.asks() || self.backing != Backing::Mapped {
            return self.write_otherwise(guard, target, data, check);
        }
        copy::store(self.memory(guard, target), data)
    }

    #[inline]
    fn memory<'a>(&self, guard: &'a FaultGuard, address: u64) -> RegionMemory<'a> {
        RegionMemory { guard, watched: self.watched, is_of_file: self.backing == Backing::File, address }
    }

    #[cold]
    fn read_otherwise(
        &self,
        guard: &FaultGuard,
        source: u64,
        out: &mut [u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        match self.backing {
            Backing::File if !check.asks() => copy::load(self.memory(guard, source), out),
            Backing::Nothing => {
                out.fill(0);
                Ok(())
            }
            _ => self.by_kernel(guard, source, out.len(), || on_demand::load(source, out)),
        }
    }

    #[cold]
    fn write_otherwise(
        &self,
        guard: &FaultGuard,
        target: u64,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        match self.backing {
            Backing::File if !check.asks() => copy::store(self.memory(guard, target), data),
            Backing::Nothing => Ok(()),
            _ => self.by_kernel(guard, target, data.len(), || on_demand::store(target, data)),
        }
    }

    /// Makes a copy by a system call, unless the region has lost the memory.
    fn by_kernel(
        &self,
        guard: &FaultGuard,
        first: u64,
        bytes: usize,
        copy: impl FnOnce() -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        let presence = watch::enter(guard, self.watched, first, bytes);
        let done = if presence == Presence::Lost { Err(MemoryError::NotMapped) } else { copy() };
        guard.leave();
        done
    }
}

/// Returns the address `offset` bytes into a buffer, if `length` bytes from there are inside it.
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

/// Writes the pages of a range back to their file; memory without a file needs nothing.
fn write_back(start: u64, length: u64) -> Result<(), MemoryError> {
    // SAFETY: no memory is involved.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1);
    let first = start - start % page;
    let bytes = (start - first).saturating_add(length);
    // SAFETY: msync does not change memory, and fails on pages that are not mapped.
    let result = unsafe { libc::syscall(libc::SYS_msync, first as usize, bytes as usize, libc::MS_SYNC) };
    if result == 0 { Ok(()) } else { Err(MemoryError::AccessDenied) }
}

#[cfg(any(test, kani))]
#[path = "access_proofs.rs"]
mod proofs;

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
