//! An index of the bytes that requests use.

use std::collections::BTreeMap;

use super::role::BufferRole;
use super::span::ByteSpan;

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
}
