//! Maps by numbers, optimised for few that are used again and again, and by ranges of memory.

use std::cell::Cell;
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

/// Number of entries that are found without a search.
const RECENT_ENTRIES: usize = 64;

/// Number of entries up to which a linear search is faster than the index.
const LINEAR_SEARCH_LIMIT: usize = 6;

/// A map from numbers to values, like a [`BTreeMap`]. An entry that was used lately is found without a
/// search: queue pairs and completion queues are looked up many times with each message, and a program uses
/// few at a time.
#[derive(Debug)]
pub struct NumberMap<K, V> {
    entries: Vec<(K, V)>,
    /// The index in `entries` of each number.
    index_of: BTreeMap<K, usize>,
    /// Indices that were used lately, by a hash of their numbers.
    recent: [Cell<usize>; RECENT_ENTRIES],
}

impl<K, V> Default for NumberMap<K, V> {
    fn default() -> NumberMap<K, V> {
        NumberMap {
            entries: Vec::new(),
            index_of: BTreeMap::new(),
            recent: [const { Cell::new(0) }; RECENT_ENTRIES],
        }
    }
}

impl<K: Copy + Ord + Into<u64>, V> NumberMap<K, V> {
    #[inline]
    fn find_index(&self, number: K) -> Option<usize> {
        // The high bits of the product depend on all bits of the number.
        const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash =
            Into::<u64>::into(number).wrapping_mul(HASH_MULTIPLIER) >> (u64::BITS - RECENT_ENTRIES.ilog2());
        let recent = self.recent.get(hash as usize)?;
        match self.entries.get(recent.get()) {
            Some((own, _)) if *own == number => Some(recent.get()),
            _ => self.search(number, recent),
        }
    }

    #[inline(never)]
    fn search(&self, number: K, recent: &Cell<usize>) -> Option<usize> {
        let find_index = match self.entries.len() {
            ..=LINEAR_SEARCH_LIMIT => self.entries.iter().position(|(own, _)| *own == number)?,
            _ => *self.index_of.get(&number)?,
        };
        recent.set(find_index);
        Some(find_index)
    }

    /// Returns the value of a number.
    #[inline]
    pub fn get(&self, number: &K) -> Option<&V> {
        let find_index = self.find_index(*number)?;
        self.entries.get(find_index).map(|(_, value)| value)
    }

    /// Returns the value of a number, mutably.
    #[inline]
    pub fn get_mut(&mut self, number: &K) -> Option<&mut V> {
        let find_index = self.find_index(*number)?;
        self.entries.get_mut(find_index).map(|(_, value)| value)
    }

    /// Reports whether the number has a value.
    #[inline]
    pub fn contains_key(&self, number: &K) -> bool {
        self.find_index(*number).is_some()
    }

    /// Returns the value of a number, which gets the default if it has none.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a place is that of an entry")]
    pub fn or_default(&mut self, number: K) -> &mut V
    where
        V: Default,
    {
        let find_index = self.find_index(number).unwrap_or_else(|| self.add(number, V::default()));
        &mut self.entries[find_index].1
    }

    fn add(&mut self, number: K, value: V) -> usize {
        let find_index = self.entries.len();
        self.entries.push((number, value));
        self.index_of.insert(number, find_index);
        find_index
    }

    /// Sets the value of a number, and returns the previous one.
    pub fn insert(&mut self, number: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&number) {
            return Some(std::mem::replace(known, value));
        }
        self.add(number, value);
        None
    }

    /// Removes the value of a number.
    pub fn remove(&mut self, number: &K) -> Option<V> {
        let find_index = self.index_of.remove(number)?;
        if find_index >= self.entries.len() {
            return None;
        }
        let (_, value) = self.entries.swap_remove(find_index);
        // The last entry has moved to this index.
        if let Some((moved, _)) = self.entries.get(find_index) {
            self.index_of.insert(*moved, find_index);
        }
        Some(value)
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.index_of.clear();
    }

    /// Returns how many numbers have a value.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Reports whether no number has a value.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns all numbers and their values, ordered by number.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.index_of
            .values()
            .filter_map(|find_index| self.entries.get(*find_index))
            .map(|(number, value)| (number, value))
    }

    /// Returns all values, ordered by number.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Returns all numbers and their values, mutably, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(number, value)| (&*number, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Random;

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

    /// Compares a map with a known one after the same step.
    fn step(map: &mut NumberMap<u32, u64>, known: &mut BTreeMap<u32, u64>, drawn: u64) {
        let (number, value) = ((drawn >> 8) as u32 % 40, drawn >> 32);
        match drawn % 4 {
            0 => assert_eq!(map.insert(number, value), known.insert(number, value)),
            1 => assert_eq!(map.remove(&number), known.remove(&number)),
            2 => {
                let (own, its) = (map.or_default(number), known.entry(number).or_default());
                assert_eq!(own, its);
                (*own, *its) = (value, value);
            }
            _ => assert_eq!(map.get_mut(&number), known.get_mut(&number)),
        }
        assert_eq!(
            (map.get(&number), map.contains_key(&number)),
            (known.get(&number), known.contains_key(&number))
        );
        assert_eq!((map.len(), map.is_empty()), (known.len(), known.is_empty()));
    }

    #[test]
    fn it_is_a_map() {
        let mut random = Random::new(17);
        for _ in 0..100 {
            let (mut map, mut known) = (NumberMap::default(), BTreeMap::new());
            for _ in 0..300 {
                step(&mut map, &mut known, random.next_u64());
            }
            assert!(map.iter().eq(known.iter()) && map.values().eq(known.values()));
            map.iter_mut().for_each(|(number, value)| *value = u64::from(*number) + 1);
            assert!(map.iter().all(|(number, value)| *value == u64::from(*number) + 1));
            map.clear();
            assert!(map.is_empty() && known.keys().all(|number| map.get(number).is_none()));
        }
    }
}
