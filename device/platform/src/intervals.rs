//! Ranges of memory, found by the bytes that they share with another range.

use std::collections::BTreeMap;

/// Most ranges that are stored; later ones are not added.
const MAX_RANGES: usize = 1 << 16;
/// Most ranges that a search visits.
const MAX_VISITED: usize = 512;

/// The ID of a range that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeId<K> {
    space: K,
    start: u64,
    number: u64,
}

#[derive(Debug)]
struct StoredRange<V> {
    end: u64,
    value: V,
}

/// A collection of ranges of bytes, each with a value. `K` tells address spaces apart.
#[derive(Debug)]
pub struct Intervals<K, V> {
    ranges: BTreeMap<RangeId<K>, StoredRange<V>>,
    /// An upper bound of the ranges' lengths.
    longest: u64,
    next: u64,
}

impl<K, V> Default for Intervals<K, V> {
    fn default() -> Intervals<K, V> {
        Intervals { ranges: BTreeMap::new(), longest: 0, next: 0 }
    }
}

impl<K: Ord + Copy, V> Intervals<K, V> {
    /// Adds a range, and returns its ID; `None` if it is empty, or there are too many.
    pub fn insert(&mut self, space: K, start: u64, bytes: u64, value: V) -> Option<RangeId<K>> {
        if bytes == 0 || self.ranges.len() >= MAX_RANGES {
            return None;
        }
        self.longest = self.longest.max(bytes);
        self.next += 1;
        let id = RangeId { space, start, number: self.next };
        self.ranges.insert(id, StoredRange { end: start.saturating_add(bytes), value });
        Some(id)
    }

    /// Removes a range.
    pub fn remove(&mut self, id: RangeId<K>) {
        self.ranges.remove(&id);
        if self.ranges.is_empty() {
            self.longest = 0;
        }
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.longest = 0;
    }

    /// Reports whether there is no range.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the values of the ranges that share bytes with this one, and their first bytes.
    pub fn sharing(&self, space: K, start: u64, bytes: u64) -> impl Iterator<Item = (u64, &V)> {
        let first = RangeId { space, start: start.saturating_sub(self.longest), number: 0 };
        let end = RangeId { space, start: start.saturating_add(bytes), number: 0 };
        let found = if bytes == 0 { first..first } else { first..end };
        let near = self.ranges.range(found).take(MAX_VISITED);
        near.filter(move |(_, noted)| noted.end > start).map(|(id, noted)| (id.start, &noted.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_the_bytes_they_share() {
        let mut ranges = Intervals::default();
        let one = ranges.insert(1, 100, 10, 'a').unwrap();
        ranges.insert(1, 100, 1, 'b').unwrap();
        ranges.insert(1, 109, u64::MAX, 'c').unwrap();
        ranges.insert(2, 100, 10, 'd').unwrap();
        assert_eq!(ranges.insert(1, 7, 0, 'e'), None);
        let found = |ranges: &Intervals<i32, char>, space, start, bytes| -> String {
            ranges.sharing(space, start, bytes).map(|(_, value)| *value).collect()
        };
        assert_eq!(found(&ranges, 1, 100, 1), "ab");
        assert_eq!(found(&ranges, 1, 101, 8), "a");
        assert_eq!(found(&ranges, 1, 101, 9), "ac");
        assert_eq!(found(&ranges, 1, 0, 100), "");
        assert_eq!(found(&ranges, 1, 100, 0), "");
        assert_eq!(found(&ranges, 2, u64::MAX, 9), "");
        ranges.remove(one);
        assert_eq!(found(&ranges, 1, 101, 9), "c");
        assert_eq!(found(&ranges, 1, u64::MAX - 1, 9), "c", "ranges end at the last address");
    }
}
