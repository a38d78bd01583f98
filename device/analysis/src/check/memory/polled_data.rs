//! Records of received data whose completion the program has polled, and of which a word is watched, because
//! reading it may be an error.

use std::collections::VecDeque;

use pumice_platform::call_stack::Stack;
use pumice_platform::number_map::NumberMap;
use pumice_platform::outside::data_watch::WatchedWord;

use super::super::context::FindingParts;
use super::span::ByteSpan;

/// A message that another one has replaced in its buffer, and whose completion the program has polled.
#[derive(Debug)]
pub(super) struct ReplacedMessage {
    pub(super) watch: u64,
    pub(super) span: ByteSpan,
    /// The finding to report if the program reads the buffer.
    pub(super) found: FindingParts,
}

/// The UD queue pairs, and the datagram that is watched.
#[derive(Debug, Default)]
pub(super) struct WatchedHeaders {
    pub(super) queue_pairs: NumberMap<u32, UdReceiver>,
    pub(super) watched: Option<WatchedDatagram>,
}

/// A UD queue pair.
#[derive(Debug, Default)]
pub(super) struct UdReceiver {
    /// Receives in the order of their posts: `wr_id`, and the buffer in which they begin.
    pub(super) receives: VecDeque<(u64, Option<ByteSpan>)>,
    /// Number of datagrams that were watched.
    pub(super) watched: u32,
    /// True if the program reads the payload at its offset, or a finding was reported.
    pub(super) is_known: bool,
}

/// A datagram of which a word of the header and one of the payload are watched separately.
#[derive(Debug)]
pub(super) struct WatchedDatagram {
    pub(super) qp: u32,
    pub(super) buffer: ByteSpan,
    /// Watch of the header's word; `None` once the program has read it.
    pub(super) header: Option<u64>,
    /// Watch of the payload's word; `None` once the program has read it.
    pub(super) payload: Option<u64>,
    /// Call stack of the program when it read the header.
    pub(super) read: Stack,
}

/// Returns the longest aligned word in a range of bytes, as near to its beginning as possible.
pub(super) fn word_of(start: u64, end: u64) -> Option<WatchedWord> {
    [8, 4, 2, 1].into_iter().find_map(|bytes: u8| {
        let address = start.checked_next_multiple_of(bytes.into())?;
        let is_inside = address.checked_add(bytes.into())? <= end;
        is_inside.then_some(WatchedWord { address, bytes, by_library: true })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_long_as_fits() {
        let word = |start, end| word_of(start, end).map(|word| (word.address, word.bytes));
        assert_eq!(word(0x1000, 0x1008), Some((0x1000, 8)));
        assert_eq!(word(0x1004, 0x1018), Some((0x1008, 8)));
        assert_eq!(word(0x1004, 0x100b), Some((0x1004, 4)));
        assert_eq!(word(0x1001, 0x1002), Some((0x1001, 1)));
        assert_eq!([word(0x1001, 0x1001), word(u64::MAX, u64::MAX)], [None, None]);
    }
}
