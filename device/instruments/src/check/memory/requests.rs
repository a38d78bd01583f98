//! The requests that are posted, and the memory that they use.

use std::collections::VecDeque;

use pumice_ground::aged_table::AgedTable;
use pumice_ground::call_stack::Stack;
use pumice_ground::number_map::NumberMap;
use pumice_transport::wire::Psn;
use smallvec::SmallVec;

use super::index::{Index, Indexed};
use super::payload::Contents;
use super::regions::Key;
use super::role::Role;
use super::span::Span;

/// Requests that are remembered at once; of others nothing is said.
const MAX_POSTED: usize = 1 << 17;
/// Keys that are remembered while no request uses them.
const USUAL_KEYS: usize = 1 << 10;
/// Other requests that are looked at for one that overlaps.
const MAX_LOOKS: usize = 64;

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
pub(super) struct Part {
    pub(super) key: Key,
    pub(super) span: Span,
}

/// The buffers of a request.
pub(super) type Parts = SmallVec<[Part; 2]>;

/// Identities of requests, of which there are few at a time.
pub(super) type Identities = SmallVec<[u64; 8]>;

/// A posted request.
#[derive(Debug, Clone)]
pub(super) struct Posted {
    pub(super) queue: QueueId,
    /// How many were posted to the queue before it.
    pub(super) number: u64,
    pub(super) wr_id: u64,
    pub(super) role: Role,
    pub(super) parts: Parts,
    pub(super) stack: Stack,
    /// The PSN after its last packet.
    pub(super) end_psn: Psn,
    /// Its buffers stay mapped, and are looked at where the device copies them: no system call is needed.
    pub(super) is_read_plainly: bool,
    pub(super) is_signaled: bool,
    /// All of it lies on the stack of the thread that posted it.
    pub(super) is_on_stack: bool,
    /// What its buffers held when it was posted, and when its last packet left.
    pub(super) at_post: Contents,
    pub(super) at_departure: Option<Contents>,
    /// The device stores something else in its buffers, too, or sends from them: contents say nothing.
    pub(super) is_shared: bool,
    /// It stores what arrives, and another request stores to the same buffers.
    pub(super) meets_another: bool,
    /// Where a WRITE of a peer came into the buffers.
    pub(super) written: Option<Span>,
    /// The program has freed a buffer of it, which is told, or its key stands for other memory now.
    pub(super) is_freed: bool,
    /// Its message has begun, or the peer has acknowledged it.
    pub(super) is_settled: bool,
    /// Its completion is there, and the program has not polled it.
    pub(super) is_unpolled: bool,
}

impl Posted {
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> + Clone {
        self.parts.iter().map(|part| part.span)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.spans().map(Span::bytes).sum()
    }

    pub(super) fn overlaps(&self, span: Span) -> bool {
        self.parts.iter().any(|part| part.span.overlaps(span))
    }

    /// Why the program may not touch its buffers.
    pub(super) const fn standing(&self) -> &'static str {
        match self.is_unpolled {
            true => "whose completion the program has not polled",
            false => "which is under way",
        }
    }
}

/// The requests of one queue that have not ended.
#[derive(Debug, Default)]
struct Queue {
    posted: u64,
    ended: u64,
    /// The peer has acknowledged all before this one.
    acknowledged: u64,
    /// Numbers and identities, oldest first.
    list: VecDeque<(u64, u64)>,
    /// For each completion that the program has not polled, how many of `done` it ends; oldest first.
    unpolled: VecDeque<u32>,
    /// Requests that have ended well, whose completions the program has not polled; oldest first.
    done: VecDeque<u64>,
}

