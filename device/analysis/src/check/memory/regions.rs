//! Registered memory, current and past, and an index of the bytes that requests use.

use std::collections::{BTreeMap, HashMap, VecDeque};

use fnv::FnvBuildHasher;
use pumice_platform::call_stack::Stack;
use pumice_platform::number_map::NumberMap;

use super::payload::ByteSpan;

/// The role of a request's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BufferRole {
    /// The buffers are sent.
    Payload,
    /// The answer to a READ or an atomic is stored in the buffers.
    Answer,
    /// A message is stored in the buffers.
    Receive,
}

impl BufferRole {
    /// Returns the name of the role, as in "a receive".
    pub(super) const fn name(self) -> &'static str {
        match self {
            BufferRole::Payload => "a send request",
            BufferRole::Answer => "a READ or an atomic",
            BufferRole::Receive => "a receive",
        }
    }
}

/// Largest number of buffers that are stored in a list, which is searched linearly. Programs that wait for
/// each message have few.
const FEW: usize = 16;

/// The buffers of requests, by their first bytes and the identities of the requests.
#[derive(Debug, Default)]
pub(super) struct BufferIndex {
    /// Buffers in order; empty if there are many.
    few: Vec<IndexedBuffer>,
    many: BTreeMap<(u64, u64), (ByteSpan, BufferRole)>,
}

/// A buffer, and the role that it has for its request.
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexedBuffer {
    pub(super) span: ByteSpan,
    pub(super) identity: u64,
    pub(super) role: BufferRole,
}

impl IndexedBuffer {
    const fn key(&self) -> (u64, u64) {
        (self.span.start, self.identity)
    }
}

impl BufferIndex {
    #[inline]
    pub(super) fn insert(&mut self, new: IndexedBuffer) {
        if self.many.is_empty() && self.few.len() < FEW {
            let call_site = self.few.iter().rposition(|one| one.key() < new.key()).map_or(0, |last| last + 1);
            self.few.insert(call_site, new);
        } else {
            self.insert_into_many(new);
        }
    }

    #[inline(never)]
    fn insert_into_many(&mut self, new: IndexedBuffer) {
        for one in self.few.drain(..).chain([new]) {
            self.many.insert(one.key(), (one.span, one.role));
        }
    }

    /// Removes the buffer of a request that begins there.
    #[inline]
    pub(super) fn remove(&mut self, start: u64, identity: u64) {
        match self.few.iter().position(|one| one.key() == (start, identity)) {
            Some(call_site) => drop(self.few.remove(call_site)),
            None => drop(self.many.remove(&(start, identity))),
        }
    }

    /// Visits the buffers that begin from `first` on and before `end`, the last one first, but no more than
    /// `most`.
    #[inline]
    pub(super) fn look(&self, first: u64, end: u64, most: usize, mut look: impl FnMut(IndexedBuffer)) {
        if self.many.is_empty() {
            let near = self.few.iter().rev().filter(|one| first <= one.span.start && one.span.start < end);
            near.take(most).for_each(|one| look(*one));
        } else {
            let near = self.many.range((first, 0)..(end, 0)).rev().take(most);
            near.for_each(|((_, identity), (span, role))| {
                look(IndexedBuffer { span: *span, identity: *identity, role: *role })
            });
        }
    }

    /// Returns the buffer of the newest request whose buffer begins there.
    #[inline]
    pub(super) fn newest_at(&self, start: u64) -> Option<IndexedBuffer> {
        let mut newest = None;
        self.look(start, start.saturating_add(1), 1, |one| newest = Some(one));
        newest
    }

    /// Returns where the first and the last of the buffers begin.
    pub(super) fn ends(&self) -> Option<(u64, u64)> {
        if let (Some(first), Some(last)) = (self.few.first(), self.few.last()) {
            return Some((first.span.start, last.span.start));
        }
        Some((self.many.first_key_value()?.0.0, self.many.last_key_value()?.0.0))
    }
}

/// Number of regions that are tracked; requests that use others are not checked.
const MAX_REGIONS: usize = 1 << 17;
/// Number of regions that are remembered after they were deregistered.
const MAX_FORMER: usize = 4096;

/// A memory key of one of the devices, as `DeviceTag::key` makes it.
pub(super) type MemoryKey = u64;

/// A memory region.
#[derive(Debug, Clone)]
pub(super) struct RegionRecord {
    /// The key for peers.
    pub(super) rkey: MemoryKey,
    pub(super) address: u64,
    pub(super) length: u64,
    /// Address of the first byte as users of its key give it.
    pub(super) iova: u64,
    /// The device takes the region to be mapped.
    pub(super) stays_mapped: bool,
    pub(super) made: Stack,
}

impl RegionRecord {
    /// Returns the name of the region, as in "memory region 0x1203 (4096 bytes at 0x7f0011002200)".
    pub(super) fn name(&self, key: MemoryKey) -> String {
        let own = key as u32;
        format!("memory region {own:#x} ({} bytes at {:#x})", self.length, self.address)
    }
}

/// A region that was deregistered.
#[derive(Debug, Clone)]
pub(super) struct FormerRegion {
    pub(super) region: RegionRecord,
    pub(super) ended: Stack,
}

/// All regions by their lkeys.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// By lkey.
    live: NumberMap<MemoryKey, RegionRecord>,
    /// The lkeys of regions, live or former, whose rkey is another number.
    lkeys: NumberMap<MemoryKey, MemoryKey>,
    former: HashMap<MemoryKey, FormerRegion, FnvBuildHasher>,
    former_order: VecDeque<MemoryKey>,
}

