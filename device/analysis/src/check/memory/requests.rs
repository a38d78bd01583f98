//! The requests that are posted, and the memory that they use.

use std::collections::VecDeque;

use super::payload::{BufferContents, ByteSpan};
use super::regions::{BufferIndex, BufferRole, IndexedBuffer, MemoryKey};
use pumice_platform::call_stack::Stack;
use pumice_platform::number_map::NumberMap;
use pumice_platform::table::SerialTable;
use pumice_transport::wire::Psn;
use smallvec::SmallVec;

/// Number of requests that are remembered at once; others are not checked.
const MAX_POSTED: usize = 1 << 17;
/// Number of keys that are remembered while no request uses them.
const USUAL_KEYS: usize = 1 << 10;
/// Number of other requests that are examined for one that overlaps.
const MAX_LOOKUPS: usize = 64;

/// A queue that requests are posted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum QueueId {
    /// The send queue of a queue pair, by its number.
    Sends(u32),
    /// The receive queue of a queue pair, by its number.
    Receives(u32),
    /// A shared receive queue, as events name it.
    Shared(u32),
}

impl From<QueueId> for u64 {
    fn from(queue: QueueId) -> u64 {
        match queue {
            QueueId::Sends(number) => number.into(),
            QueueId::Receives(number) => 1 << 32 | u64::from(number),
            QueueId::Shared(handle) => 2 << 32 | u64::from(handle),
        }
    }
}

/// A buffer of a request, and the key that it was given with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BufferPart {
    pub(super) key: MemoryKey,
    pub(super) span: ByteSpan,
}

/// The buffers of a request.
pub(super) type BufferParts = SmallVec<[BufferPart; 2]>;

/// Identities of requests, of which there are few at a time.
pub(super) type Identities = SmallVec<[u64; 8]>;

/// A posted request.
#[derive(Debug, Clone)]
pub(super) struct PostedRequest {
    pub(super) queue: QueueId,
    /// Number of requests that were posted to the queue before it.
    pub(super) number: u64,
    pub(super) wr_id: u64,
    pub(super) role: BufferRole,
    pub(super) parts: BufferParts,
    pub(super) stack: Stack,
    /// PSN after its last packet.
    pub(super) end_psn: Psn,
    /// Its buffers stay mapped, and are read where the device copies them: no system call is needed.
    pub(super) is_read_plainly: bool,
    pub(super) is_signaled: bool,
    /// All of its memory lies on the stack of the thread that posted it.
    pub(super) is_on_stack: bool,
    /// Contents of its buffers when it was posted, and when its last packet left.
    pub(super) at_post: BufferContents,
    pub(super) at_departure: Option<BufferContents>,
    /// The device stores something else in its buffers, too, or sends from them: contents prove nothing.
    pub(super) is_shared: bool,
    /// The request stores what arrives, and another request stores to the same buffers.
    pub(super) overlaps_another: bool,
    /// Range of its buffers that a WRITE of a peer has changed.
    pub(super) written: Option<ByteSpan>,
    /// The program has freed a buffer of it, which is reported, or its key stands for other memory now.
    pub(super) is_freed: bool,
    /// Its message has begun, or the peer has acknowledged it.
    pub(super) is_settled: bool,
    /// Its completion is there, and the program has not polled it.
    pub(super) is_unpolled: bool,
}

impl PostedRequest {
    pub(super) fn spans(&self) -> impl Iterator<Item = ByteSpan> + Clone {
        self.parts.iter().map(|part| part.span)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.spans().map(ByteSpan::bytes).sum()
    }

    pub(super) fn overlaps(&self, span: ByteSpan) -> bool {
        self.parts.iter().any(|part| part.span.overlaps(span))
    }

    /// Returns why the program may not touch its buffers.
    pub(super) const fn reason_in_use(&self) -> &'static str {
        match self.is_unpolled {
            true => "whose completion the program has not polled",
            false => "which is under way",
        }
    }
}

/// The requests of one queue that have not ended.
#[derive(Debug, Default)]
struct RequestQueue {
    posted: u64,
    ended: u64,
    /// Number of the first request that the peer has not acknowledged.
    acknowledged: u64,
    /// Numbers and identities, oldest first.
    list: VecDeque<(u64, u64)>,
    /// Number of requests in `done` that each unpolled completion ends; oldest first.
    unpolled: VecDeque<u32>,
    /// Requests that have ended well, whose completions the program has not polled; oldest first.
    done: VecDeque<u64>,
}

