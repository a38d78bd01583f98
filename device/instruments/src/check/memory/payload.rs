//! The contents of buffers, as a checksum.

use super::super::means::Read;
use super::span::Span;

/// Bytes of a payload that are looked at: all of a shorter one; of a longer one its begin, its end, and
/// blocks between them.
pub(super) const MAX_BYTES: u64 = 16 << 10;
/// Of a longer payload: bytes at its begin and at its end.
const EDGE_BYTES: u64 = 1 << 10;
/// Blocks between, and the bytes of each.
const BLOCKS: u64 = 8;
const BLOCK_BYTES: u64 = 256;
/// Bytes of one range that are read without a list of ranges.
const SHORT_BYTES: usize = 64;
/// Ranges of one read.
const MAX_RANGES: usize = 64;

/// What a look at a buffer gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    /// Its checksum.
    Sum(u64),
    /// It is not mapped.
    Unmapped,
    /// It has too many pieces to look at.
    Unknown,
}

/// Reads buffers, with memory that is used again.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) read: Option<Read>,
    /// As `read`, of memory that is known to be mapped.
    pub(super) read_at_once: Option<Read>,
    ranges: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl Reader {
    /// What these ranges hold together.
    pub(super) fn contents(&mut self, spans: impl Iterator<Item = Span> + Clone) -> Contents {
        self.contents_by(self.read, spans)
    }

    /// As [`Reader::contents`], of memory that the device itself copies in the same way: it is taken to be
    /// mapped.
    pub(super) fn contents_of_mapped(&mut self, spans: impl Iterator<Item = Span> + Clone) -> Contents {
        self.contents_by(self.read_at_once.or(self.read), spans)
    }

    fn contents_by(&mut self, read: Option<Read>, spans: impl Iterator<Item = Span> + Clone) -> Contents {
        let Some(read) = read else { return Contents::Unknown };
        let mut each = spans.clone();
        if let (Some(only), None) = (each.next(), each.next())
            && only.bytes() <= SHORT_BYTES as u64
        {
            self.ranges.clear();
            self.ranges.push((only.start, only.bytes() as usize));
            return contents_of_short(read, &self.ranges, only.bytes() as usize);
        }
        let total: u64 = spans.clone().map(Span::bytes).sum();
        self.ranges.clear();
        if total <= MAX_BYTES {
            self.ranges.extend(spans.map(|span| (span.start, span.bytes() as usize)));
        } else {
            let between = total - 2 * EDGE_BYTES - BLOCK_BYTES;
            self.take_from(spans.clone(), 0, EDGE_BYTES);
            for block in 0..BLOCKS {
                let offset = EDGE_BYTES + between / (BLOCKS - 1) * block;
                self.take_from(spans.clone(), offset, BLOCK_BYTES);
            }
            self.take_from(spans, total - EDGE_BYTES, EDGE_BYTES);
        }
        if self.ranges.len() > MAX_RANGES {
            return Contents::Unknown;
        }
        let wanted = self.ranges.iter().map(|(_, bytes)| *bytes).sum();
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        let Some(out) = self.bytes.get_mut(..wanted) else { return Contents::Unknown };
        if read(&self.ranges, out) { Contents::Sum(checksum(out)) } else { Contents::Unmapped }
    }

    /// Adds `bytes` of the ranges, from `offset` on, to what is read.
    fn take_from(&mut self, spans: impl Iterator<Item = Span>, mut offset: u64, mut bytes: u64) {
        for span in spans {
            let size = span.bytes();
            if offset >= size {
                offset -= size;
                continue;
            }
            let now = bytes.min(size - offset);
            if now > 0 {
                self.ranges.push((span.start.wrapping_add(offset), now as usize));
            }
            (offset, bytes) = (0, bytes - now);
            if bytes == 0 {
                return;
            }
        }
    }
}

/// What ranges of at most [`SHORT_BYTES`] hold together.
#[inline]
fn contents_of_short(read: Read, ranges: &[(u64, usize)], wanted: usize) -> Contents {
    let mut bytes = [0; SHORT_BYTES];
    let Some(out) = bytes.get_mut(..wanted) else { return Contents::Unknown };
    if read(ranges, out) { Contents::Sum(checksum(out)) } else { Contents::Unmapped }
}

/// A checksum that differs if a single word of 8 bytes does: each step is one to one in the word.
fn checksum(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(ODD);
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut sums = [bytes.len() as u64, 1, 2, 3];
    for block in blocks {
        for (sum, word) in sums.iter_mut().zip(block.as_chunks::<8>().0) {
            *sum = mix(*sum, u64::from_le_bytes(*word));
        }
    }
    let (words, rest) = rest.as_chunks::<8>();
    let sum = sums.into_iter().fold(0, mix);
    let sum = words.iter().fold(sum, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory whose bytes are those of their addresses, up to 2^20.
    fn read(ranges: &[(u64, usize)], out: &mut [u8]) -> bool {
        let addresses = ranges.iter().flat_map(|(start, bytes)| *start..*start + *bytes as u64);
        let total: usize = ranges.iter().map(|(_, bytes)| *bytes).sum();
        assert_eq!(total, out.len());
        out.iter_mut().zip(addresses.clone()).for_each(|(byte, address)| *byte = ((address * 7) >> 3) as u8);
        addresses.into_iter().all(|address| address < 1 << 20)
    }

    #[test]
    fn every_bit_counts() {
        let mut bytes = [7_u8; 43];
        let sum = checksum(&bytes);
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&bytes), sum, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_ne!(checksum(&bytes[..42]), sum);
    }

    #[test]
    fn pieces_are_looked_at_as_one() {
        let mut reader = Reader { read: Some(read), ..Reader::default() };
        for (start, bytes) in [(3, 0), (3, 1), (0, 1000), (5, MAX_BYTES), (8, MAX_BYTES + 1), (77, 900_000)] {
            let whole = reader.contents([Span::new(start, bytes)].into_iter());
            assert!(matches!(whole, Contents::Sum(_)), "{bytes} bytes");
            let looked: usize = reader.ranges.iter().map(|(_, bytes)| *bytes).sum();
            let some = 2 * EDGE_BYTES + BLOCKS * BLOCK_BYTES;
            assert_eq!(looked as u64, if bytes > MAX_BYTES { some } else { bytes }, "{bytes} bytes");
            let middle = bytes / 3;
            let two = [Span::new(start, middle), Span::new(start + middle, bytes - middle)];
            assert_eq!(reader.contents(two.into_iter()), whole, "{bytes} bytes");
            if bytes > 0 {
                assert_ne!(reader.contents([Span::new(start + 64, bytes)].into_iter()), whole);
            }
        }
        assert_eq!(reader.contents([Span::new(1 << 20, 1)].into_iter()), Contents::Unmapped);
        assert_eq!(reader.contents([Span::new(0, 1); MAX_RANGES + 1].into_iter()), Contents::Unknown);
        assert_eq!(Reader::default().contents([Span::new(0, 1)].into_iter()), Contents::Unknown);
    }
}
