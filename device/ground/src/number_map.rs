//! A map by numbers, of which a program uses the same few again and again.

use std::cell::Cell;
use std::collections::BTreeMap;

/// Entries that are found without a search.
const LATELY: usize = 64;

/// So few entries are looked through sooner than their places are found.
const FEW: usize = 6;

/// Values by numbers, as in a [`BTreeMap`]. An entry that was asked for lately is found without a search:
/// queue pairs and completion queues are asked for many times with each message, and a program uses few at a
/// time.
#[derive(Debug)]
pub struct NumberMap<K, V> {
    entries: Vec<(K, V)>,
    /// Where in `entries` each of them is.
    places: BTreeMap<K, usize>,
    /// Where entries were found lately, by a hash of their numbers.
    lately: [Cell<usize>; LATELY],
}

impl<K, V> Default for NumberMap<K, V> {
    fn default() -> NumberMap<K, V> {
        NumberMap { entries: Vec::new(), places: BTreeMap::new(), lately: [const { Cell::new(0) }; LATELY] }
    }
}

impl<K: Copy + Ord + Into<u64>, V> NumberMap<K, V> {
    #[inline]
    fn place(&self, number: K) -> Option<usize> {
        // The high bits of the product depend on all bits of the number.
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = Into::<u64>::into(number).wrapping_mul(ODD) >> (u64::BITS - LATELY.ilog2());
        let lately = self.lately.get(hash as usize)?;
        match self.entries.get(lately.get()) {
            Some((own, _)) if *own == number => Some(lately.get()),
            _ => self.search(number, lately),
        }
    }

    #[inline(never)]
    fn search(&self, number: K, lately: &Cell<usize>) -> Option<usize> {
        let place = match self.entries.len() {
            ..=FEW => self.entries.iter().position(|(own, _)| *own == number)?,
            _ => *self.places.get(&number)?,
        };
        lately.set(place);
        Some(place)
    }

    /// The value of a number.
    #[inline]
    pub fn get(&self, number: &K) -> Option<&V> {
        let place = self.place(*number)?;
        self.entries.get(place).map(|(_, value)| value)
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, number: &K) -> Option<&mut V> {
        let place = self.place(*number)?;
        self.entries.get_mut(place).map(|(_, value)| value)
    }

    /// Whether the number has a value.
    #[inline]
    pub fn contains_key(&self, number: &K) -> bool {
        self.place(*number).is_some()
    }

    /// The value of a number, which gets the default if it has none.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a place is that of an entry")]
    pub fn or_default(&mut self, number: K) -> &mut V
    where
        V: Default,
    {
        let place = self.place(number).unwrap_or_else(|| self.add(number, V::default()));
        &mut self.entries[place].1
    }

    fn add(&mut self, number: K, value: V) -> usize {
        let place = self.entries.len();
        self.entries.push((number, value));
        self.places.insert(number, place);
        place
    }

    /// Gives a number this value: the one that it had.
    pub fn insert(&mut self, number: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&number) {
            return Some(std::mem::replace(known, value));
        }
        self.add(number, value);
        None
    }

    /// Takes a number's value.
    pub fn remove(&mut self, number: &K) -> Option<V> {
        let place = self.places.remove(number)?;
        if place >= self.entries.len() {
            return None;
        }
        let (_, value) = self.entries.swap_remove(place);
        // The last entry is in its place now.
        if let Some((moved, _)) = self.entries.get(place) {
            self.places.insert(*moved, place);
        }
        Some(value)
    }

    /// No number has a value any more.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.places.clear();
    }

    /// How many numbers have a value.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All numbers and their values, by number.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.places
            .values()
            .filter_map(|place| self.entries.get(*place))
            .map(|(number, value)| (number, value))
    }

    /// All values, by number.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// All numbers and their values, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(number, value)| (&*number, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// What a map and one that is known do in the same step.
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