impl Regions {
    pub(super) fn add(&mut self, key: MemoryKey, region: RegionRecord) {
        self.former.remove(&key);
        if region.rkey != key && self.lkeys.len() < MAX_REGIONS + MAX_FORMER {
            self.lkeys.insert(region.rkey, key);
        }
        if self.live.len() < MAX_REGIONS || self.live.contains_key(&key) {
            self.live.insert(key, region);
        }
    }

    /// Returns the lkey of the region that has this number, which differs, as its rkey.
    pub(super) fn lkey_of(&self, rkey: MemoryKey) -> Option<MemoryKey> {
        self.lkeys.get(&rkey).copied()
    }

    /// Returns the lkey of the region that a peer names by a number: its rkey, or the lkey by mistake.
    pub(super) fn named_by_peer(&self, number: MemoryKey) -> MemoryKey {
        self.lkey_of(number).unwrap_or(number)
    }

    /// Returns the range of `bytes` at an address that users of a key give; `None` if the key or the range is
    /// unknown.
    pub(super) fn locate(&self, key: MemoryKey, address: u64, bytes: u64) -> Option<ByteSpan> {
        let region = self.live.get(&key)?;
        let offset = address.wrapping_sub(region.iova);
        let is_inside = offset <= region.length && bytes <= region.length - offset;
        is_inside.then(|| ByteSpan::new(region.address.wrapping_add(offset), bytes))
    }

    pub(super) fn stays_mapped(&self, key: MemoryKey) -> bool {
        self.live.get(&key).is_some_and(|region| region.stays_mapped)
    }

    pub(super) fn at(&self, key: MemoryKey) -> Option<&RegionRecord> {
        self.live.get(&key)
    }

    /// Returns a region that contains these bytes, by its lkey.
    pub(super) fn around(&self, address: u64, bytes: u64) -> Option<(MemoryKey, &RegionRecord)> {
        let is_inside = |key: MemoryKey| self.locate(key, address, bytes).is_some();
        self.live.iter().find(|(key, _)| is_inside(**key)).map(|(key, region)| (*key, region))
    }

    pub(super) fn former(&self, key: MemoryKey) -> Option<&FormerRegion> {
        self.former.get(&key)
    }

    /// Notes that the region of a key was deregistered at this call site.
    pub(super) fn end(&mut self, key: MemoryKey, ended: Stack) {
        let Some(region) = self.live.remove(&key) else { return };
        if self.former_order.len() >= MAX_FORMER
            && let Some(oldest) = self.former_order.pop_front()
        {
            self.forget_former(oldest);
        }
        self.former_order.push_back(key);
        self.former.insert(key, FormerRegion { region, ended });
    }

    fn forget_former(&mut self, key: MemoryKey) {
        let former = self.former.remove(&key);
        if let Some(rkey) = former.map(|former| former.region.rkey).filter(|rkey| *rkey != key) {
            self.lkeys.remove(&rkey);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_are_found_alike() {
        for count in [3, FEW as u64, FEW as u64 + 1, 100] {
            let mut index = BufferIndex::default();
            for identity in (0..count).rev() {
                // Two at each address.
                let span = ByteSpan::new(identity / 2 * 8, 8);
                index.insert(IndexedBuffer { span, identity, role: BufferRole::Receive });
            }
            assert_eq!(index.few.is_empty(), count > FEW as u64);
            assert_eq!(index.ends(), Some((0, (count - 1) / 2 * 8)));
            assert_eq!(index.newest_at(0).map(|one| one.identity), Some(1));
            assert!(index.newest_at(4).is_none());
            let found = |index: &BufferIndex, most| {
                let mut found = Vec::new();
                index.look(0, 16, most, |one| found.push(one.identity));
                found
            };
            let all: Vec<u64> = (0..count.min(4)).rev().collect();
            assert_eq!((found(&index, 9), found(&index, 2)), (all.clone(), all[..2].to_vec()));
            index.remove(0, 1);
            index.remove(0, 1);
            assert_eq!(found(&index, 9), all.into_iter().filter(|one| *one != 1).collect::<Vec<_>>());
            for identity in 0..count {
                index.remove(identity / 2 * 8, identity);
            }
            assert_eq!(index.ends(), None);
        }
    }

    fn region(address: u64, length: u64, iova: u64) -> RegionRecord {
        RegionRecord { rkey: 7, address, length, iova, stays_mapped: true, made: Stack::default() }
    }

    #[test]
    fn ranges_are_found_inside_their_region_only() {
        let mut regions = Regions::default();
        regions.add(7, region(0x9000, 0x100, 0));
        assert_eq!(regions.locate(7, 0x10, 0xf0), Some(ByteSpan { start: 0x9010, end: 0x9100 }));
        for (key, address, bytes) in
            [(8, 0, 1), (7, 0x10, 0xf1), (7, 0x101, 0), (7, u64::MAX, 2), (7, 1, u64::MAX)]
        {
            assert_eq!(regions.locate(key, address, bytes), None, "{bytes} bytes at {address:#x}");
        }
    }

    #[test]
    fn regions_that_are_gone_are_remembered_for_a_while() {
        let mut regions = Regions::default();
        for key in 0..2 * MAX_FORMER as MemoryKey {
            regions.add(key, region(0, 1, 0));
            regions.end(key, Stack::default());
        }
        assert!(regions.former(0).is_none() && regions.former(2 * MAX_FORMER as MemoryKey - 1).is_some());
        assert_eq!((regions.former.len(), regions.live.len()), (MAX_FORMER, 0));
        regions.add(5000, region(0, 1, 0));
        assert!(regions.former(5000).is_none(), "the key is in use again");
    }
}
