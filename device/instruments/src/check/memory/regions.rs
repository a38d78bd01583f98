//! Registered memory, as it is and as it was.

use std::collections::{HashMap, VecDeque};

use fnv::FnvBuildHasher;
use pumice_ground::call_stack::Stack;
use pumice_ground::number_map::NumberMap;

use super::span::Span;

/// Regions that are known; of requests that use others nothing is known.
const MAX_REGIONS: usize = 1 << 17;
/// Regions that are remembered after they were deregistered.
const MAX_GONE: usize = 4096;

/// A memory key of one of the devices, as `OfDevice::key` makes it.
pub(super) type Key = u64;

/// A memory region.
#[derive(Debug, Clone)]
pub(super) struct Region {
    pub(super) address: u64,
    pub(super) length: u64,
    /// What users of its key call the first byte.
    pub(super) iova: u64,
    /// The device takes it to be mapped.
    pub(super) stays_mapped: bool,
    pub(super) made: Stack,
}

impl Region {
    /// As in "memory region 0x1203 (4096 bytes at 0x7f0011002200)".
    pub(super) fn name(&self, key: Key) -> String {
        let own = key as u32;
        format!("memory region {own:#x} ({} bytes at {:#x})", self.length, self.address)
    }
}

/// A region that was deregistered.
#[derive(Debug, Clone)]
pub(super) struct GoneRegion {
    pub(super) region: Region,
    pub(super) ended: Stack,
}

/// All regions by their keys.
#[derive(Debug, Default)]
pub(super) struct Regions {
    live: NumberMap<Key, Region>,
    gone: HashMap<Key, GoneRegion, FnvBuildHasher>,
    gone_order: VecDeque<Key>,
}

impl Regions {
    pub(super) fn add(&mut self, key: Key, region: Region) {
        self.gone.remove(&key);
        if self.live.len() < MAX_REGIONS || self.live.contains_key(&key) {
            self.live.insert(key, region);
        }
    }

    /// What is behind `bytes` at an address that users of a key say; none if the key or the range is unknown.
    pub(super) fn locate(&self, key: Key, address: u64, bytes: u64) -> Option<Span> {
        let region = self.live.get(&key)?;
        let offset = address.wrapping_sub(region.iova);
        let is_inside = offset <= region.length && bytes <= region.length - offset;
        is_inside.then(|| Span::new(region.address.wrapping_add(offset), bytes))
    }

    pub(super) fn stays_mapped(&self, key: Key) -> bool {
        self.live.get(&key).is_some_and(|region| region.stays_mapped)
    }

    pub(super) fn at(&self, key: Key) -> Option<&Region> {
        self.live.get(&key)
    }

    /// A region in which these bytes are, by its lkey.
    pub(super) fn around(&self, address: u64, bytes: u64) -> Option<(Key, &Region)> {
        let is_inside = |key: Key| self.locate(key, address, bytes).is_some();
        self.live.iter().find(|(key, _)| is_inside(**key)).map(|(key, region)| (*key, region))
    }

    pub(super) fn gone(&self, key: Key) -> Option<&GoneRegion> {
        self.gone.get(&key)
    }

    /// The region of a key was deregistered here.
    pub(super) fn end(&mut self, key: Key, ended: Stack) {
        let Some(region) = self.live.remove(&key) else { return };
        if self.gone_order.len() >= MAX_GONE
            && let Some(oldest) = self.gone_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
        self.gone_order.push_back(key);
        self.gone.insert(key, GoneRegion { region, ended });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(address: u64, length: u64, iova: u64) -> Region {
        Region { address, length, iova, stays_mapped: true, made: Stack::default() }
    }

    #[test]
    fn ranges_are_found_inside_their_region_only() {
        let mut regions = Regions::default();
        regions.add(7, region(0x9000, 0x100, 0));
        assert_eq!(regions.locate(7, 0x10, 0xf0), Some(Span { start: 0x9010, end: 0x9100 }));
        for (key, address, bytes) in
            [(8, 0, 1), (7, 0x10, 0xf1), (7, 0x101, 0), (7, u64::MAX, 2), (7, 1, u64::MAX)]
        {
            assert_eq!(regions.locate(key, address, bytes), None, "{bytes} bytes at {address:#x}");
        }
    }

    #[test]
    fn regions_that_are_gone_are_remembered_for_a_while() {
        let mut regions = Regions::default();
        for key in 0..2 * MAX_GONE as Key {
            regions.add(key, region(0, 1, 0));
            regions.end(key, Stack::default());
        }
        assert!(regions.gone(0).is_none() && regions.gone(2 * MAX_GONE as Key - 1).is_some());
        assert_eq!((regions.gone.len(), regions.live.len()), (MAX_GONE, 0));
        regions.add(5000, region(0, 1, 0));
        assert!(regions.gone(5000).is_none(), "the key is in use again");
    }
}
