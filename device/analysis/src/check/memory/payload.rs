//! The contents of buffers, as a checksum, and the words of results that are watched.

use std::collections::HashMap;

use fnv::FnvBuildHasher;
use pumice_platform::call_stack::Stack;
use pumice_platform::outside::data_watch::WatchedWord;
use smallvec::SmallVec;

use super::super::context::ReadMemory;

/// A range of bytes from `start` up to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteSpan {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl ByteSpan {
    pub(super) const fn new(start: u64, bytes: u64) -> ByteSpan {
        ByteSpan { start, end: start.saturating_add(bytes) }
    }

    pub(super) const fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub(super) const fn overlaps(self, other: ByteSpan) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Largest number of payload bytes that are read: all of a shorter payload; of a longer one its begin, its
/// end, and blocks between them.
const MAX_BYTES: u64 = 16 << 10;
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

/// Number of requests of one call site that are all watched; of further ones every `EACH`-th is: to begin and
/// end a watch takes some µs, and so does each trap, of which the device causes two when it stores a result.
const EACH: u32 = 64;
const ONE_OF: u32 = 64;
/// Number of call sites whose requests are counted; requests of other call sites are not watched.
const MAX_CALL_SITES: usize = 1 << 10;

/// The watched results.
#[derive(Debug, Default)]
pub(super) struct EarlyUses {
    pub(super) watched: SmallVec<[WatchedResult; 2]>,
    /// Number of requests that were posted at each call site.
    posts: HashMap<Stack, u32, FnvBuildHasher>,
    pub(super) addresses: Vec<u64>,
}

/// A watched result of a request.
#[derive(Debug)]
pub(super) struct WatchedResult {
    pub(super) watch: u64,
    pub(super) request: u64,
    /// Number of its queue pair.
    pub(super) qp: u32,
}

impl EarlyUses {
    /// Clears the watches in a fork child: they belong to its parent.
    pub(super) fn forked(&mut self) {
        self.watched.clear();
    }

    /// Reports whether the next request of a call site is watched.
    pub(super) fn is_wanted(&mut self, call_site: &Stack) -> bool {
        if let Some(posts) = self.posts.get_mut(call_site) {
            *posts = posts.wrapping_add(1);
            return *posts < EACH || *posts % ONE_OF == 0;
        }
        let has_room = self.posts.len() < MAX_CALL_SITES;
        if has_room {
            self.posts.insert(call_site.clone(), 0);
        }
        has_room
    }
}

/// Size of a page. No function for strings reads beyond the page of the string.
const PAGE_BYTES: u64 = 4096;
/// Number of bytes that functions for strings read behind a string, and size of the block within which they
/// read before it.
const READ_BEHIND: u64 = 256;
const READ_BEFORE: u64 = 64;

/// Returns the words of a result that are watched: those in which its first and its last bytes are, as far as
/// they lie inside of it, because the compiler and the C library read whole words.
pub(super) fn words_of(spans: impl Iterator<Item = ByteSpan> + Clone) -> SmallVec<[WatchedWord; 2]> {
    let (first, last) = (spans.clone().find_map(first_word), spans.filter_map(last_word).last());
    let mut words: SmallVec<[WatchedWord; 2]> = first.into_iter().collect();
    words.extend(last.filter(|last| Some(*last) != first));
    words
}

fn first_word(of: ByteSpan) -> Option<WatchedWord> {
    [8, 4, 2, 1].into_iter().find_map(|bytes: u8| {
        let address = of.start.checked_next_multiple_of(bytes.into())?;
        word_in(of, address, bytes)
    })
}

fn last_word(of: ByteSpan) -> Option<WatchedWord> {
    [8, 4, 2, 1].into_iter().find_map(|bytes: u8| {
        let address = of.end.checked_sub(bytes.into())? / u64::from(bytes) * u64::from(bytes);
        word_in(of, address, bytes)
    })
}

fn word_in(of: ByteSpan, address: u64, bytes: u8) -> Option<WatchedWord> {
    let end = address.checked_add(bytes.into())?;
    let is_inside = of.start <= address && end <= of.end;
    let is_far_from_before =
        of.start.is_multiple_of(PAGE_BYTES) || address.saturating_sub(of.start) >= READ_BEHIND;
    let is_far_from_behind = end.checked_next_multiple_of(READ_BEFORE).is_some_and(|block| block <= of.end);
    is_inside.then_some(WatchedWord { address, bytes, by_library: is_far_from_before && is_far_from_behind })
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

    /// Returns words as (address, bytes, by_library).
    fn words(spans: &[(u64, u64)]) -> Vec<(u64, u8, bool)> {
        let spans = spans.iter().map(|(start, bytes)| ByteSpan::new(*start, *bytes));
        words_of(spans).into_iter().map(|word| (word.address, word.bytes, word.by_library)).collect()
    }

    #[test]
    fn watched_words_lie_inside_of_the_result() {
        assert_eq!(words(&[]), []);
        assert_eq!(words(&[(0x1000, 0)]), []);
        assert_eq!(words(&[(0x1008, 8)]), [(0x1008, 8, false)]);
        assert_eq!(words(&[(0x1003, 1)]), [(0x1003, 1, false)]);
        assert_eq!(words(&[(0x1001, 7)]), [(0x1004, 4, false)]);
        assert_eq!(words(&[(0x1003, 4)]), [(0x1004, 2, false)]);
        assert_eq!(words(&[(0x1004, 8)]), [(0x1004, 4, false), (0x1008, 4, false)]);
        assert_eq!(words(&[(0x1044, 100)]), [(0x1048, 8, false), (0x10a0, 8, false)]);
        assert_eq!(
            words(&[(0x1100, 16), (0x2000, 0), (0x3001, 40)]),
            [(0x1100, 8, false), (0x3020, 8, false)]
        );
        assert_eq!(words(&[(u64::MAX - 7, 8)]), [(u64::MAX - 7, 4, false)], "no address is behind the last");
    }

    #[test]
    fn accesses_by_the_library_count_where_nothing_lies_beside_the_result() {
        assert_eq!(words(&[(0x1000, 30_000)]), [(0x1000, 8, true), (0x8528, 8, false)]);
        assert_eq!(words(&[(0x1000, 0x40)]), [(0x1000, 8, true), (0x1038, 8, true)]);
        assert_eq!(words(&[(0x1010, 0x8000)]), [(0x1010, 8, false), (0x9008, 8, false)]);
        assert_eq!(words(&[(0x1020, 0x1060)]), [(0x1020, 8, false), (0x2078, 8, true)]);
    }

    #[test]
    fn of_many_requests_of_a_place_some_are_watched() {
        let (mut uses, mut stacks) = (EarlyUses::default(), pumice_platform::call_stack::Stacks::default());
        let call_site = stacks.keep(&[1]);
        let wanted: Vec<usize> = (0..200).filter(|_| uses.is_wanted(&call_site)).collect();
        let expected: Vec<usize> = (0..64).chain((64..200).step_by(64)).collect();
        assert_eq!(wanted, expected);
        assert!(uses.is_wanted(&stacks.keep(&[2])), "another place has its own number");
        for other in 3..2 * MAX_CALL_SITES as u64 {
            uses.is_wanted(&stacks.keep(&[other]));
        }
        assert_eq!(uses.posts.len(), MAX_CALL_SITES);
    }
}
