//! Private data that the two sides exchange when the connection is made: 40 bytes, big-endian.

use super::TABLE_ENTRIES;
use super::remote_buffer::RemoteBuffer;

const VERSION: u8 = 1;
/// Flag: the sender is a big-endian host, and reads its tables as such.
const BIG_ENDIAN: u8 = 1;
/// Flag: the byte with the number of mappings is valid.
const HAS_MAPS: u8 = 2;

/// Contents of one side's private data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionData {
    /// True if the sender reads its tables as big-endian.
    pub(crate) big_endian: bool,
    /// Number of messages that may be sent at the beginning.
    pub(crate) credits: u16,
    /// Number of entries of the sender's table of mappings, which follows the other table.
    pub(crate) maps: u16,
    /// Table of the sender's buffers; its length is in entries.
    pub(crate) table: RemoteBuffer,
    /// First buffer for data.
    pub(crate) first: RemoteBuffer,
}

/// Reason why private data is not that of an rsocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionDataError {
    /// The data is too short.
    Short(usize),
    /// The protocol version is not known here.
    Version(u8),
    /// The table has too few entries.
    Table(u32),
}

impl std::fmt::Display for ConnectionDataError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectionDataError::Short(length) => {
                write!(
                    f,
                    "{length} bytes of private data are too few for rsockets, which send {}",
                    ConnectionData::LEN
                )
            }
            ConnectionDataError::Version(version) => {
                write!(f, "the peer speaks version {version} of rsockets, and only {VERSION} is known here")
            }
            ConnectionDataError::Table(entries) => {
                write!(f, "the peer's table has {entries} entries, and rsockets need {TABLE_ENTRIES}")
            }
        }
    }
}

impl ConnectionData {
    /// Length in bytes. What follows in the private data is padding.
    pub(crate) const LEN: usize = 40;

    /// Returns the bytes.
    pub(crate) fn emit(&self) -> [u8; ConnectionData::LEN] {
        let mut bytes = [0; ConnectionData::LEN];
        let flags = HAS_MAPS | if self.big_endian { BIG_ENDIAN } else { 0 };
        let [c0, c1] = self.credits.to_be_bytes();
        let (head, buffers) = bytes.split_at_mut(8);
        let (table, first) = buffers.split_at_mut(RemoteBuffer::LEN);
        head.copy_from_slice(&[VERSION, flags, c0, c1, 0, 0, 0, scale(self.maps)]);
        table.copy_from_slice(&self.table.emit(true));
        first.copy_from_slice(&self.first.emit(true));
        bytes
    }

    /// Reads the other side's private data.
    ///
    /// # Errors
    /// Fails if it is too short, of another version, or has a table that is too small.
    pub(crate) fn parse(bytes: &[u8]) -> Result<ConnectionData, ConnectionDataError> {
        let short = ConnectionDataError::Short(bytes.len());
        let (head, rest) = bytes.split_first_chunk::<8>().ok_or(short)?;
        let (table, rest) = rest.split_first_chunk::<{ RemoteBuffer::LEN }>().ok_or(short)?;
        let (first, _) = rest.split_first_chunk::<{ RemoteBuffer::LEN }>().ok_or(short)?;
        let [version, flags, c0, c1, _, _, _, maps] = *head;
        if version != VERSION {
            return Err(ConnectionDataError::Version(version));
        }
        let table = RemoteBuffer::parse(table, true);
        if (table.length as usize) < TABLE_ENTRIES {
            return Err(ConnectionDataError::Table(table.length));
        }
        Ok(ConnectionData {
            big_endian: flags & BIG_ENDIAN != 0,
            credits: u16::from_be_bytes([c0, c1]),
            maps: if flags & HAS_MAPS != 0 { unscale(maps) } else { 0 },
            table,
            first: RemoteBuffer::parse(first, true),
        })
    }
}

/// Converts a number of mappings to one byte: up to 128 as it is, beyond in units of 256.
const fn scale(count: u16) -> u8 {
    if count <= 128 {
        count as u8
    } else {
        let units = count >> 8;
        0x80 | if units > 0x7f { 0x7f } else { units as u8 }
    }
}

/// Converts a byte to a number of mappings.
const fn unscale(byte: u8) -> u16 {
    if byte <= 128 { byte as u16 } else { ((byte & 0x7f) as u16) << 8 }
}

/// Returns the nearest number that one byte can represent.
pub(crate) const fn representable(count: u16) -> u16 {
    unscale(scale(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ConnectionData {
        ConnectionData {
            big_endian: false,
            credits: 384,
            maps: 16,
            table: RemoteBuffer { address: 0x7f00_1122_3344_5566, key: 0x0a0b_0c0d, length: 2 },
            first: RemoteBuffer { address: 0x7f00_0000_1000, key: 0x0102_0304, length: 65536 },
        }
    }

    #[test]
    fn connection_data_has_forty_bytes() {
        let bytes = sample().emit();
        assert_eq!(
            bytes,
            [
                1, 2, 0x01, 0x80, 0, 0, 0, 16, // version, flags, credits, mappings
                0x7f, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 10, 11, 12, 13, 0, 0, 0, 2, //
                0, 0, 0x7f, 0, 0, 0, 0x10, 0, 1, 2, 3, 4, 0, 1, 0, 0,
            ]
        );
        let mut padded = bytes.to_vec();
        padded.resize(56, 0);
        assert_eq!(ConnectionData::parse(&padded), Ok(sample()));
        assert_eq!(
            ConnectionData::parse(&ConnectionData { big_endian: true, ..sample() }.emit())
                .map(|g| g.big_endian),
            Ok(true)
        );
    }

    #[test]
    fn other_private_data_is_refused() {
        let bytes = sample().emit();
        for length in 0..ConnectionData::LEN {
            assert_eq!(ConnectionData::parse(&bytes[..length]), Err(ConnectionDataError::Short(length)));
        }
        let mut other = bytes;
        other[0] = 2;
        assert_eq!(ConnectionData::parse(&other), Err(ConnectionDataError::Version(2)));
        let mut other = bytes;
        other[23] = 1;
        assert_eq!(ConnectionData::parse(&other), Err(ConnectionDataError::Table(1)));
        let mut other = bytes;
        other[1] = 0;
        assert_eq!(ConnectionData::parse(&other).map(|data| data.maps), Ok(0), "the flag was not set");
    }

    #[test]
    fn counts_of_mappings_are_rounded_down_to_what_a_byte_can_represent() {
        for (count, rounded) in
            [(0, 0), (1, 1), (127, 127), (128, 128), (256, 256), (700, 512), (u16::MAX, 0x7f00)]
        {
            assert_eq!(representable(count), rounded, "{count}");
            assert_eq!(representable(rounded), rounded);
        }
        // The numbers 129 to 255 are less than one unit of 256, so they become none.
        assert_eq!(scale(129), 0x80);
        assert_eq!(unscale(0x80), 128);
    }
}
