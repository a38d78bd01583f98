//! The choice of the results of READs and atomics that are watched, and of their words.

use std::collections::HashMap;

use fnv::FnvBuildHasher;
use pumice_platform::call_stack::Stack;
use pumice_platform::outside::data_watch::WatchedWord;
use smallvec::SmallVec;

use super::span::ByteSpan;

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
