//! What may be sent: credits, the peer's buffers, send requests, and the ring that data waits in.

use super::remote_buffer::RemoteBuffer;
use super::ring::{Piece, Ring};
use super::word::Word;
use super::{CONTROL_REQUESTS, LEAST_ROOM, TABLE_ENTRIES};

/// Longest piece of data in one message.
const LONGEST: u32 = 65536;
/// How long the first is of a call that sends more: it travels while the next is copied.
pub(crate) const FIRST_PIECE: u32 = 2048;

/// The table that the peer writes its buffers into.
pub(crate) trait Table {
    /// Takes an entry out, if there is one.
    fn take(&mut self, entry: usize) -> Option<RemoteBuffer>;
}

/// A WRITE to be posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// Sent along, if the peer is to be told.
    pub(crate) word: Option<Word>,
    /// Where at the peer.
    pub(crate) address: u64,
    pub(crate) key: u32,
    /// Bytes.
    pub(crate) length: u32,
    /// Where the bytes wait; empty, if they are copied when the request is posted.
    pub(crate) piece: Piece,
}

/// The sending half of a stream.
#[derive(Debug)]
pub(crate) struct Sending {
    /// Messages sent, and how far they may be counted. Both wrap.
    sent: u16,
    limit: u16,
    buffers: [RemoteBuffer; TABLE_ENTRIES],
    /// The buffer whose turn it is, and the entry that the peer writes next.
    current: usize,
    expected: usize,
    /// Entries that the peer has written and that were not taken yet.
    written: usize,
    /// Send requests that are free, of how many.
    free_entries: u32,
    all_entries: u32,
    ring: Ring,
}

impl Sending {
    /// Nothing may be sent yet. `requests`: of the send queue.
    pub(crate) fn new(requests: u16, ring_bytes: u32) -> Sending {
        let free_entries = u32::from(requests).saturating_sub(CONTROL_REQUESTS);
        Sending {
            sent: 0,
            limit: 0,
            buffers: [RemoteBuffer::default(); TABLE_ENTRIES],
            current: 0,
            expected: 1,
            written: 0,
            free_entries,
            all_entries: free_entries,
            ring: Ring::new(ring_bytes),
        }
    }

    /// What the peer grants to begin with.
    pub(crate) fn begin(&mut self, credits: u16, first: RemoteBuffer) {
        self.limit = credits;
        self.buffers = [first, RemoteBuffer::default()];
    }

    /// The peer grants messages up to a number, by a message that wrote so many bytes: those of the next
    /// entry, if any.
    ///
    /// No other entry is looked at: the device may be in the middle of writing it, for a message that is not
    /// complete. Read then, it has the key of nothing.
    pub(crate) fn handle_grant(&mut self, limit: u16, bytes: u32, table: &mut impl Table) {
        self.limit = limit;
        if bytes as usize >= RemoteBuffer::LEN {
            self.written = TABLE_ENTRIES.min(self.written + 1);
        }
        let Some(buffer) = self.buffers.get_mut(self.expected) else { return };
        // A peer that writes a buffer anew while it is in use has only itself to blame.
        if buffer.length == 0
            && self.written > 0
            && let Some(written) = table.take(self.expected)
        {
            *buffer = written;
            self.written -= 1;
            self.expected = (self.expected + 1) % TABLE_ENTRIES;
        }
    }

    const fn has_credit(&self) -> bool {
        self.sent != self.limit && self.free_entries > 0
    }

    fn buffer(&self) -> RemoteBuffer {
        self.buffers.get(self.current).copied().unwrap_or_default()
    }

    /// Whether data can be sent now.
    pub(crate) fn is_possible(&self) -> bool {
        self.has_credit() && self.ring.room() >= LEAST_ROOM.min(self.ring_size()) && self.buffer().length != 0
    }

    const fn ring_size(&self) -> u32 {
        self.ring.room() + self.ring.used()
    }

    /// The next message of a call: of `left` bytes, in pieces of at most `longest`; those of at most `inline`
    /// bytes need no room in the ring. `None`: not now.
    pub(crate) fn data(&mut self, left: usize, longest: u32, inline: u32) -> Option<Transfer> {
        if left == 0 || !self.is_possible() {
            return None;
        }
        let buffer = self.buffer();
        let most = buffer.length.min(longest.min(LONGEST));
        let mut length = u32::try_from(left).map_or(most, |left| left.min(most));
        let mut piece = Piece::default();
        if length > inline {
            piece = self.ring.take(length);
            length = piece.length();
        }
        self.sent = self.sent.wrapping_add(1);
        self.free_entries -= 1;
        let rest = buffer.length - length;
        if let Some(current) = self.buffers.get_mut(self.current) {
            *current =
                RemoteBuffer { address: buffer.address.wrapping_add(length.into()), length: rest, ..buffer };
        }
        if rest == 0 {
            self.current = (self.current + 1) % TABLE_ENTRIES;
        }
        let word = Some(Word::Data(length));
        Some(Transfer { word, address: buffer.address, key: buffer.key, length, piece })
    }

    /// An entry of the peer's table of mappings. `None`: not now.
    pub(crate) fn mapping(
        &mut self,
        index: u16,
        length: u32,
        to: RemoteBuffer,
        inline: u32,
    ) -> Option<Transfer> {
        if !self.has_credit() || (length > inline && self.ring.room() < length) {
            return None;
        }
        let piece = if length > inline { self.ring.take(length) } else { Piece::default() };
        self.sent = self.sent.wrapping_add(1);
        self.free_entries -= 1;
        Some(Transfer { word: Some(Word::Map(index)), address: to.address, key: to.key, length, piece })
    }

    /// Whether something can be written to the peer's mappings now: it is told nothing, so no credit is
    /// needed.
    pub(crate) fn direct_is_possible(&self) -> bool {
        self.free_entries > 0 && self.ring.room() >= LEAST_ROOM.min(self.ring_size())
    }

    /// The next piece for a mapping of the peer's. `None`: not now.
    pub(crate) fn direct(
        &mut self,
        left: usize,
        to: RemoteBuffer,
        longest: u32,
        inline: u32,
    ) -> Option<Transfer> {
        if left == 0 || to.length == 0 || !self.direct_is_possible() {
            return None;
        }
        let most = to.length.min(longest.min(LONGEST));
        let mut length = u32::try_from(left).map_or(most, |left| left.min(most));
        let mut piece = Piece::default();
        if length > inline {
            piece = self.ring.take(length);
            length = piece.length();
        }
        self.free_entries -= 1;
        Some(Transfer { word: None, address: to.address, key: to.key, length, piece })
    }

    /// A request is done, and its part of the ring is free.
    pub(crate) fn handle_done(&mut self, ring_bytes: u32) {
        self.free_entries = self.all_entries.min(self.free_entries + 1);
        self.ring.release(ring_bytes);
    }

    /// Whether all that was sent has arrived.
    pub(crate) const fn is_idle(&self) -> bool {
        self.free_entries == self.all_entries
    }

    #[cfg(test)]
    pub(crate) const fn numbers(&self) -> (u16, u16) {
        (self.sent, self.limit)
    }

    /// As if so many messages had gone to and fro.
    #[cfg(test)]
    pub(crate) fn age(&mut self, messages: u16) {
        self.sent = self.sent.wrapping_add(messages);
        self.limit = self.limit.wrapping_add(messages);
    }
}
