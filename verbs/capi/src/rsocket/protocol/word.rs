//! Words: the immediate data of a WRITE. The upper three bits say what the others mean.

/// Of a word that says how much data was written.
const DATA: u32 = 0;
/// Credits, and perhaps a new entry in the table.
const GRANT: u32 = 4;
/// A new entry in the table of mappings.
const MAP: u32 = 6;
const CONTROL: u32 = 7;
const BITS: u32 = 29;
const VALUE: u32 = (1 << BITS) - 1;

const DISCONNECT: u32 = 0;
const KEEP_ALIVE: u32 = 1;
const SHUTDOWN: u32 = 2;

/// A word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// So many bytes were written to the buffer whose turn it was.
    Data(u32),
    /// Messages up to this number may be sent; look into the table.
    Grant(u16),
    /// This entry of the table of mappings was written.
    Map(u16),
    /// Nothing will be sent or taken any more.
    Disconnect,
    /// Nothing.
    KeepAlive,
    /// Nothing will be sent any more.
    Shutdown,
    /// Of no known kind.
    Unknown(u32),
}

impl Word {
    /// The word's bits.
    pub(crate) const fn bits(self) -> u32 {
        let (kind, value) = match self {
            Word::Data(bytes) => (DATA, bytes & VALUE),
            Word::Grant(limit) => (GRANT, limit as u32),
            Word::Map(index) => (MAP, index as u32),
            Word::Disconnect => (CONTROL, DISCONNECT),
            Word::KeepAlive => (CONTROL, KEEP_ALIVE),
            Word::Shutdown => (CONTROL, SHUTDOWN),
            Word::Unknown(bits) => return bits,
        };
        kind << BITS | value
    }

    /// What the bits mean. Limits are counted with 16 bits; the other bits have no effect on them.
    pub(crate) const fn from_bits(bits: u32) -> Word {
        let value = bits & VALUE;
        match (bits >> BITS, value) {
            (DATA, _) => Word::Data(value),
            (GRANT, _) => Word::Grant(value as u16),
            (MAP, _) => Word::Map(value as u16),
            (CONTROL, DISCONNECT) => Word::Disconnect,
            (CONTROL, KEEP_ALIVE) => Word::KeepAlive,
            (CONTROL, SHUTDOWN) => Word::Shutdown,
            _ => Word::Unknown(bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_bits() {
        for (word, bits) in [
            (Word::Data(1), 1),
            (Word::Data(VALUE), 0x1fff_ffff),
            (Word::Grant(384), 0x8000_0180),
            (Word::Map(2), 0xc000_0002),
            (Word::Disconnect, 0xe000_0000),
            (Word::KeepAlive, 0xe000_0001),
            (Word::Shutdown, 0xe000_0002),
            (Word::Unknown(0x2000_0000), 0x2000_0000),
            (Word::Unknown(0xe000_0003), 0xe000_0003),
        ] {
            assert_eq!(word.bits(), bits, "{word:?}");
            assert_eq!(Word::from_bits(bits), word);
        }
        // The sum of a number and a queue's size may have a seventeenth bit.
        assert_eq!(Word::from_bits(0x8001_0005), Word::Grant(5));
    }
}
