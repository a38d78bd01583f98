//! Tables of objects, named by index and generation or by serial number, whose memory is allocated in
//! advance.
//!
//! Allocation in advance, so that no later call fails for lack of memory.

use crate::error::ResourceError;

/// Returns an empty list with capacity for `count` entries. Unused entries cost addresses, but no memory.
///
/// # Errors
/// `NoMemory`: there is no memory for that many of `what`.
pub fn try_new_list<T>(count: usize, what: &'static str) -> Result<Vec<T>, ResourceError> {
    let mut list = Vec::new();
    make_room(&mut list, count, what)?;
    Ok(list)
}

/// Allocates memory for `count` entries of a list in total, so that the list does not grow before it exceeds
/// them.
///
/// # Errors
/// As for [`try_new_list`]; the list is then unchanged.
pub fn make_room<T>(list: &mut Vec<T>, count: usize, what: &'static str) -> Result<(), ResourceError> {
    list.try_reserve_exact(count.saturating_sub(list.len()))
        .map_err(|_| ResourceError::no_memory(format!("{count} {what}; ask for fewer")))
}

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

/// The name of one object of a [`Table`]: an index, and a generation that tells it from the objects that had
/// the index before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle {
    /// The index of the entry in the table.
    pub index: u32,
    /// The generation, which is never 0, so a packed handle is never 0 either.
    pub generation: u32,
}

impl Handle {
    /// Returns the handle as one number.
    pub const fn pack(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }

    /// Returns the handle that [`Handle::pack`] made this number of.
    pub const fn unpack(packed: u64) -> Handle {
        Handle { index: packed as u32, generation: (packed >> 32) as u32 }
    }
}

/// A slab of at most `capacity` objects; every operation takes constant time. Free slots are reused oldest
/// first, so an index (and a memory key made of it) stays unused as long as possible.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    kind: &'static str,
    capacity: u32,
    len: u32,
    oldest_free: u32,
    newest_free: u32,
}

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    generation: u32,
    next_free: u32,
}

/// Checks that a kind of object that shares its table with another may have one more.
///
/// # Errors
/// `NoMemory`: there are `most` of them.
pub fn check_room(kind: &str, count: usize, most: u32) -> Result<(), ResourceError> {
    if count < most as usize {
        return Ok(());
    }
    Err(ResourceError::no_memory(format!("the device has at most {most} {kind}")))
}

/// The end of the free list.
const NONE: u32 = u32::MAX;

impl<T> Table<T> {
    /// Returns an empty table; `kind` is the field's word for one object ("CQ"), for messages.
    pub const fn new(kind: &'static str, capacity: u32) -> Table<T> {
        Table { slots: Vec::new(), kind, capacity, len: 0, oldest_free: NONE, newest_free: NONE }
    }

    /// Returns the number of objects in the table.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Reports whether the table is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how many objects the table can hold.
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Adds an object.
    ///
    /// # Errors
    /// `NoMemory`: the table is full.
    pub fn insert(&mut self, value: T) -> Result<Handle, ResourceError> {
        self.insert_with(|_| value)
    }

    /// Adds an object that knows its own handle.
    ///
    /// # Errors
    /// `NoMemory`: the table is full; `make` is not called then.
    pub fn insert_with(&mut self, make: impl FnOnce(Handle) -> T) -> Result<Handle, ResourceError> {
        self.try_insert_with(|handle| Ok(make(handle)))
    }

    /// Adds an object that knows its own handle, unless making it fails.
    ///
    /// # Errors
    /// `NoMemory`: the table is full, or cannot grow; or that of `make`. The table is then as before.
    pub fn try_insert_with(
        &mut self,
        make: impl FnOnce(Handle) -> Result<T, ResourceError>,
    ) -> Result<Handle, ResourceError> {
        if self.len >= self.capacity {
            return Err(ResourceError::no_memory(format!(
                "the device has at most {} objects of kind {}",
                self.capacity, self.kind
            )));
        }
        if self.oldest_free == NONE && self.slots.try_reserve(1).is_err() {
            let count = self.slots.len() + 1;
            return Err(ResourceError::no_memory(format!("{count} objects of kind {}", self.kind)));
        }
        let handle = match self.slots.get(self.oldest_free as usize) {
            Some(free) => Handle { index: self.oldest_free, generation: free.generation },
            None => Handle { index: self.slots.len() as u32, generation: 1 },
        };
        let value = Some(make(handle)?);
        match self.slots.get_mut(handle.index as usize) {
            Some(slot) => {
                slot.value = value;
                self.oldest_free = std::mem::replace(&mut slot.next_free, NONE);
                if self.oldest_free == NONE {
                    self.newest_free = NONE;
                }
            }
            None => self.slots.push(Slot { value, generation: handle.generation, next_free: NONE }),
        }
        self.len += 1;
        Ok(handle)
    }

