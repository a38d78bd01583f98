//! The store buffer between the device and memory: payload that is stored, and completions that are made, a
//! while after their packet came. Only a shuffled schedule fills it, as a seed decides.
//!
//! Everything in it waits in one queue, in order, and is drained at once when its time has come. While it
//! waits, no completion overtakes it and no response leaves, so what a completion or an acknowledgement
//! promises is always true. Atomics, keys that go, queue pairs that are reset, failures, and any access of
//! the device to a byte that waits come after it.

use std::borrow::Cow;
use std::sync::Arc;

use fnv::FnvHashMap;
use pumice_faults::shuffle::{Choice, Placement, Shuffle};
use pumice_objects::memory::{MappingCheck, RegionTable};
use pumice_transport::host::{MemoryError, QpContext, RemoteKey};
use pumice_transport::types::{Access, Sge};

use super::made::Made;

/// Payload that may wait, in bytes; more is stored at once.
const MOST_BYTES: usize = 4 << 20;
/// Things that may wait.
const MOST_ITEMS: usize = 4096;
/// The shortest wait; others are 2, 4, … 64 times as long.
const SHORTEST_NS: u64 = 10_000;
const DELAY_EXPONENTS: u64 = 7;

/// Where payload is stored.
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

    /// Stores `data`, which begins `skipped` bytes into what the target was made for.
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

    /// The ranges of this process that `length` bytes of it are.
    pub(crate) fn ranges(&self, memory: &RegionTable, length: usize) -> Result<Vec<Range>, MemoryError> {
        let length = length as u64;
        match self {
            Target::Remote { key, address } => {
                let mut ranges = Vec::new();
                let visit = |start, length| ranges.push(Range { start, length });
                memory.for_each_remote_range(*key, (*address, length), Access::REMOTE_WRITE, visit)?;
                Ok(ranges)
            }
            Target::Local { pd, sges, offset } => local_ranges(memory, *pd, sges, *offset, length, true),
        }
    }

    /// Whether a store there cannot fail later if it can be done now.
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
) -> Result<Vec<Range>, MemoryError> {
    let mut ranges = Vec::new();
    let bytes = offset..offset.saturating_add(length);
    memory.for_each_range(pd, sges, bytes, write, |start, length| ranges.push(Range { start, length }))?;
    Ok(ranges)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    start: u64,
    length: u64,
}

impl Range {
    const fn meets(self, other: Range) -> bool {
        self.start < other.start.saturating_add(other.length)
            && other.start < self.start.saturating_add(self.length)
    }
}

/// Something that waits.
#[derive(Debug)]
pub(crate) enum Item {
    Store {
        target: Target<'static>,
        ranges: Vec<Range>,
        data: Vec<u8>,
    },
    Completion {
        qp: QpContext,
        made: Made,
    },
    /// Completions and responses wait although all payload has been stored.
    Pause,
}

/// What waits.
#[derive(Debug)]
pub(crate) struct StoreBuffer {
    shuffle: Arc<Shuffle>,
    pub(crate) items: Vec<Item>,
    pub(crate) bytes: usize,
    /// The ordinal of the queue pair whose packet is handled: what it stores may be put off.
    pub(crate) current: Option<u32>,
    /// Stores of each queue pair so far.
    pub(crate) stores: FnvHashMap<u32, u64>,
    /// Calls that posted requests, of each queue pair.
    pub(crate) posts: FnvHashMap<u32, u64>,
    pub(crate) delay_ns: u64,
    pub(crate) due_ns: Option<u64>,
}

/// What becomes of the payload of a packet: bytes from `from` to before `to` are put off.
pub(crate) struct Cut {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) delay_ns: u64,
}

impl StoreBuffer {
    pub(crate) fn new(shuffle: Arc<Shuffle>) -> StoreBuffer {
        StoreBuffer {
            shuffle,
            items: Vec::new(),
            bytes: 0,
            current: None,
            stores: FnvHashMap::default(),
            posts: FnvHashMap::default(),
            delay_ns: 0,
            due_ns: None,
        }
    }

    /// Takes out all that waits.
    pub(crate) fn take(&mut self) -> Vec<Item> {
        (self.bytes, self.due_ns) = (0, None);
        std::mem::take(&mut self.items)
    }

    /// `part` waits to be stored; if it is empty, what follows waits all the same.
    pub(crate) fn push(&mut self, target: Target<'static>, ranges: Vec<Range>, part: &[u8], delay_ns: u64) {
        if self.items.is_empty() {
            self.delay_ns = delay_ns;
        }
        if part.is_empty() {
            self.items.push(Item::Pause);
        } else {
            self.bytes += part.len();
            self.items.push(Item::Store { target, ranges, data: part.to_vec() });
        }
    }

    /// From now on time passes for what waits.
    #[inline]
    pub(crate) fn time(&mut self, now_ns: u64) {
        if !self.items.is_empty() && self.due_ns.is_none() {
            self.due_ns = Some(now_ns.saturating_add(self.delay_ns));
        }
    }

    /// A queue pair was destroyed.
    pub(crate) fn forget(&mut self, ordinal: u32) {
        self.stores.remove(&ordinal);
        self.posts.remove(&ordinal);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= MOST_BYTES || self.items.len() >= MOST_ITEMS
    }

    /// Which part of the next `length` bytes that the queue pair stores is put off, if any.
    pub(crate) fn cut(&mut self, ordinal: u32, length: usize) -> Option<Cut> {
        let count = self.stores.entry(ordinal).or_insert(0);
        *count += 1;
        let mut random = self.shuffle.draw(Choice::Placement, &[ordinal.into(), *count]);
        let put_off = random.chance(self.shuffle.share_ppm(Choice::Placement));
        let (way, unit) = (random.below(4), [1, 8, 64, 64]);
        let unit = unit.get(random.below(4) as usize).copied().unwrap_or(64);
        let offset = random.below(length as u64) as usize;
        let delay_ns = SHORTEST_NS << random.below(DELAY_EXPONENTS);
        if !put_off {
            return None;
        }
        let nothing = (length, length);
        let (from, to) = match way {
            _ if self.shuffle.placement() == Placement::InOrder => nothing,
            0 => (0, length),
            // A word is stored in one piece.
            _ if length <= 8 => nothing,
            // The end first.
            1 => (0, length.saturating_sub(unit)),
            // A cache line last.
            2 => (offset, length.min(offset + 64)),
            _ => nothing,
        };
        Some(Cut { from, to, delay_ns })
    }

    /// How long what a call posted to the queue pair is kept back, if at all.
    pub(crate) fn departure(&mut self, ordinal: u32) -> Option<u64> {
        let count = self.posts.entry(ordinal).or_insert(0);
        *count += 1;
        let mut random = self.shuffle.draw(Choice::Departure, &[ordinal.into(), *count]);
        let put_off = random.chance(self.shuffle.share_ppm(Choice::Departure));
        put_off.then(|| SHORTEST_NS << random.below(DELAY_EXPONENTS))
    }

    pub(crate) fn meets(&self, ranges: &[Range]) -> bool {
        let waiting = self.items.iter().filter_map(|item| match item {
            Item::Store { ranges, .. } => Some(ranges),
            _ => None,
        });
        waiting.flatten().any(|own| ranges.iter().any(|range| range.meets(*own)))
    }
}
