//! The destinations of payload, and the bytes of memory that they cover.

use std::borrow::Cow;

use pumice_memory::{MappingCheck, RegionTable};
use pumice_transport::host::{MemoryError, RemoteKey};
use pumice_transport::types::{Access, Sge};

/// The destination of payload.
#[derive(Debug, Clone)]
pub(crate) enum Target<'a> {
    Remote { key: RemoteKey, address: u64 },
    Local { pd: u32, sges: Cow<'a, [Sge]>, offset: u64 },
}

impl Target<'_> {
    pub(crate) fn store(
        &self,
        memory: &RegionTable,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        self.store_at(memory, 0, data, check)
    }

    /// Stores `data`, which begins `skipped` bytes into the target.
    pub(crate) fn store_at(
        &self,
        memory: &RegionTable,
        skipped: usize,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        if data.is_empty() {
            return Ok(());
        }
        let skipped = skipped as u64;
        match self {
            Target::Remote { key, address } => {
                memory.remote_write(*key, address.wrapping_add(skipped), data, check)
            }
            Target::Local { pd, sges, offset } => memory.scatter(*pd, sges, offset + skipped, data, check),
        }
    }

    /// Returns the ranges of this process's memory that `length` bytes of the target cover.
    pub(crate) fn ranges(
        &self,
        memory: &RegionTable,
        length: usize,
    ) -> Result<Vec<MemoryRange>, MemoryError> {
        let length = length as u64;
        match self {
            Target::Remote { key, address } => {
                let mut ranges = Vec::new();
                let visit = |start, length| ranges.push(MemoryRange { start, length });
                memory.for_each_remote_range(*key, (*address, length), Access::REMOTE_WRITE, visit)?;
                Ok(ranges)
            }
            Target::Local { pd, sges, offset } => local_ranges(memory, *pd, sges, *offset, length, true),
        }
    }

    /// Reports whether a store to the target cannot fail later if it can be done now.
    pub(crate) fn stays_mapped(&self, memory: &RegionTable) -> bool {
        match self {
            Target::Remote { key, .. } => memory.stays_mapped(key.rkey),
            Target::Local { sges, .. } => sges.iter().all(|sge| memory.stays_mapped(sge.lkey)),
        }
    }

    pub(crate) fn advanced(&self, skipped: usize) -> Target<'static> {
        let skipped = skipped as u64;
        match self {
            Target::Remote { key, address } => {
                Target::Remote { key: *key, address: address.wrapping_add(skipped) }
            }
            Target::Local { pd, sges, offset } => {
                let sges = Cow::Owned(sges.to_vec());
                Target::Local { pd: *pd, sges, offset: offset + skipped }
            }
        }
    }
}

pub(crate) fn local_ranges(
    memory: &RegionTable,
    pd: u32,
    sges: &[Sge],
    offset: u64,
    length: u64,
    write: bool,
) -> Result<Vec<MemoryRange>, MemoryError> {
    let mut ranges = Vec::new();
    let bytes = offset..offset.saturating_add(length);
    memory
        .for_each_range(pd, sges, bytes, write, |start, length| ranges.push(MemoryRange { start, length }))?;
    Ok(ranges)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryRange {
    start: u64,
    length: u64,
}

impl MemoryRange {
    pub(crate) const fn new(start: u64, length: u64) -> MemoryRange {
        MemoryRange { start, length }
    }

    const fn overlaps(self, other: MemoryRange) -> bool {
        self.start < other.start.saturating_add(other.length)
            && other.start < self.start.saturating_add(self.length)
    }
}

/// Reports whether two lists of ranges have a byte in common.
pub(super) fn overlap(one: &[MemoryRange], other: &[MemoryRange]) -> bool {
    one.iter().any(|range| other.iter().any(|own| range.overlaps(*own)))
}