    /// Removes an object and makes its handle stale. `None`: the handle was stale already.
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        if slot.generation != handle.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1).max(1);
        self.len -= 1;
        match self.slots.get_mut(self.newest_free as usize) {
            Some(newest) => newest.next_free = handle.index,
            None => self.oldest_free = handle.index,
        }
        self.newest_free = handle.index;
        Some(value)
    }

    /// Returns the object with this handle.
    pub fn get(&self, handle: Handle) -> Option<&T> {
        let slot = self.slots.get(handle.index as usize)?;
        if slot.generation == handle.generation { slot.value.as_ref() } else { None }
    }

    /// Returns the object with this handle, mutably.
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        if slot.generation == handle.generation { slot.value.as_mut() } else { None }
    }

    /// Returns the object with this handle.
    ///
    /// # Errors
    /// `Invalid`: the handle is stale.
    pub fn require(&self, handle: Handle) -> Result<&T, ResourceError> {
        self.get(handle).ok_or_else(|| self.stale(handle))
    }

    /// Returns the object with this handle, mutably.
    ///
    /// # Errors
    /// `Invalid`: the handle is stale.
    pub fn require_mut(&mut self, handle: Handle) -> Result<&mut T, ResourceError> {
        let stale = self.stale_kind();
        self.get_mut(handle).ok_or_else(|| stale(handle))
    }

    /// Returns the object at an index, of any generation: for holders that count as users of the object, so
    /// that it cannot have been replaced.
    #[inline]
    pub fn at(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    /// Returns the object as [`Table::at`] does, mutably.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// Returns the present handle of an index in use.
    pub fn handle_at(&self, index: u32) -> Option<Handle> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref().map(|_| Handle { index, generation: slot.generation })
    }

    /// Returns all objects, by index.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let handle = Handle { index: index as u32, generation: slot.generation };
            slot.value.as_ref().map(|value| (handle, value))
        })
    }

    /// Returns all objects, by index, mutably.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Handle, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let handle = Handle { index: index as u32, generation: slot.generation };
            slot.value.as_mut().map(|value| (handle, value))
        })
    }

    fn stale(&self, handle: Handle) -> ResourceError {
        self.stale_kind()(handle)
    }

    fn stale_kind(&self) -> impl Fn(Handle) -> ResourceError + use<T> {
        let kind = self.kind;
        move |handle| {
            ResourceError::invalid(format!(
                "{kind} {} (generation {}) does not exist or was destroyed",
                handle.index, handle.generation
            ))
        }
    }
}

#[cfg(any(test, kani))]
#[path = "table_proofs.rs"]
mod proofs;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_there_at_once_or_refused() {
        let mut list: Vec<u64> = try_new_list(1000, "numbers").unwrap();
        let begin = list.as_ptr();
        list.extend(0..1000);
        assert_eq!((list.as_ptr(), list.len()), (begin, 1000), "it has not moved");
        make_room(&mut list, 500, "numbers").unwrap();
        assert_eq!(list.as_ptr(), begin);
        let refused = make_room(&mut list, usize::MAX / 8, "numbers").unwrap_err();
        assert_eq!((refused.errno(), list.len()), (libc::ENOMEM, 1000));
        assert_eq!(refused.to_string(), format!("no room: {} numbers; ask for fewer", usize::MAX / 8));
        assert!(try_new_list::<u64>(usize::MAX, "numbers").is_err());
    }

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

    #[test]
    fn a_handle_survives_packing_and_is_never_zero() {
        let handle = Handle { index: 0, generation: 1 };
        assert_ne!(handle.pack(), 0);
        let handle = Handle { index: 0xffff_fffe, generation: 0x8000_0001 };
        assert_eq!(Handle::unpack(handle.pack()), handle);
    }

    #[test]
    fn a_stale_handle_names_nothing() {
        let mut table = Table::new("test object", 4);
        let first = table.insert('a').unwrap();
        assert_eq!(table.get(first), Some(&'a'));
        assert_eq!(table.remove(first), Some('a'));
        assert_eq!(table.remove(first), None);
        let second = table.insert('b').unwrap();
        assert_eq!(second.index, first.index);
        assert_ne!(second.generation, first.generation);
        assert_eq!(table.get(first), None);
        assert_eq!(table.require_mut(first).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(table.at(second.index), Some(&'b'));
        assert_eq!(table.handle_at(second.index), Some(second));
    }

    #[test]
    fn a_full_table_refuses_and_a_freed_slot_is_reused_oldest_first() {
        let mut table = Table::new("test object", 3);
        let handles: Vec<Handle> = (0..3).map(|n| table.insert(n).unwrap()).collect();
        assert_eq!(table.insert(3).unwrap_err().errno(), libc::ENOMEM);
        table.remove(handles[2]).unwrap();
        table.remove(handles[0]).unwrap();
        assert_eq!(table.len(), 1);
        assert_eq!(table.insert(4).unwrap().index, 2);
        assert_eq!(table.insert(5).unwrap().index, 0);
        assert_eq!(table.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [5, 1, 4]);
        table.remove(handles[1]).unwrap();
        assert_eq!(table.insert(6).unwrap().index, 1);
    }

    #[test]
    fn an_object_can_know_its_own_handle() {
        let mut table = Table::new("test object", 3);
        let handle = table.insert_with(|handle| handle).unwrap();
        assert_eq!(table.get(handle), Some(&handle));
    }

    #[test]
    fn an_object_that_cannot_be_made_leaves_the_table_as_it_was() {
        let mut table = Table::new("test object", 2);
        let fail = |_| Err(ResourceError::no_memory("test"));
        assert!(table.try_insert_with(fail).is_err());
        let first = table.insert('a').unwrap();
        assert_eq!(first.index, 0);
        table.insert('b').unwrap();
        table.remove(first).unwrap();
        assert!(table.try_insert_with(fail).is_err());
        assert_eq!((table.len(), table.insert('c').unwrap().index), (1, 0));
        assert_eq!(table.insert('d').unwrap_err().errno(), libc::ENOMEM);
    }
}
