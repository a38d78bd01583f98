//! The store buffer between the device and memory: payload is stored, and completions are made, a while after
//! their packet came. Only a shuffled schedule fills the buffer, as a seed decides.
//!
//! All items wait in one queue, in order, and are drained together when they are due. Until then no
//! completion overtakes them and no response leaves, so what a completion or an acknowledgement promises is
//! always true. Atomics, invalidation of keys, resets of queue pairs, failures, and any access of the device
//! to a buffered byte are executed after the items, except that a WRITE may be stored before an earlier one
//! if the order allows it ([`StoreOrder::lets_writes_pass`]). Stores that may be done after their
//! acknowledgement wait beside the queue ([`DeferredStores`]).

use std::sync::Arc;

use fnv::FnvHashMap;
use pumice_model::shuffle::{Choice, Placement, Shuffle};
use pumice_platform::clock::Random;
use pumice_transport::host::QpContext;
use pumice_transport::types::{SenderOrder, StoreEvidence, StoreOrder};
use pumice_transport::wire::Qpn;

use super::deferred_stores::DeferredStores;
use super::made::PendingCompletion;
use super::stored::{MemoryRange, Target, overlap};

/// Most payload that may be buffered, in bytes; more is stored at once.
const MAX_BYTES: usize = 4 << 20;
/// Most items in the buffer.
const MAX_ITEMS: usize = 4096;
/// The shortest delay, in ns; the others are 2, 4, … 64 times as long.
const SHORTEST_NS: u64 = 10_000;
const DELAY_EXPONENTS: u64 = 7;
/// Number of exponents for stores that outlive their acknowledgement: they wait up to 10.24 ms, so that an
/// answer comes before.
const LATE_EXPONENTS: u64 = 11;
/// Number of the posted receives at the front of the queue of which a message may take any.
const RECEIVES_IN_REACH: u64 = 4;

/// The origin of the payload of a packet, or of a part of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreSource {
    /// The queue pair that received the packet.
    pub(crate) qpn: Qpn,
    pub(crate) ordinal: u32,
    /// True if the packet is a WRITE.
    pub(crate) is_write: bool,
    pub(crate) order: StoreOrder,
}

/// An item of the store buffer.
#[derive(Debug)]
pub(crate) enum Item {
    Store {
        source: StoreSource,
        target: Target<'static>,
        ranges: Vec<MemoryRange>,
        data: Vec<u8>,
    },
    Completion {
        qp: QpContext,
        made: PendingCompletion,
    },
    /// An item without payload: completions and responses wait although all payload has been stored.
    Pause,
}

/// The store buffer of a device.
#[derive(Debug)]
pub(crate) struct StoreBuffer {
    shuffle: Arc<Shuffle>,
    pub(crate) items: Vec<Item>,
    pub(crate) bytes: usize,
    /// The queue pair whose packet is being handled; its stores may be buffered.
    pub(crate) current: Option<QpContext>,
    /// Number of stores of each queue pair so far.
    pub(crate) stores: FnvHashMap<u32, u64>,
    /// Number of receives that messages of each queue pair have taken.
    takes: FnvHashMap<u32, u64>,
    pub(crate) deferred: DeferredStores,
    /// Number of calls that posted requests, for each queue pair.
    pub(crate) posts: FnvHashMap<u32, u64>,
    pub(crate) delay_ns: u64,
    pub(crate) due_ns: Option<u64>,
}

/// The part of a packet's payload that is buffered: bytes from `from` to before `to`.
pub(crate) struct BufferedPart {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) delay_ns: u64,
    /// True if the part may be stored after the acknowledgement has left.
    pub(crate) deferred: bool,
}

impl StoreBuffer {
    pub(crate) fn new(shuffle: Arc<Shuffle>) -> StoreBuffer {
        StoreBuffer {
            shuffle,
            items: Vec::new(),
            bytes: 0,
            current: None,
            stores: FnvHashMap::default(),
            takes: FnvHashMap::default(),
            deferred: DeferredStores::default(),
            posts: FnvHashMap::default(),
            delay_ns: 0,
            due_ns: None,
        }
    }

    /// Takes out all items.
    pub(crate) fn take(&mut self) -> Vec<Item> {
        (self.bytes, self.due_ns) = (0, None);
        std::mem::take(&mut self.items)
    }

    /// Buffers the store of `part`; if it is empty, what follows waits all the same.
    pub(crate) fn push(
        &mut self,
        source: StoreSource,
        target: Target<'static>,
        ranges: Vec<MemoryRange>,
        (part, delay_ns): (&[u8], u64),
    ) {
        if self.items.is_empty() {
            self.delay_ns = delay_ns;
        }
        if part.is_empty() {
            self.items.push(Item::Pause);
        } else {
            self.bytes += part.len();
            self.items.push(Item::Store { source, target, ranges, data: part.to_vec() });
        }
    }

    /// Sets the due time of the buffered items, if there are any without one.
    #[inline]
    pub(crate) fn time(&mut self, now_ns: u64) {
        if !self.items.is_empty() && self.due_ns.is_none() {
            self.due_ns = Some(now_ns.saturating_add(self.delay_ns));
        }
        if !self.deferred.is_empty() {
            self.deferred.time(now_ns);
        }
    }

