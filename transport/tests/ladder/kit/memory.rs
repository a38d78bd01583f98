//! Memory of the fake device: regions and windows by key.

use pumice_transport::host::{MemoryError, QpContext, RemoteKey};
use pumice_transport::types::{Access, AtomicOperation, Sge, WindowBind};
use pumice_transport::wire::Qpn;

/// A memory region. L_Key and R_Key may differ, so that mixing them up shows.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) pd: u32,
    pub(crate) access: Access,
    /// Address of the first byte.
    pub(crate) base: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A type-2 memory window.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) rkey: u32,
    pub(crate) pd: u32,
    /// What it is bound to; `None` while free.
    pub(crate) bound: Option<Bound>,
}

/// The binding of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) qpn: Qpn,
    pub(crate) lkey: u32,
    pub(crate) access: Access,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

/// All memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) regions: Vec<Region>,
    pub(crate) windows: Vec<Window>,
}

/// Where bytes are: a region's index and the range in its `bytes`.
type RegionSpan = (usize, std::ops::Range<usize>);

impl Memory {
    pub(crate) fn region(&mut self, lkey: u32) -> &mut Region {
        self.regions.iter_mut().find(|region| region.lkey == lkey).expect("a region with this L_Key")
    }

    /// Makes the keys of a region unknown, as deregistering does.
    pub(crate) fn deregister(&mut self, lkey: u32) {
        self.regions.retain(|region| region.lkey != lkey);
    }

    pub(crate) fn load(&self, pd: u32, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let mut rest = out;
        for (index, range) in self.local(pd, sges, offset, rest.len(), Access::empty())? {
            let (now, later) = rest.split_at_mut(range.len());
            now.copy_from_slice(&self.regions[index].bytes[range]);
            rest = later;
        }
        Ok(())
    }

    pub(crate) fn store(
        &mut self,
        pd: u32,
        sges: &[Sge],
        offset: u64,
        data: &[u8],
    ) -> Result<(), MemoryError> {
        let mut rest = data;
        for (index, range) in self.local(pd, sges, offset, data.len(), Access::LOCAL_WRITE)? {
            let (now, later) = rest.split_at(range.len());
            self.regions[index].bytes[range].copy_from_slice(now);
            rest = later;
        }
        Ok(())
    }

    /// The spans of bytes `offset..offset + length` of a list of buffers. The list must be long
    /// enough: whether it is, is the protocol's to know.
    fn local(
        &self,
        pd: u32,
        sges: &[Sge],
        offset: u64,
        length: usize,
        right: Access,
    ) -> Result<Vec<RegionSpan>, MemoryError> {
        let mut spans = Vec::new();
        let mut skip = offset;
        let mut left = length as u64;
        for sge in sges {
            let skipped = skip.min(sge.length.into());
            skip -= skipped;
            let count = left.min(u64::from(sge.length) - skipped);
            if count == 0 {
                continue;
            }
            left -= count;
            let found = self.regions.iter().position(|region| region.lkey == sge.lkey);
            let index = found.ok_or(MemoryError::UnknownKey)?;
            spans.push((index, self.regions[index].span(pd, right, sge.address + skipped, count)?));
        }
        assert_eq!(left, 0, "bytes {offset}+{length} are beyond the buffers {sges:?}");
        Ok(spans)
    }

    /// The span that a remote key opens. No range: only key, domain and rights are checked.
    pub(crate) fn remote(
        &self,
        key: RemoteKey,
        range: Option<(u64, u64)>,
        right: Access,
    ) -> Result<RegionSpan, MemoryError> {
        if let Some(index) = self.regions.iter().position(|region| region.rkey == key.rkey) {
            let region = &self.regions[index];
            let (address, length) = range.unwrap_or((region.base, region.bytes.len() as u64));
            return Ok((index, region.span(key.pd, right, address, length)?));
        }
        let window = self.windows.iter().find(|window| window.rkey == key.rkey);
        let (window, bound) = window
            .and_then(|window| Some((window, window.bound.as_ref()?)))
            .ok_or(MemoryError::UnknownKey)?;
        if window.pd != key.pd || bound.qpn != key.qpn {
            return Err(MemoryError::WrongDomain);
        }
        if !bound.access.contains(right) {
            return Err(MemoryError::AccessDenied);
        }
        let (address, length) = range.unwrap_or((bound.address, bound.length));
        if !inside(address, length, bound.address, bound.length) {
            return Err(MemoryError::OutOfRange);
        }
        let found = self.regions.iter().position(|region| region.lkey == bound.lkey);
        let index = found.ok_or(MemoryError::UnknownKey)?;
        Ok((index, self.regions[index].span(key.pd, Access::empty(), address, length)?))
    }

