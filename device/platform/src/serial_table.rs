//! A table whose entries have numbers as names, of which a later entry has the larger one.

/// Number of bits of a name that contain the index of its entry.
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// A table of entries by name. A later entry has a larger name, and no name is given twice. There is room for
/// 2^20 entries.
#[derive(Debug)]
pub struct SerialTable<T> {
    slots: Vec<Option<(u64, T)>>,
    free: Vec<u64>,
    count: usize,
    next_serial: u64,
}

impl<T> Default for SerialTable<T> {
    fn default() -> SerialTable<T> {
        SerialTable { slots: Vec::new(), free: Vec::new(), count: 0, next_serial: 0 }
    }
}

impl<T> SerialTable<T> {
    /// Adds an entry, and returns its name; `None` if there is no room.
    pub fn add(&mut self, entry: T) -> Option<u64> {
        let index = self.free.pop().unwrap_or(self.slots.len() as u64);
        if index > INDEX_MASK {
            return None;
        }
        let name = self.next_serial << INDEX_BITS | index;
        self.next_serial += 1;
        self.count += 1;
        match self.slots.get_mut(index as usize) {
            Some(free) => *free = Some((name, entry)),
            None => self.slots.push(Some((name, entry))),
        }
        Some(name)
    }

    /// Returns the entry of a name.
    #[inline]
    pub fn get(&self, name: u64) -> Option<&T> {
        match self.slots.get((name & INDEX_MASK) as usize) {
            Some(Some((own, entry))) if *own == name => Some(entry),
            _ => None,
        }
    }

    /// Returns the entry of a name, mutably.
    #[inline]
    pub fn get_mut(&mut self, name: u64) -> Option<&mut T> {
        match self.slots.get_mut((name & INDEX_MASK) as usize) {
            Some(Some((own, entry))) if *own == name => Some(entry),
            _ => None,
        }
    }

    /// Removes the entry of a name.
    pub fn remove(&mut self, name: u64) -> Option<T> {
        let index = self.slots.get_mut((name & INDEX_MASK) as usize)?;
        let (_, entry) = index.take_if(|(own, _)| *own == name)?;
        self.free.push(name & INDEX_MASK);
        self.count -= 1;
        Some(entry)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Reports whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns all entries with their names, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots.iter().flatten().map(|(name, entry)| (*name, entry))
    }

    /// Returns all entries, mutably, in no order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_is_older_and_are_not_given_twice() {
        let mut table = SerialTable::default();
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
        assert_eq!(table.slots.len(), 2, "places are used again");
    }
}
