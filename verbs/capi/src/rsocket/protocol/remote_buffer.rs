//! Buffers of one side that the other writes to, in the format of tables and private data.

/// A buffer: a number of bytes (or entries, of a table) at an address under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RemoteBuffer {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) length: u32,
}

impl RemoteBuffer {
    /// Length of an entry in bytes.
    pub(crate) const LEN: usize = 16;

    /// Returns the entry in the byte order of its reader.
    pub(crate) fn emit(&self, big_endian: bool) -> [u8; RemoteBuffer::LEN] {
        let mut bytes = [0; RemoteBuffer::LEN];
        let (address, rest) = bytes.split_at_mut(8);
        let (key, length) = rest.split_at_mut(4);
        if big_endian {
            address.copy_from_slice(&self.address.to_be_bytes());
            key.copy_from_slice(&self.key.to_be_bytes());
            length.copy_from_slice(&self.length.to_be_bytes());
        } else {
            address.copy_from_slice(&self.address.to_le_bytes());
            key.copy_from_slice(&self.key.to_le_bytes());
            length.copy_from_slice(&self.length.to_le_bytes());
        }
        bytes
    }

    /// Reads an entry in the byte order in which it was emitted.
    pub(crate) fn parse(bytes: &[u8; RemoteBuffer::LEN], big_endian: bool) -> RemoteBuffer {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3] = *bytes;
        let (address, key, length) = ([a0, a1, a2, a3, a4, a5, a6, a7], [k0, k1, k2, k3], [l0, l1, l2, l3]);
        if big_endian {
            RemoteBuffer {
                address: u64::from_be_bytes(address),
                key: u32::from_be_bytes(key),
                length: u32::from_be_bytes(length),
            }
        } else {
            RemoteBuffer {
                address: u64::from_le_bytes(address),
                key: u32::from_le_bytes(key),
                length: u32::from_le_bytes(length),
            }
        }
    }
}

/// A mapping: the bytes from `offset` on are in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mapping {
    pub(crate) offset: u64,
    pub(crate) buffer: RemoteBuffer,
}

impl Mapping {
    /// Length of an entry in bytes.
    pub(crate) const LEN: usize = 8 + RemoteBuffer::LEN;

    /// Returns the entry in the byte order of its reader.
    pub(crate) fn emit(&self, big_endian: bool) -> [u8; Mapping::LEN] {
        let mut bytes = [0; Mapping::LEN];
        let (offset, buffer) = bytes.split_at_mut(8);
        offset.copy_from_slice(&if big_endian {
            self.offset.to_be_bytes()
        } else {
            self.offset.to_le_bytes()
        });
        buffer.copy_from_slice(&self.buffer.emit(big_endian));
        bytes
    }

    /// Reads an entry in the byte order in which it was emitted.
    pub(crate) fn parse(bytes: &[u8; Mapping::LEN], big_endian: bool) -> Mapping {
        let (mut offset, mut buffer) = ([0; 8], [0; RemoteBuffer::LEN]);
        let (first, second) = bytes.split_at(8);
        offset.copy_from_slice(first);
        buffer.copy_from_slice(second);
        let offset = if big_endian { u64::from_be_bytes(offset) } else { u64::from_le_bytes(offset) };
        Mapping { offset, buffer: RemoteBuffer::parse(&buffer, big_endian) }
    }

    /// Returns the memory from an offset to the end of the mapping; `None` if the offset is not in the
    /// mapping.
    pub(crate) fn find(&self, offset: u64) -> Option<RemoteBuffer> {
        let inside = offset.checked_sub(self.offset)?;
        let left = u64::from(self.buffer.length).checked_sub(inside).filter(|left| *left > 0)?;
        Some(RemoteBuffer {
            address: self.buffer.address.wrapping_add(inside),
            key: self.buffer.key,
            // The rest is not longer than the buffer was.
            length: left as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_and_mappings_are_written_in_the_order_of_their_reader() {
        let buffer = RemoteBuffer { address: 0x0102_0304_0506_0708, key: 0x1122_3344, length: 0x5566 };
        assert_eq!(
            buffer.emit(true),
            [1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x22, 0x33, 0x44, 0, 0, 0x55, 0x66],
            "address, key, length"
        );
        assert_eq!(buffer.emit(false), [8, 7, 6, 5, 4, 3, 2, 1, 0x44, 0x33, 0x22, 0x11, 0x66, 0x55, 0, 0]);
        let mapping = Mapping { offset: 9, buffer };
        for order in [false, true] {
            assert_eq!(RemoteBuffer::parse(&buffer.emit(order), order), buffer);
            assert_eq!(Mapping::parse(&mapping.emit(order), order), mapping);
        }
        assert_eq!(mapping.emit(true)[..8], [0, 0, 0, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn an_offset_is_found_inside_of_its_mapping_only() {
        let buffer = RemoteBuffer { address: u64::MAX - 1, key: 7, length: 10 };
        let mapping = Mapping { offset: 100, buffer };
        assert_eq!(mapping.find(99), None);
        assert_eq!(mapping.find(100), Some(buffer));
        assert_eq!(mapping.find(109), Some(RemoteBuffer { address: 7, key: 7, length: 1 }), "addresses wrap");
        assert_eq!(mapping.find(110), None);
        assert_eq!(mapping.find(u64::MAX), None);
        assert_eq!(Mapping::default().find(0), None);
    }
}