impl Queue {
    /// The identity of a request by its number.
    #[inline]
    fn find(list: &VecDeque<(u64, u64)>, number: u64) -> Option<u64> {
        // The oldest one is asked for most often.
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
pub(super) struct Requests {
    entries: AgedTable<Posted>,
    queues: NumberMap<QueueId, Queue>,
    /// There was a shared receive queue.
    has_shared: bool,
    index: Index,
    longest: u64,
    /// No byte below or from here on is used.
    low: u64,
    high: u64,
    /// Requests by the keys of their buffers.
    uses: NumberMap<Key, u32>,
    /// Requests came or went since that was asked last.
    has_changed: bool,
}

impl Requests {
    /// The number of the next request of a queue.
    pub(super) fn next_number(&self, queue: QueueId) -> u64 {
        self.queues.get(&queue).map_or(0, |queue| queue.posted)
    }

    /// A request is posted of which nothing is remembered.
    pub(super) fn pass(&mut self, queue: QueueId, number: u64) {
        self.has_shared |= matches!(queue, QueueId::Shared(_));
        self.queues.or_default(queue).posted = number.wrapping_add(1);
    }

    /// Remembers a request, if there is room.
    pub(super) fn add(&mut self, posted: Posted) {
        self.pass(posted.queue, posted.number);
        if self.entries.len() >= MAX_POSTED {
            return;
        }
        let (queue, number, role) = (posted.queue, posted.number, posted.role);
        let Some(identity) = self.entries.add(posted) else { return };
        self.has_changed = true;
        self.queues.or_default(queue).list.push_back((number, identity));
        let parts = self.entries.get(identity).map(|posted| posted.parts.as_slice());
        for Part { key, span } in parts.unwrap_or_default().iter().copied() {
            self.index.insert(Indexed { span, identity, role });
            self.longest = self.longest.max(span.bytes());
            // As long as none is used, they are 0.
            self.low = if self.high == 0 { span.start } else { self.low.min(span.start) };
            self.high = self.high.max(span.end);
            let uses = self.uses.or_default(key);
            *uses = uses.saturating_add(1);
        }
    }

    pub(super) fn at(&self, identity: u64) -> Option<&Posted> {
        self.entries.get(identity)
    }

    pub(super) fn at_mut(&mut self, identity: u64) -> Option<&mut Posted> {
        self.entries.get_mut(identity)
    }

    /// The identity of a request by its queue and number.
    pub(super) fn find(&self, queue: QueueId, number: u64) -> Option<u64> {
        Queue::find(&self.queues.get(&queue)?.list, number)
    }

    /// The oldest request of a queue that has not ended, if it is remembered.
    pub(super) fn oldest(&self, queue: QueueId) -> Option<u64> {
        let known = self.queues.get(&queue)?;
        Queue::find(&known.list, known.ended)
    }

    /// The oldest request of a shared queue whose message has not begun.
    pub(super) fn oldest_unsettled(&self, queue: QueueId) -> Option<u64> {
        let list = &self.queues.get(&queue)?.list;
        let is_it = |identity: &u64| self.entries.get(*identity).is_some_and(|one| !one.is_settled);
        list.iter().map(|(_, identity)| *identity).take(MAX_LOOKS).find(is_it)
    }

    /// The peer acknowledges what is before a PSN: the requests of a queue that this says for the first time,
    /// oldest first.
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

    /// So many of the oldest requests of a queue end by one completion: those of them that are remembered.
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

    /// So many of the oldest requests of a queue are over with one completion, polled or not: those of them
    /// that are remembered.
    pub(super) fn finish(&mut self, queue: QueueId, count: u64) -> SmallVec<[Posted; 1]> {
        self.end(queue, count).into_iter().filter_map(|identity| self.forget(identity)).collect()
    }

    /// The oldest request of a queue is over, polled or not: it, if it is remembered. It has to be forgotten.
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

    /// So many of the oldest requests of a queue end well by one completion. They are remembered until the
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

    /// The program polls the oldest completion of those that end requests of a queue well: how many requests
    /// that are remembered. Each is taken by [`Requests::polled`].
    pub(super) fn ended_by_polled(&mut self, queue: QueueId) -> u32 {
        self.queues.get_mut(&queue).and_then(|known| known.unpolled.pop_front()).unwrap_or(0)
    }

    /// The oldest request of those whose completions are being polled.
    pub(super) fn polled(&mut self, queue: QueueId) -> Option<Posted> {
        let identity = self.queues.get_mut(&queue)?.done.pop_front()?;
        self.forget(identity)
    }

    /// A request of a shared receive queue ends. Several with its `wr_id` cannot be told apart, so all of
    /// them are forgotten.
    pub(super) fn end_by_id(&mut self, queue: QueueId, wr_id: u64) -> Option<Posted> {
        let list = &self.queues.get(&queue)?.list;
        let is_it = |identity: &u64| self.entries.get(*identity).is_some_and(|one| one.wr_id == wr_id);
        let alike: Vec<u64> = list.iter().map(|(_, identity)| *identity).filter(is_it).collect();
        if let Some(known) = self.queues.get_mut(&queue) {
            known.list.retain(|(_, identity)| !alike.contains(identity));
        }
        let forgotten: Vec<Posted> = alike.iter().filter_map(|one| self.forget(*one)).collect();
        <[Posted; 1]>::try_from(forgotten).ok().map(|[only]| only)
    }

    /// Shared receive queues.
    pub(super) fn shared_queues(&self) -> Vec<QueueId> {
        let is_shared = |queue: &&QueueId| matches!(queue, QueueId::Shared(_));
        self.queues.iter().map(|(queue, _)| queue).filter(is_shared).copied().collect()
    }

    pub(super) fn knows(&self, queue: QueueId) -> bool {
        let is_possible = self.has_shared || !matches!(queue, QueueId::Shared(_));
        is_possible && self.queues.contains_key(&queue)
    }

    /// A queue is reset or destroyed.
    pub(super) fn drop_queue(&mut self, queue: QueueId) {
        let Some(known) = self.queues.remove(&queue) else { return };
        let posted = known.list.into_iter().map(|(_, identity)| identity);
        for identity in posted.chain(known.done) {
            self.forget(identity);
        }
    }

    /// A request is over: it, if it is remembered.
    #[inline]
    pub(super) fn forget(&mut self, identity: u64) -> Option<Posted> {
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

    /// Requests that use bytes of a range.
    pub(super) fn overlapping(&self, span: Span) -> Identities {
        self.overlapping_of(span, |_| true)
    }

    /// Those of them that send these bytes.
    pub(super) fn sending(&self, span: Span) -> Identities {
        self.overlapping_of(span, |role| role == Role::Payload)
    }

    fn overlapping_of(&self, span: Span, is_wanted: impl Fn(Role) -> bool) -> Identities {
        let first = span.start.saturating_sub(self.longest);
        let mut found = Identities::new();
        if span.end <= self.low || self.high <= span.start {
            return found;
        }
        self.index.look(first, span.end, MAX_LOOKS, |one| {
            if is_wanted(one.role) && one.span.overlaps(span) && !found.contains(&one.identity) {
                found.push(one.identity);
            }
        });
        found
    }

    /// The newest request with just this buffer, if it does the same with it.
    pub(super) fn newest_alike(&mut self, role: Role, span: Span) -> Option<&mut Posted> {
        let newest = self.index.newest_at(span.start)?;
        let identity = ((newest.span, newest.role) == (span, role)).then_some(newest.identity)?;
        self.entries.get_mut(identity).filter(|one| one.parts.len() == 1)
    }

    /// Whether requests came or went since this was asked before.
    pub(super) fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// All memory that requests use lies from the one up to before the other.
    pub(super) fn bounds(&self) -> (u64, u64) {
        let (first, last) = self.index.ends().unwrap_or_default();
        (first, if last == 0 { 0 } else { last.saturating_add(self.longest) })
    }

    /// Requests that use the region of a key and are not known to be over: how many, and the oldest.
    pub(super) fn users_of(&self, key: Key) -> Option<(u64, &Posted)> {
        self.uses.get(&key).filter(|uses| **uses > 0)?;
        let uses = |one: &&Posted| {
            let is_over = one.is_settled && one.role == Role::Payload;
            !is_over && one.parts.iter().any(|part| part.key == key)
        };
        let all = || self.entries.iter().filter(|(_, one)| uses(one));
        let (_, oldest) = all().min_by_key(|(identity, _)| *identity)?;
        Some((all().count() as u64, oldest))
    }

    /// The registration of a key changes: nothing is said of requests that use it.
    pub(super) fn key_changes(&mut self, key: Key) {
        if self.uses.contains_key(&key) {
            let uses = |one: &&mut Posted| one.parts.iter().any(|part| part.key == key);
            self.entries.values_mut().filter(uses).for_each(|one| {
                (one.is_shared, one.at_post, one.is_freed) = (true, Contents::Unknown, true);
            });
        }
    }

    /// This is a child process.
    pub(super) fn clear(&mut self) {
        *self = Requests { has_changed: true, ..Requests::default() };
    }
}