impl RequestQueue {
    /// Returns the identity of a request by its number.
    #[inline]
    fn find(list: &VecDeque<(u64, u64)>, number: u64) -> Option<u64> {
        // The oldest request is queried most often.
        let (oldest, identity) = *list.front()?;
        if oldest >= number {
            return (oldest == number).then_some(identity);
        }
        let index = list.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        list.get(index).map(|(_, identity)| *identity)
    }
}

/// All posted requests.
#[derive(Debug, Default)]
pub(super) struct PostedRequests {
    entries: SerialTable<PostedRequest>,
    queues: NumberMap<QueueId, RequestQueue>,
    /// A shared receive queue has been used.
    has_shared: bool,
    index: BufferIndex,
    longest: u64,
    /// Bounds of the used memory: no byte below `low` or from `high` on is used.
    low: u64,
    high: u64,
    /// Number of requests by the keys of their buffers.
    uses: NumberMap<MemoryKey, u32>,
    /// Requests came or went since the last query.
    has_changed: bool,
}

impl PostedRequests {
    /// Returns the number of the next request of a queue.
    pub(super) fn next_number(&self, queue: QueueId) -> u64 {
        self.queues.get(&queue).map_or(0, |queue| queue.posted)
    }

    /// Counts a posted request that is not remembered.
    pub(super) fn pass(&mut self, queue: QueueId, number: u64) {
        self.has_shared |= matches!(queue, QueueId::Shared(_));
        self.queues.or_default(queue).posted = number.wrapping_add(1);
    }

    /// Remembers a request, if there is room.
    pub(super) fn add(&mut self, posted: PostedRequest) {
        self.pass(posted.queue, posted.number);
        if self.entries.len() >= MAX_POSTED {
            return;
        }
        let (queue, number, role) = (posted.queue, posted.number, posted.role);
        let Some(identity) = self.entries.add(posted) else { return };
        self.has_changed = true;
        self.queues.or_default(queue).list.push_back((number, identity));
        let parts = self.entries.get(identity).map(|posted| posted.parts.as_slice());
        for BufferPart { key, span } in parts.unwrap_or_default().iter().copied() {
            self.index.insert(IndexedBuffer { span, identity, role });
            self.longest = self.longest.max(span.bytes());
            // While no memory is used, both bounds are 0.
            self.low = if self.high == 0 { span.start } else { self.low.min(span.start) };
            self.high = self.high.max(span.end);
            let uses = self.uses.or_default(key);
            *uses = uses.saturating_add(1);
        }
    }

    pub(super) fn at(&self, identity: u64) -> Option<&PostedRequest> {
        self.entries.get(identity)
    }

    pub(super) fn at_mut(&mut self, identity: u64) -> Option<&mut PostedRequest> {
        self.entries.get_mut(identity)
    }

    /// Returns the identity of a request by its queue and number.
    pub(super) fn find(&self, queue: QueueId, number: u64) -> Option<u64> {
        RequestQueue::find(&self.queues.get(&queue)?.list, number)
    }

    /// Returns the oldest request of a queue that has not ended, if it is remembered.
    pub(super) fn oldest(&self, queue: QueueId) -> Option<u64> {
        let known = self.queues.get(&queue)?;
        RequestQueue::find(&known.list, known.ended)
    }

    /// Returns the oldest request of a shared queue whose message has not begun.
    pub(super) fn oldest_unsettled(&self, queue: QueueId) -> Option<u64> {
        let list = &self.queues.get(&queue)?.list;
        let is_it = |identity: &u64| self.entries.get(*identity).is_some_and(|one| !one.is_settled);
        list.iter().map(|(_, identity)| *identity).take(MAX_LOOKUPS).find(is_it)
    }

