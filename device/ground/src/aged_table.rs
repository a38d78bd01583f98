//! A table whose entries are named by numbers that say which is older.

/// Bits of a name that say where its entry is.
const PLACE_BITS: u32 = 20;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// Entries by names. A later entry has a larger name, and no name is given twice. There is room for 2^20.
#[derive(Debug)]
pub struct AgedTable<T> {
    places: Vec<Option<(u64, T)>>,
    free: Vec<u64>,
    count: usize,
    given: u64,
}

impl<T> Default for AgedTable<T> {
    fn default() -> AgedTable<T> {
        AgedTable { places: Vec::new(), free: Vec::new(), count: 0, given: 0 }
    }
}

impl<T> AgedTable<T> {
    /// Adds an entry: its name; none if there is no room.
    pub fn add(&mut self, entry: T) -> Option<u64> {
        let place = self.free.pop().unwrap_or(self.places.len() as u64);
        if place > PLACE_MASK {
            return None;
        }
        let name = self.given << PLACE_BITS | place;
        self.given += 1;
        self.count += 1;
        match self.places.get_mut(place as usize) {
            Some(free) => *free = Some((name, entry)),
            None => self.places.push(Some((name, entry))),
        }
        Some(name)
    }

    /// The entry of a name.
    #[inline]
    pub fn get(&self, name: u64) -> Option<&T> {
        match self.places.get((name & PLACE_MASK) as usize) {
            Some(Some((own, entry))) if *own == name => Some(entry),
            _ => None,
        }
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, name: u64) -> Option<&mut T> {
        match self.places.get_mut((name & PLACE_MASK) as usize) {
            Some(Some((own, entry))) if *own == name => Some(entry),
            _ => None,
        }
    }

    /// Takes the entry of a name.
    pub fn remove(&mut self, name: u64) -> Option<T> {
        let place = self.places.get_mut((name & PLACE_MASK) as usize)?;
        let (_, entry) = place.take_if(|(own, _)| *own == name)?;
        self.free.push(name & PLACE_MASK);
        self.count -= 1;
        Some(entry)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All entries with their names, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.places.iter().flatten().map(|(name, entry)| (*name, entry))
    }

    /// All entries, in no order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_is_older_and_are_not_given_twice() {
        let mut table = AgedTable::default();
        let [first, second] = ['a', 'b'].map(|entry| table.add(entry).unwrap());
        assert!(first < second);
        assert_eq!((table.remove(first), table.remove(first)), (Some('a'), None));
        let third = table.add('c').unwrap();
        assert!(second < third);
        assert_eq!((table.get(first), table.get(second), table.get(third)), (None, Some(&'b'), Some(&'c')));
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.get_mut(third), Some(&mut 'c'));
        table.values_mut().for_each(|entry| entry.make_ascii_uppercase());
        let mut all: Vec<(u64, char)> = table.iter().map(|(name, entry)| (name, *entry)).collect();
        all.sort_unstable();
        assert_eq!(all, [(second, 'B'), (third, 'C')]);
        assert_eq!((table.len(), table.is_empty()), (2, false));
        assert_eq!(table.places.len(), 2, "places are used again");
    }
}
