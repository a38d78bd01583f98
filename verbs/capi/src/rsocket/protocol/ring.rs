//! Words, rings and remote buffers: what the two sides of a stream write to each other, and into.
//!
//! Words: the immediate data of a WRITE. The upper three bits determine the meaning of the others.

/// Kind of a word with the length of written data.
const DATA: u32 = 0;
/// Kind of a word with credits, and perhaps a new entry in the table.
const GRANT: u32 = 4;
/// Kind of a word for a new entry in the table of mappings.
const MAP: u32 = 6;
const CONTROL: u32 = 7;
const BITS: u32 = 29;
const VALUE: u32 = (1 << BITS) - 1;

const DISCONNECT: u32 = 0;
const KEEP_ALIVE: u32 = 1;
const SHUTDOWN: u32 = 2;

/// A word of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RsMessage {
    /// Data of this many bytes was written to the current buffer.
    Data(u32),
    /// Messages up to this number may be sent, and the table may have a new entry.
    Grant(u16),
    /// Entry of the table of mappings that was written.
    Map(u16),
    /// The peer will neither send nor receive any more.
    Disconnect,
    /// The word only keeps the connection alive.
    KeepAlive,
    /// The peer will not send any more.
    Shutdown,
    /// The word is of an unknown kind.
    Unknown(u32),
}

impl RsMessage {
    /// Returns the word's bits.
    pub(crate) const fn bits(self) -> u32 {
        let (kind, value) = match self {
            RsMessage::Data(bytes) => (DATA, bytes & VALUE),
            RsMessage::Grant(limit) => (GRANT, limit as u32),
            RsMessage::Map(index) => (MAP, index as u32),
            RsMessage::Disconnect => (CONTROL, DISCONNECT),
            RsMessage::KeepAlive => (CONTROL, KEEP_ALIVE),
            RsMessage::Shutdown => (CONTROL, SHUTDOWN),
            RsMessage::Unknown(bits) => return bits,
        };
        kind << BITS | value
    }

    /// Decodes the bits. Limits are counted with 16 bits; the other bits have no effect on them.
    pub(crate) const fn from_bits(bits: u32) -> RsMessage {
        let value = bits & VALUE;
        match (bits >> BITS, value) {
            (DATA, _) => RsMessage::Data(value),
            (GRANT, _) => RsMessage::Grant(value as u16),
            (MAP, _) => RsMessage::Map(value as u16),
            (CONTROL, DISCONNECT) => RsMessage::Disconnect,
            (CONTROL, KEEP_ALIVE) => RsMessage::KeepAlive,
            (CONTROL, SHUTDOWN) => RsMessage::Shutdown,
            _ => RsMessage::Unknown(bits),
        }
    }
}

/// A piece of a ring: at most two runs of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RingPiece {
    /// Offset of its beginning.
    pub(crate) offset: u32,
    /// Number of bytes up to the end of the ring.
    pub(crate) first: u32,
    /// Number of bytes from the beginning of the ring on.
    pub(crate) second: u32,
}

impl RingPiece {
    /// Creates the piece of `length` bytes at `offset` in a ring of `size`.
    pub(crate) fn new(offset: u32, length: u32, size: u32) -> RingPiece {
        let first = length.min(size.saturating_sub(offset));
        RingPiece { offset, first, second: length - first }
    }

    /// Returns the number of all its bytes.
    pub(crate) const fn length(&self) -> u32 {
        self.first + self.second
    }
}

/// The state of a ring.
#[derive(Debug)]
pub(crate) struct Ring {
    size: u32,
    head: u32,
    used: u32,
}

impl Ring {
    /// Creates an empty ring.
    pub(crate) const fn new(size: u32) -> Ring {
        Ring { size, head: 0, used: 0 }
    }

    /// Returns the number of bytes that are not given out.
    pub(crate) const fn room(&self) -> u32 {
        self.size - self.used
    }

    /// Returns the number of bytes that are given out.
    pub(crate) const fn used(&self) -> u32 {
        self.used
    }

    /// Gives out at most `wanted` bytes.
    pub(crate) fn take(&mut self, wanted: u32) -> RingPiece {
        let length = wanted.min(self.room());
        let piece = RingPiece::new(self.head, length, self.size);
        self.used += length;
        self.head = if piece.second > 0 || piece.first == self.size - self.head {
            piece.second
        } else {
            self.head + length
        };
        piece
    }

    /// Takes the oldest bytes back.
    pub(crate) fn release(&mut self, length: u32) {
        self.used = self.used.saturating_sub(length);
    }
}

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
    fn words_have_their_bits() {
        for (word, bits) in [
            (RsMessage::Data(1), 1),
            (RsMessage::Data(VALUE), 0x1fff_ffff),
            (RsMessage::Grant(384), 0x8000_0180),
            (RsMessage::Map(2), 0xc000_0002),
            (RsMessage::Disconnect, 0xe000_0000),
            (RsMessage::KeepAlive, 0xe000_0001),
            (RsMessage::Shutdown, 0xe000_0002),
            (RsMessage::Unknown(0x2000_0000), 0x2000_0000),
            (RsMessage::Unknown(0xe000_0003), 0xe000_0003),
        ] {
            assert_eq!(word.bits(), bits, "{word:?}");
            assert_eq!(RsMessage::from_bits(bits), word);
        }
        // The sum of a number and a queue's size may have a seventeenth bit.
        assert_eq!(RsMessage::from_bits(0x8001_0005), RsMessage::Grant(5));
    }

    #[test]
    fn pieces_follow_each_other_around_the_ring() {
        let mut ring = Ring::new(10);
        assert_eq!(ring.take(4), RingPiece { offset: 0, first: 4, second: 0 });
        assert_eq!(ring.take(4), RingPiece { offset: 4, first: 4, second: 0 });
        assert_eq!(ring.room(), 2);
        ring.release(4);
        assert_eq!(ring.take(5), RingPiece { offset: 8, first: 2, second: 3 });
        assert_eq!(ring.take(5), RingPiece { offset: 3, first: 1, second: 0 });
        assert_eq!(ring.take(5), RingPiece { offset: 4, first: 0, second: 0 });
        ring.release(10);
        assert_eq!(ring.room(), 10);
        assert_eq!(ring.take(6), RingPiece { offset: 4, first: 6, second: 0 });
        assert_eq!(ring.take(1).offset, 0, "the end of the ring is its beginning");
    }

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