    /// Handles the peer's acknowledgement of what is before a PSN, and returns the requests of a queue that
    /// it acknowledges for the first time, oldest first.
    pub(super) fn acknowledge(&mut self, queue: QueueId, before: Psn) -> Identities {
        let mut over = Identities::new();
        let Some(known) = self.queues.get_mut(&queue).filter(|known| !known.list.is_empty()) else {
            return over;
        };
        let first = known.list.partition_point(|(number, _)| *number < known.acknowledged);
        for (number, identity) in known.list.range(first..) {
            if self.entries.get(*identity).is_some_and(|posted| before.is_before(posted.end_psn)) {
                break;
            }
            known.acknowledged = number.wrapping_add(1);
            over.push(*identity);
        }
        over
    }

    /// Ends the `count` oldest requests of a queue by one completion, and returns those of them that are
    /// remembered.
    fn end(&mut self, queue: QueueId, count: u64) -> Identities {
        let Some(known) = self.queues.get_mut(&queue) else { return Identities::new() };
        known.ended = known.ended.saturating_add(count).min(known.posted);
        let mut over = Identities::new();
        while let Some((number, identity)) = known.list.front().copied()
            && number < known.ended
        {
            known.list.pop_front();
            over.push(identity);
        }
        over
    }

    /// Ends the `count` oldest requests of a queue, which are over with one completion, polled or not, and
    /// returns those of them that are remembered.
    pub(super) fn finish(&mut self, queue: QueueId, count: u64) -> SmallVec<[PostedRequest; 1]> {
        self.end(queue, count).into_iter().filter_map(|identity| self.forget(identity)).collect()
    }

    /// Ends the oldest request of a queue, which is over, polled or not, and returns it, if it is remembered.
    /// The caller has to forget it.
    pub(super) fn finish_one(&mut self, queue: QueueId) -> Option<u64> {
        let known = self.queues.get_mut(&queue)?;
        known.ended = known.ended.saturating_add(1).min(known.posted);
        let (number, identity) = *known.list.front()?;
        if number >= known.ended {
            return None;
        }
        known.list.pop_front();
        Some(identity)
    }

    /// Ends the `count` oldest requests of a queue well, by one completion. They are remembered until the
    /// program polls it.
    pub(super) fn complete(&mut self, queue: QueueId, count: u64) -> Identities {
        let over = self.end(queue, count);
        if let Some(known) = self.queues.get_mut(&queue) {
            known.unpolled.push_back(over.len() as u32);
            known.done.extend(&over);
        }
        for identity in &over {
            if let Some(posted) = self.entries.get_mut(*identity) {
                posted.is_unpolled = true;
            }
        }
        over
    }

    /// Handles the poll of the oldest completion of those that end requests of a queue well, and returns how
    /// many remembered requests it ends. Each is taken by [`PostedRequests::polled`].
    pub(super) fn ended_by_polled(&mut self, queue: QueueId) -> u32 {
        self.queues.get_mut(&queue).and_then(|known| known.unpolled.pop_front()).unwrap_or(0)
    }

    /// Takes the oldest request of those whose completions are being polled.
    pub(super) fn polled(&mut self, queue: QueueId) -> Option<PostedRequest> {
        let identity = self.queues.get_mut(&queue)?.done.pop_front()?;
        self.forget(identity)
    }

    /// Ends a request of a shared receive queue. Several with its `wr_id` cannot be told apart, so all of
    /// them are forgotten.
    pub(super) fn end_by_id(&mut self, queue: QueueId, wr_id: u64) -> Option<PostedRequest> {
        let list = &self.queues.get(&queue)?.list;
        let is_it = |identity: &u64| self.entries.get(*identity).is_some_and(|one| one.wr_id == wr_id);
        let alike: Vec<u64> = list.iter().map(|(_, identity)| *identity).filter(is_it).collect();
        if let Some(known) = self.queues.get_mut(&queue) {
            known.list.retain(|(_, identity)| !alike.contains(identity));
        }
        let forgotten: Vec<PostedRequest> = alike.iter().filter_map(|one| self.forget(*one)).collect();
        <[PostedRequest; 1]>::try_from(forgotten).ok().map(|[only]| only)
    }

    /// Returns the shared receive queues.
    pub(super) fn shared_queues(&self) -> Vec<QueueId> {
        let is_shared = |queue: &&QueueId| matches!(queue, QueueId::Shared(_));
        self.queues.iter().map(|(queue, _)| queue).filter(is_shared).copied().collect()
    }