    pub(crate) fn atomic(
        &mut self,
        key: RemoteKey,
        address: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        let (index, range) = self.remote(key, Some((address, 8)), operation.access())?;
        aligned(address)?;
        let target = &mut self.regions[index].bytes[range];
        let original = u64::from_ne_bytes((&*target).try_into().expect("eight bytes"));
        let stored = match operation {
            AtomicOperation::CompareSwap { compare, swap } if compare == original => swap,
            AtomicOperation::CompareSwap { .. } => original,
            AtomicOperation::FetchAdd { add } => original.wrapping_add(add),
            AtomicOperation::Write { bytes } => u64::from_ne_bytes(bytes),
        };
        target.copy_from_slice(&stored.to_ne_bytes());
        Ok(original)
    }

    /// Only bound windows can be invalidated, by the queue pair they are bound on.
    pub(crate) fn invalidate(&mut self, key: RemoteKey) -> Result<(), MemoryError> {
        if self.regions.iter().any(|region| region.rkey == key.rkey) {
            return Err(MemoryError::AccessDenied);
        }
        let window = self.windows.iter_mut().find(|window| window.rkey == key.rkey);
        let window = window.ok_or(MemoryError::UnknownKey)?;
        match &window.bound {
            Some(bound) if window.pd == key.pd && bound.qpn == key.qpn => window.bound = None,
            Some(_) => return Err(MemoryError::WrongDomain),
            None => return Err(MemoryError::UnknownKey),
        }
        Ok(())
    }

    pub(crate) fn bind(&mut self, qp: &QpContext, bind: &WindowBind) -> Result<(), MemoryError> {
        let region = self.regions.iter().find(|region| region.lkey == bind.region_lkey);
        let region = region.ok_or(MemoryError::UnknownKey)?;
        region.span(qp.pd, Access::MW_BIND, bind.address, bind.length)?;
        let window = self.windows.iter_mut().find(|window| window.rkey == bind.window_rkey);
        let window = window.ok_or(MemoryError::UnknownKey)?;
        if window.pd != qp.pd {
            return Err(MemoryError::WrongDomain);
        }
        if window.bound.is_some() {
            return Err(MemoryError::AccessDenied);
        }
        window.rkey = bind.new_rkey;
        window.bound = Some(Bound {
            qpn: qp.qpn,
            lkey: bind.region_lkey,
            access: bind.access,
            address: bind.address,
            length: bind.length,
        });
        Ok(())
    }
}

impl Region {
    /// The range of `bytes` at an address, if domain, rights and bounds allow it.
    fn span(
        &self,
        pd: u32,
        right: Access,
        address: u64,
        length: u64,
    ) -> Result<std::ops::Range<usize>, MemoryError> {
        if self.pd != pd {
            return Err(MemoryError::WrongDomain);
        }
        if !self.access.contains(right) {
            return Err(MemoryError::AccessDenied);
        }
        if !inside(address, length, self.base, self.bytes.len() as u64) {
            return Err(MemoryError::OutOfRange);
        }
        let start = (address - self.base) as usize;
        Ok(start..start + length as usize)
    }
}

/// An atomic's address is a multiple of 8.
pub(crate) fn aligned(address: u64) -> Result<(), MemoryError> {
    if address.is_multiple_of(8) { Ok(()) } else { Err(MemoryError::Misaligned) }
}

fn inside(address: u64, length: u64, base: u64, size: u64) -> bool {
    address >= base && address.checked_add(length).is_some_and(|end| end <= base + size)
}
