//! What each side says of itself when the connection is made: 40 bytes of private data, big-endian.

use super::TABLE_ENTRIES;
use super::place::Place;

const VERSION: u8 = 1;
/// The speaker's tables are read by a big-endian host.
const BIG_ENDIAN: u8 = 1;
/// The byte that counts mappings means something.
const HAS_MAPS: u8 = 2;

/// What one side says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Whether the speaker reads its tables as big-endian.
    pub(crate) big_endian: bool,
    /// Messages that may be sent to begin with.
    pub(crate) credits: u16,
    /// Entries of the speaker's table of mappings, which follows the other table.
    pub(crate) maps: u16,
    /// The speaker's table; its length is in entries.
    pub(crate) table: Place,
    /// Where data goes first.
    pub(crate) first: Place,
}

/// Why private data is no greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GreetingError {
    /// It ends too early.
    Short(usize),
    /// It is of a protocol version that is not known here.
    Version(u8),
    /// Its table has too few entries.
    Table(u32),
}

impl std::fmt::Display for GreetingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GreetingError::Short(length) => {
                write!(
                    f,
                    "{length} bytes of private data are no greeting of rsockets, which has {}",
                    Greeting::LEN
                )
            }
            GreetingError::Version(version) => {
                write!(f, "the peer speaks version {version} of rsockets, and only {VERSION} is known here")
            }
            GreetingError::Table(entries) => {
                write!(f, "the peer's table has {entries} entries, and rsockets need {TABLE_ENTRIES}")
            }
        }
    }
}

impl Greeting {
    /// Bytes of a greeting. What follows in the private data is padding.
    pub(crate) const LEN: usize = 40;

    /// The greeting's bytes.
    pub(crate) fn emit(&self) -> [u8; Greeting::LEN] {
        let mut bytes = [0; Greeting::LEN];
        let flags = HAS_MAPS | if self.big_endian { BIG_ENDIAN } else { 0 };
        let [c0, c1] = self.credits.to_be_bytes();
        let (head, places) = bytes.split_at_mut(8);
        let (table, first) = places.split_at_mut(Place::LEN);
        head.copy_from_slice(&[VERSION, flags, c0, c1, 0, 0, 0, scale(self.maps)]);
        table.copy_from_slice(&self.table.emit(true));
        first.copy_from_slice(&self.first.emit(true));
        bytes
    }

    /// What the other side said.
    ///
    /// # Errors
    /// It is none, or of another version, or no peer could mean it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Greeting, GreetingError> {
        let short = GreetingError::Short(bytes.len());
        let (head, rest) = bytes.split_first_chunk::<8>().ok_or(short)?;
        let (table, rest) = rest.split_first_chunk::<{ Place::LEN }>().ok_or(short)?;
        let (first, _) = rest.split_first_chunk::<{ Place::LEN }>().ok_or(short)?;
        let [version, flags, c0, c1, _, _, _, maps] = *head;
        if version != VERSION {
            return Err(GreetingError::Version(version));
        }
        let table = Place::parse(table, true);
        if (table.length as usize) < TABLE_ENTRIES {
            return Err(GreetingError::Table(table.length));
        }
        Ok(Greeting {
            big_endian: flags & BIG_ENDIAN != 0,
            credits: u16::from_be_bytes([c0, c1]),
            maps: if flags & HAS_MAPS != 0 { unscale(maps) } else { 0 },
            table,
            first: Place::parse(first, true),
        })
    }
}

/// Counts of mappings have one byte: up to 128 as they are, beyond in units of 256.
const fn scale(count: u16) -> u8 {
    if count <= 128 {
        count as u8
    } else {
        let units = count >> 8;
        0x80 | if units > 0x7f { 0x7f } else { units as u8 }
    }
}

/// The count that a byte stands for.
const fn unscale(byte: u8) -> u16 {
    if byte <= 128 { byte as u16 } else { ((byte & 0x7f) as u16) << 8 }
}

/// The nearest count that a greeting can say.
pub(crate) const fn sayable(count: u16) -> u16 {
    unscale(scale(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Greeting {
        Greeting {
            big_endian: false,
            credits: 384,
            maps: 16,
            table: Place { address: 0x7f00_1122_3344_5566, key: 0x0a0b_0c0d, length: 2 },
            first: Place { address: 0x7f00_0000_1000, key: 0x0102_0304, length: 65536 },
        }
    }

    #[test]
    fn a_greeting_has_forty_bytes() {
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
        assert_eq!(Greeting::parse(&padded), Ok(sample()));
        assert_eq!(
            Greeting::parse(&Greeting { big_endian: true, ..sample() }.emit()).map(|g| g.big_endian),
            Ok(true)
        );
    }

    #[test]
    fn what_is_no_greeting_is_refused() {
        let bytes = sample().emit();
        for length in 0..Greeting::LEN {
            assert_eq!(Greeting::parse(&bytes[..length]), Err(GreetingError::Short(length)));
        }
        let mut other = bytes;
        other[0] = 2;
        assert_eq!(Greeting::parse(&other), Err(GreetingError::Version(2)));
        let mut other = bytes;
        other[23] = 1;
        assert_eq!(Greeting::parse(&other), Err(GreetingError::Table(1)));
        let mut other = bytes;
        other[1] = 0;
        assert_eq!(Greeting::parse(&other).map(|greeting| greeting.maps), Ok(0), "the flag was not set");
    }

    #[test]
    fn counts_of_mappings_are_rounded_down_to_what_a_byte_can_say() {
        for (count, said) in
            [(0, 0), (1, 1), (127, 127), (128, 128), (256, 256), (700, 512), (u16::MAX, 0x7f00)]
        {
            assert_eq!(sayable(count), said, "{count}");
            assert_eq!(sayable(said), said);
        }
        // 129 to 255 is less than one unit of 256: none.
        assert_eq!(scale(129), 0x80);
        assert_eq!(unscale(0x80), 128);
    }
}