    pub(super) fn knows(&self, queue: QueueId) -> bool {
        let is_possible = self.has_shared || !matches!(queue, QueueId::Shared(_));
        is_possible && self.queues.contains_key(&queue)
    }

    /// Forgets the requests of a queue that is reset or destroyed.
    pub(super) fn drop_queue(&mut self, queue: QueueId) {
        let Some(known) = self.queues.remove(&queue) else { return };
        let posted = known.list.into_iter().map(|(_, identity)| identity);
        for identity in posted.chain(known.done) {
            self.forget(identity);
        }
    }

    /// Removes a request that is over, and returns it, if it is remembered.
    #[inline]
    pub(super) fn forget(&mut self, identity: u64) -> Option<PostedRequest> {
        let posted = self.entries.remove(identity)?;
        self.has_changed = true;
        for part in &posted.parts {
            self.index.remove(part.span.start, identity);
            if let Some(uses) = self.uses.get_mut(&part.key) {
                *uses = uses.saturating_sub(1);
                // Most keys are used again at once.
                if *uses == 0 && self.uses.len() > USUAL_KEYS {
                    self.uses.remove(&part.key);
                }
            }
        }
        if self.entries.is_empty() {
            (self.longest, self.low, self.high) = (0, 0, 0);
        }
        Some(posted)
    }

    /// Returns the requests that use bytes of a range.
    pub(super) fn overlapping(&self, span: ByteSpan) -> Identities {
        self.overlapping_of(span, |_| true)
    }

    /// Returns the requests that send bytes of a range.
    pub(super) fn sending(&self, span: ByteSpan) -> Identities {
        self.overlapping_of(span, |role| role == BufferRole::Payload)
    }

    fn overlapping_of(&self, span: ByteSpan, is_wanted: impl Fn(BufferRole) -> bool) -> Identities {
        let first = span.start.saturating_sub(self.longest);
        let mut found = Identities::new();
        if span.end <= self.low || self.high <= span.start {
            return found;
        }
        self.index.look(first, span.end, MAX_LOOKUPS, |one| {
            if is_wanted(one.role) && one.span.overlaps(span) && !found.contains(&one.identity) {
                found.push(one.identity);
            }
        });
        found
    }

    /// Returns the newest request with exactly this buffer, if it has the same role.
    pub(super) fn newest_alike(&mut self, role: BufferRole, span: ByteSpan) -> Option<&mut PostedRequest> {
        let newest = self.index.newest_at(span.start)?;
        let identity = ((newest.span, newest.role) == (span, role)).then_some(newest.identity)?;
        self.entries.get_mut(identity).filter(|one| one.parts.len() == 1)
    }

    /// Reports whether requests came or went since the last call.
    pub(super) fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Returns the bounds of all memory that requests use: the first byte, and the one behind the last.
    pub(super) fn bounds(&self) -> (u64, u64) {
        let (first, last) = self.index.ends().unwrap_or_default();
        (first, if last == 0 { 0 } else { last.saturating_add(self.longest) })
    }

    /// Returns how many requests use the region of a key and are not known to be over, and the oldest of
    /// them.
    pub(super) fn users_of(&self, key: MemoryKey) -> Option<(u64, &PostedRequest)> {
        self.uses.get(&key).filter(|uses| **uses > 0)?;
        let uses = |one: &&PostedRequest| {
            let is_over = one.is_settled && one.role == BufferRole::Payload;
            !is_over && one.parts.iter().any(|part| part.key == key)
        };
        let all = || self.entries.iter().filter(|(_, one)| uses(one));
        let (_, oldest) = all().min_by_key(|(identity, _)| *identity)?;
        Some((all().count() as u64, oldest))
    }

    /// Handles a changed registration of a key: the requests that use it are not checked any more.
    pub(super) fn key_changes(&mut self, key: MemoryKey) {
        if self.uses.contains_key(&key) {
            let uses = |one: &&mut PostedRequest| one.parts.iter().any(|part| part.key == key);
            self.entries.values_mut().filter(uses).for_each(|one| {
                (one.is_shared, one.at_post, one.is_freed) = (true, BufferContents::Unknown, true);
            });
        }
    }

    /// Removes all requests, in a fork child.
    pub(super) fn clear(&mut self) {
        *self = PostedRequests { has_changed: true, ..PostedRequests::default() };
    }
}
