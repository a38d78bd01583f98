//! Which requests use which bytes.

use std::collections::BTreeMap;

use super::role::Role;
use super::span::Span;

/// Buffers that are kept in a list, which is looked through. Programs that wait for each message have few.
const FEW: usize = 16;

/// Buffers of requests, by their first bytes and the identities of the requests.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// In order; empty if there are many.
    few: Vec<Indexed>,
    many: BTreeMap<(u64, u64), (Span, Role)>,
}

/// A buffer, and what its request does with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Indexed {
    pub(super) span: Span,
    pub(super) identity: u64,
    pub(super) role: Role,
}

impl Indexed {
    const fn key(&self) -> (u64, u64) {
        (self.span.start, self.identity)
    }
}

impl Index {
    #[inline]
    pub(super) fn insert(&mut self, new: Indexed) {
        if self.many.is_empty() && self.few.len() < FEW {
            let place = self.few.iter().rposition(|one| one.key() < new.key()).map_or(0, |last| last + 1);
            self.few.insert(place, new);
        } else {
            self.insert_into_many(new);
        }
    }

    #[inline(never)]
    fn insert_into_many(&mut self, new: Indexed) {
        for one in self.few.drain(..).chain([new]) {
            self.many.insert(one.key(), (one.span, one.role));
        }
    }

    /// The buffer of a request that begins there.
    #[inline]
    pub(super) fn remove(&mut self, start: u64, identity: u64) {
        match self.few.iter().position(|one| one.key() == (start, identity)) {
            Some(place) => drop(self.few.remove(place)),
            None => drop(self.many.remove(&(start, identity))),
        }
    }

    /// Looks at those that begin from `first` on and before `end`, the last one first, but at no more than
    /// `most`.
    #[inline]
    pub(super) fn look(&self, first: u64, end: u64, most: usize, mut look: impl FnMut(Indexed)) {
        if self.many.is_empty() {
            let near = self.few.iter().rev().filter(|one| first <= one.span.start && one.span.start < end);
            near.take(most).for_each(|one| look(*one));
        } else {
            let near = self.many.range((first, 0)..(end, 0)).rev().take(most);
            near.for_each(|((_, identity), (span, role))| {
                look(Indexed { span: *span, identity: *identity, role: *role })
            });
        }
    }

    /// That of the newest request whose buffer begins there.
    #[inline]
    pub(super) fn newest_at(&self, start: u64) -> Option<Indexed> {
        let mut newest = None;
        self.look(start, start.saturating_add(1), 1, |one| newest = Some(one));
        newest
    }

    /// Where the first and the last of them begin.
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
            let mut index = Index::default();
            for identity in (0..count).rev() {
                // Two at each place.
                let span = Span::new(identity / 2 * 8, 8);
                index.insert(Indexed { span, identity, role: Role::Receive });
            }
            assert_eq!(index.few.is_empty(), count > FEW as u64);
            assert_eq!(index.ends(), Some((0, (count - 1) / 2 * 8)));
            assert_eq!(index.newest_at(0).map(|one| one.identity), Some(1));
            assert!(index.newest_at(4).is_none());
            let found = |index: &Index, most| {
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
