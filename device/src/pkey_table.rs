//! The P_Key table of a port.

use crate::error::ResourceError;

/// The partition keys of a port. RoCE has one partition: the default key 0xffff at index 0; further
/// places exist only so that programs that look at them find them, and are empty.
#[derive(Debug, Clone)]
pub struct PkeyTable {
    len: u16,
}

impl PkeyTable {
    /// The default partition, full member.
    pub const DEFAULT: u16 = 0xffff;

    /// A table of `len` places, at least one.
    pub fn new(len: u16) -> PkeyTable {
        PkeyTable { len: len.max(1) }
    }

    /// Places in the table.
    pub const fn len(&self) -> u16 {
        self.len
    }

    /// Never: the default key is always there.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The key at an index; 0 at an empty place.
    ///
    /// # Errors
    /// `Invalid`: the index is beyond the table.
    pub fn pkey(&self, index: u32) -> Result<u16, ResourceError> {
        match index {
            0 => Ok(PkeyTable::DEFAULT),
            _ if index < u32::from(self.len) => Ok(0),
            _ => Err(ResourceError::invalid(format!(
                "P_Key index {index} is beyond the table of {} entries",
                self.len
            ))),
        }
    }

    /// Index of a key; the membership bit does not count.
    pub const fn index_of(&self, pkey: u16) -> Option<u16> {
        if pkey & 0x7fff == PkeyTable::DEFAULT & 0x7fff { Some(0) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_key_is_at_index_0_and_nothing_else_is() {
        for (len, beyond) in [(0, 1), (1, 1), (64, 64)] {
            let table = PkeyTable::new(len);
            assert_eq!(table.pkey(0), Ok(0xffff));
            assert_eq!(table.pkey(beyond).unwrap_err().errno(), libc::EINVAL);
        }
        assert_eq!(PkeyTable::new(64).pkey(63), Ok(0));
        assert_eq!(PkeyTable::new(1).index_of(0x7fff), Some(0));
        assert_eq!(PkeyTable::new(1).index_of(0x8001), None);
    }
}
