//! The P_Key table of a port.

use pumice_platform::error::ResourceError;

/// The partition keys of a port. RoCE usually has one partition: the default key 0xffff at index 0. Further
/// entries are empty (0) unless the device's profile fills them.
#[derive(Debug, Clone)]
pub struct PkeyTable {
    keys: Vec<u16>,
}

impl PkeyTable {
    /// The key of the default partition, full member.
    pub const DEFAULT: u16 = 0xffff;

    /// Returns a table of `len` entries, at least one and at least as many as there are keys. Without any key
    /// the first is the default one.
    pub fn new(keys: &[u16], len: u16) -> PkeyTable {
        let mut keys = if keys.is_empty() { vec![PkeyTable::DEFAULT] } else { keys.to_vec() };
        keys.truncate(usize::from(u16::MAX));
        keys.resize(keys.len().max(len.into()), 0);
        PkeyTable { keys }
    }

    /// Returns the number of entries in the table.
    pub const fn len(&self) -> u16 {
        self.keys.len() as u16
    }

    /// Returns false: there is at least one entry.
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the key at an index; 0 at an empty entry.
    ///
    /// # Errors
    /// `Invalid`: the index is beyond the table.
    pub fn pkey(&self, index: u32) -> Result<u16, ResourceError> {
        self.keys.get(index as usize).copied().ok_or_else(|| {
            ResourceError::invalid(format!(
                "P_Key index {index} is beyond the table of {} entries",
                self.keys.len()
            ))
        })
    }

    /// Returns the index of a key; the membership bit does not count.
    pub fn index_of(&self, pkey: u16) -> Option<u16> {
        let same = |key: &u16| key & 0x7fff == pkey & 0x7fff && key & 0x7fff != 0;
        self.keys.iter().position(same).and_then(|index| u16::try_from(index).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_key_is_at_index_0_and_nothing_else_is() {
        for (len, beyond) in [(0, 1), (1, 1), (64, 64)] {
            let table = PkeyTable::new(&[], len);
            assert_eq!(table.pkey(0), Ok(0xffff));
            assert_eq!(table.pkey(beyond).unwrap_err().errno(), libc::EINVAL);
        }
        assert_eq!(PkeyTable::new(&[], 64).pkey(63), Ok(0));
        assert_eq!(PkeyTable::new(&[], 1).index_of(0x7fff), Some(0));
        assert_eq!(PkeyTable::new(&[], 1).index_of(0x8001), None);
    }

    #[test]
    fn a_profile_fills_more_entries() {
        let table = PkeyTable::new(&[0xffff, 0x8005, 0x0006], 4);
        assert_eq!((table.len(), table.pkey(1), table.pkey(3)), (4, Ok(0x8005), Ok(0)));
        assert_eq!(
            (table.index_of(0x0005), table.index_of(0x8006), table.index_of(0)),
            (Some(1), Some(2), None)
        );
        assert_eq!(PkeyTable::new(&[0xffff, 0x8005], 1).len(), 2);
    }
}
