//! Which results of READs and atomics are watched, and which words of them.

use std::collections::HashMap;

use fnv::FnvBuildHasher;
use pumice_ground::call_stack::Stack;
use pumice_ground::outside::data_watch::Word;
use smallvec::SmallVec;

use super::span::Span;

/// Requests of one place that are watched, each of them; of the further ones one of so many is: to begin and
/// end a watch takes some µs, and so does each trap, of which the device causes two when it stores a result.
const EACH: u32 = 64;
const ONE_OF: u32 = 64;
/// Places of which that is counted; requests of other places are not watched.
const MAX_PLACES: usize = 1 << 10;

/// What is watched.
#[derive(Debug, Default)]
pub(super) struct EarlyUses {
    pub(super) watched: SmallVec<[Watched; 2]>,
    /// Requests that were posted at a place.
    posts: HashMap<Stack, u32, FnvBuildHasher>,
    pub(super) addresses: Vec<u64>,
}

/// The result of a request.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) watch: u64,
    pub(super) request: u64,
    /// The number of its queue pair.
    pub(super) qp: u32,
}

impl EarlyUses {
    /// This process is a child: what is watched is its parent's.
    pub(super) fn forked(&mut self) {
        self.watched.clear();
    }

    /// Whether the next request of a place is watched.
    pub(super) fn is_wanted(&mut self, place: &Stack) -> bool {
        if let Some(posts) = self.posts.get_mut(place) {
            *posts = posts.wrapping_add(1);
            return *posts < EACH || *posts % ONE_OF == 0;
        }
        let has_room = self.posts.len() < MAX_PLACES;
        if has_room {
            self.posts.insert(place.clone(), 0);
        }
        has_room
    }
}

/// A page, which no function for strings reads beyond the string's own.
const PAGE_BYTES: u64 = 4096;
/// Functions for strings read up to so many bytes behind a string, and before it within a block of so many.
const READ_BEHIND: u64 = 256;
const READ_BEFORE: u64 = 64;

/// The words that are watched of a result: those in which its first and its last bytes are, as far as they
/// lie inside of it, because the compiler and the C library read whole words.
pub(super) fn words_of(spans: impl Iterator<Item = Span> + Clone) -> SmallVec<[Word; 2]> {
    let (first, last) = (spans.clone().find_map(first_word), spans.filter_map(last_word).last());
    let mut words: SmallVec<[Word; 2]> = first.into_iter().collect();
    words.extend(last.filter(|last| Some(*last) != first));
    words
}

fn first_word(of: Span) -> Option<Word> {
    [8, 4, 2, 1].into_iter().find_map(|bytes: u8| {
        let address = of.start.checked_next_multiple_of(bytes.into())?;
        word_in(of, address, bytes)
    })
}

fn last_word(of: Span) -> Option<Word> {
    [8, 4, 2, 1].into_iter().find_map(|bytes: u8| {
        let address = of.end.checked_sub(bytes.into())? / u64::from(bytes) * u64::from(bytes);
        word_in(of, address, bytes)
    })
}

fn word_in(of: Span, address: u64, bytes: u8) -> Option<Word> {
    let end = address.checked_add(bytes.into())?;
    let is_inside = of.start <= address && end <= of.end;
    let is_far_from_before =
        of.start.is_multiple_of(PAGE_BYTES) || address.saturating_sub(of.start) >= READ_BEHIND;
    let is_far_from_behind = end.checked_next_multiple_of(READ_BEFORE).is_some_and(|block| block <= of.end);
    is_inside.then_some(Word { address, bytes, by_library: is_far_from_before && is_far_from_behind })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words as (address, bytes, by_library).
    fn words(spans: &[(u64, u64)]) -> Vec<(u64, u8, bool)> {
        let spans = spans.iter().map(|(start, bytes)| Span::new(*start, *bytes));
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
        let (mut uses, mut stacks) = (EarlyUses::default(), pumice_ground::call_stack::Stacks::default());
        let place = stacks.keep(&[1]);
        let wanted: Vec<usize> = (0..200).filter(|_| uses.is_wanted(&place)).collect();
        let expected: Vec<usize> = (0..64).chain((64..200).step_by(64)).collect();
        assert_eq!(wanted, expected);
        assert!(uses.is_wanted(&stacks.keep(&[2])), "another place has its own number");
        for other in 3..2 * MAX_PLACES as u64 {
            uses.is_wanted(&stacks.keep(&[other]));
        }
        assert_eq!(uses.posts.len(), MAX_PLACES);
    }
}
