//! The contents of buffers, as a checksum.

use super::super::callbacks::ReadMemory;
use super::span::ByteSpan;

/// Largest number of payload bytes that are read: all of a shorter payload; of a longer one its begin, its
/// end, and blocks between them.
pub(super) const MAX_BYTES: u64 = 16 << 10;
/// Number of bytes that are read at the begin and at the end of a longer payload.
const EDGE_BYTES: u64 = 1 << 10;
/// Number of blocks between.
const BLOCKS: u64 = 8;
/// Length of each of these blocks, in bytes.
const BLOCK_BYTES: u64 = 256;
/// Number of bytes of one range that are read without a list of ranges.
const SHORT_BYTES: usize = 64;
/// Number of ranges of one read.
const MAX_RANGES: usize = 64;

/// The result of reading a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BufferContents {
    /// Checksum of the buffer.
    Sum(u64),
    /// The buffer is not mapped.
    Unmapped,
    /// The buffer has too many pieces to read.
    Unknown,
}

/// A reader of buffers, with memory that is used again.
#[derive(Debug, Default)]
pub(super) struct BufferReader {
    pub(super) read: Option<ReadMemory>,
    /// Function like `read`, for memory that is known to be mapped.
    pub(super) read_at_once: Option<ReadMemory>,
    ranges: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl BufferReader {
    /// Returns the contents of these ranges together.
    pub(super) fn contents(&mut self, spans: impl Iterator<Item = ByteSpan> + Clone) -> BufferContents {
        self.contents_by(self.read, spans)
    }

    /// Returns the same as [`BufferReader::contents`], for memory that the device itself copies in the same
    /// way: it is taken to be mapped.
    pub(super) fn contents_of_mapped(
        &mut self,
        spans: impl Iterator<Item = ByteSpan> + Clone,
    ) -> BufferContents {
        self.contents_by(self.read_at_once.or(self.read), spans)
    }

    fn contents_by(
        &mut self,
        read: Option<ReadMemory>,
        spans: impl Iterator<Item = ByteSpan> + Clone,
    ) -> BufferContents {
        let Some(read) = read else { return BufferContents::Unknown };
        let mut each = spans.clone();
        if let (Some(only), None) = (each.next(), each.next())
            && only.bytes() <= SHORT_BYTES as u64
        {
            self.ranges.clear();
            self.ranges.push((only.start, only.bytes() as usize));
            return contents_of_short(read, &self.ranges, only.bytes() as usize);
        }
        let total: u64 = spans.clone().map(ByteSpan::bytes).sum();
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
            return BufferContents::Unknown;
        }
        let wanted = self.ranges.iter().map(|(_, bytes)| *bytes).sum();
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        let Some(out) = self.bytes.get_mut(..wanted) else { return BufferContents::Unknown };
        if read(&self.ranges, out) { BufferContents::Sum(checksum(out)) } else { BufferContents::Unmapped }
    }

    /// Adds `bytes` of the ranges, from `offset` on, to what is read.
    fn take_from(&mut self, spans: impl Iterator<Item = ByteSpan>, mut offset: u64, mut bytes: u64) {
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

/// Returns the contents of ranges of at most [`SHORT_BYTES`] together.
#[inline]
fn contents_of_short(read: ReadMemory, ranges: &[(u64, usize)], wanted: usize) -> BufferContents {
    let mut bytes = [0; SHORT_BYTES];
    let Some(out) = bytes.get_mut(..wanted) else { return BufferContents::Unknown };
    if read(ranges, out) { BufferContents::Sum(checksum(out)) } else { BufferContents::Unmapped }
}

/// Computes a checksum that differs if a single word of 8 bytes does: each step is one to one in the word.
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

    /// Reads memory whose bytes are those of their addresses, up to 2^20.
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
        let mut reader = BufferReader { read: Some(read), ..BufferReader::default() };
        for (start, bytes) in [(3, 0), (3, 1), (0, 1000), (5, MAX_BYTES), (8, MAX_BYTES + 1), (77, 900_000)] {
            let whole = reader.contents([ByteSpan::new(start, bytes)].into_iter());
            assert!(matches!(whole, BufferContents::Sum(_)), "{bytes} bytes");
            let looked: usize = reader.ranges.iter().map(|(_, bytes)| *bytes).sum();
            let some = 2 * EDGE_BYTES + BLOCKS * BLOCK_BYTES;
            assert_eq!(looked as u64, if bytes > MAX_BYTES { some } else { bytes }, "{bytes} bytes");
            let middle = bytes / 3;
            let two = [ByteSpan::new(start, middle), ByteSpan::new(start + middle, bytes - middle)];
            assert_eq!(reader.contents(two.into_iter()), whole, "{bytes} bytes");
            if bytes > 0 {
                assert_ne!(reader.contents([ByteSpan::new(start + 64, bytes)].into_iter()), whole);
            }
        }
        assert_eq!(reader.contents([ByteSpan::new(1 << 20, 1)].into_iter()), BufferContents::Unmapped);
        assert_eq!(
            reader.contents([ByteSpan::new(0, 1); MAX_RANGES + 1].into_iter()),
            BufferContents::Unknown
        );
        assert_eq!(
            BufferReader::default().contents([ByteSpan::new(0, 1)].into_iter()),
            BufferContents::Unknown
        );
    }
}
