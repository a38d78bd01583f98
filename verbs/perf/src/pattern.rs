//! Contents of messages: bytes that identify their message and their position in it.

/// Identifier of the contents of one message.
pub(crate) type Tag = u64;

/// A byte that differs from the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrongByte {
    pub(crate) offset: usize,
    pub(crate) found: u8,
    pub(crate) expected: u8,
}

/// Fills a message with the contents of a tag.
pub(crate) fn fill(message: &mut [u8], tag: Tag) {
    let mut words = PatternWords::new(tag);
    for chunk in message.chunks_mut(8) {
        let word = words.next_word();
        chunk.copy_from_slice(word.get(..chunk.len()).unwrap_or(&word));
    }
}

/// Compares every byte of a message; returns the first wrong one.
pub(crate) fn first_wrong(message: &[u8], tag: Tag) -> Option<WrongByte> {
    let mut words = PatternWords::new(tag);
    for (index, chunk) in message.chunks(8).enumerate() {
        let word = words.next_word();
        let expected = word.get(..chunk.len()).unwrap_or(&word);
        if chunk != expected {
            let differing =
                chunk.iter().zip(expected).enumerate().find(|(_, (found, wanted))| found != wanted);
            return differing.map(|(at, (found, wanted))| WrongByte {
                offset: index * 8 + at,
                found: *found,
                expected: *wanted,
            });
        }
    }
    None
}

/// A sequence of words without short cycles that differs from the first word for different tags.
struct PatternWords {
    state: u64,
}

impl PatternWords {
    fn new(tag: Tag) -> PatternWords {
        PatternWords { state: tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d }
    }

    fn next_word(&mut self) -> [u8; 8] {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 32).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_its_own_and_no_others() {
        for length in [1, 7, 8, 9, 4096] {
            let mut message = vec![0; length];
            fill(&mut message, 5);
            assert_eq!(first_wrong(&message, 5), None);
            if length >= 7 {
                assert!((0..5).chain(6..1000).all(|tag| first_wrong(&message, tag).is_some()));
            }
        }
    }

    #[test]
    fn every_single_wrong_byte_is_found() {
        let mut message = vec![0; 100];
        fill(&mut message, 9);
        for offset in 0..message.len() {
            message[offset] ^= 1;
            let wrong = first_wrong(&message, 9).expect("a wrong byte");
            assert_eq!((wrong.offset, wrong.found ^ 1), (offset, wrong.expected));
            message[offset] ^= 1;
        }
    }
}
