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
}