    /// Forgets a queue pair that was destroyed.
    pub(crate) fn forget(&mut self, ordinal: u32) {
        self.stores.remove(&ordinal);
        self.posts.remove(&ordinal);
        self.takes.remove(&ordinal);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES || self.items.len() >= MAX_ITEMS
    }

    /// Decides which part of the next `length` bytes that the queue pair stores is buffered, if any.
    pub(crate) fn cut(&mut self, source: StoreSource, length: usize) -> Option<BufferedPart> {
        let ordinal = source.ordinal;
        let count = self.stores.entry(ordinal).or_insert(0);
        *count += 1;
        let identity = [ordinal.into(), *count];
        if source.is_write && source.order.outlives_acknowledgement() && !self.deferred.is_full() {
            let mut random = self.shuffle.draw(Choice::DeferredStore, &identity);
            if random.chance(self.shuffle.share_ppm(Choice::DeferredStore)) {
                let (from, to) = part_of(length, source.order, &mut random);
                let (from, to) = if from < to { (from, to) } else { (0, length) };
                return Some(BufferedPart {
                    from,
                    to,
                    delay_ns: SHORTEST_NS << random.below(LATE_EXPONENTS),
                    deferred: true,
                });
            }
        }
        let mut random = self.shuffle.draw(Choice::Placement, &identity);
        let put_off = random.chance(self.shuffle.share_ppm(Choice::Placement));
        let (from, to) = part_of(length, source.order, &mut random);
        let delay_ns = SHORTEST_NS << random.below(DELAY_EXPONENTS);
        put_off.then_some(BufferedPart { from, to, delay_ns, deferred: false })
    }

    /// Returns the order in which the payload of a packet is stored.
    pub(crate) fn order_of(&self, out_of_order: bool, relaxed: bool) -> StoreOrder {
        StoreOrder::of(self.shuffle.placement() == Placement::InOrder, out_of_order, relaxed)
    }

    /// Decides which of the posted receives the next message of a queue pair takes that places data out of
    /// order.
    pub(crate) fn receive_to_take(&mut self, ordinal: u32, posted: u32) -> u32 {
        let count = self.takes.entry(ordinal).or_insert(0);
        *count += 1;
        let mut random = self.shuffle.draw(Choice::Receive, &[ordinal.into(), *count]);
        let is_other = random.chance(self.shuffle.share_ppm(Choice::Receive));
        let index = random.below(RECEIVES_IN_REACH) as u32;
        if is_other && index < posted { index } else { 0 }
    }

    /// Decides how long what a call posted to the queue pair is delayed, in ns, if at all.
    pub(crate) fn departure(&mut self, ordinal: u32) -> Option<u64> {
        let count = self.posts.entry(ordinal).or_insert(0);
        *count += 1;
        let mut random = self.shuffle.draw(Choice::Departure, &[ordinal.into(), *count]);
        let put_off = random.chance(self.shuffle.share_ppm(Choice::Departure));
        put_off.then(|| SHORTEST_NS << random.below(DELAY_EXPONENTS))
    }

    /// Reports whether a store to bytes of these ranges is buffered.
    pub(crate) fn overlaps(&self, ranges: &[MemoryRange]) -> bool {
        self.waiting().any(|(_, own)| overlap(own, ranges))
    }

    /// Reports whether a store is buffered that this one, to bytes of these ranges, may not pass.
    pub(crate) fn blocks(&self, source: Option<StoreSource>, ranges: &[MemoryRange]) -> bool {
        let passes = |own| source.is_some_and(|source| may_pass(source, own));
        self.waiting().any(|(own, of)| overlap(of, ranges) && !passes(own))
    }

    fn waiting(&self) -> impl Iterator<Item = (StoreSource, &[MemoryRange])> {
        self.items.iter().filter_map(|item| match item {
            Item::Store { source, ranges, .. } => Some((*source, ranges.as_slice())),
            _ => None,
        })
    }
}

/// Reports whether a store may be done before an earlier, unacknowledged one to the same bytes.
fn may_pass(later: StoreSource, earlier: StoreSource) -> bool {
    let following = SenderOrder { same_queue_pair: later.qpn == earlier.qpn, after_completion: false };
    later.is_write && earlier.is_write && !earlier.order.guarantees(StoreEvidence::Replacement, following)
}

/// Draws the part of a packet's payload that is not stored with the rest: from the first byte to before the
/// second.
fn part_of(length: usize, order: StoreOrder, random: &mut Random) -> (usize, usize) {
    let (way, unit) = (random.below(4), [1, 8, 64, 64]);
    let unit = unit.get(random.below(4) as usize).copied().unwrap_or(64);
    let offset = random.below(length as u64) as usize;
    let nothing = (length, length);
    match way {
        _ if order == StoreOrder::InOrder => nothing,
        0 => (0, length),
        // A word is always stored in one piece.
        _ if length <= 8 => nothing,
        // The end is stored first.
        1 => (0, length.saturating_sub(unit)),
        // A cache line is stored last.
        2 => (offset, length.min(offset + 64)),
        _ => nothing,
    }
}
