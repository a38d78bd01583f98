//! The two halves of a stream: outgoing data and its limits, received data and the peer's grants.

use std::collections::VecDeque;

use super::ring::{RemoteBuffer, Ring, RingPiece, RsMessage};
use super::{CONTROL_REQUESTS, MIN_ROOM, ProtocolViolation, TABLE_ENTRIES};

/// The receiving half of a stream.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    /// Number of receives that are posted, and so of messages that may wait.
    queue: u16,
    /// Length in bytes of each half of the ring, and its address.
    half: u32,
    ring: RemoteBuffer,
    /// Number of messages that were read. Wraps.
    consumed: u16,
    /// Number at which the peer is to get new credits. Wraps.
    due: u16,
    /// Remaining length of each message that waits.
    waiting: VecDeque<u32>,
    bytes: u32,
    /// Number of bytes that the peer may still write.
    allowed: u32,
    /// Offset of the first byte that waits.
    offset: u32,
    /// Number of bytes that were read since the last half was granted, and the beginning of the next one to
    /// be granted.
    freed: u32,
    next_half: u32,
}

impl ReceiveHalf {
    /// Creates the empty state. The ring's length is in bytes and even; the peer knows its first half.
    pub(crate) fn new(queue: u16, ring: RemoteBuffer) -> ReceiveHalf {
        let half = ring.length / 2;
        ReceiveHalf {
            queue,
            half,
            ring,
            consumed: 0,
            due: queue / 2,
            waiting: VecDeque::new(),
            bytes: 0,
            allowed: half,
            offset: 0,
            freed: half,
            next_half: half,
        }
    }

    /// Handles data of this length that the peer has written.
    ///
    /// # Errors
    /// Fails if the peer was not allowed to.
    pub(crate) fn handle_data(&mut self, length: u32) -> Result<(), ProtocolViolation> {
        if self.waiting.len() >= usize::from(self.queue) {
            return Err(ProtocolViolation::TooManyMessages);
        }
        self.allowed = self.allowed.checked_sub(length).ok_or(ProtocolViolation::TooManyBytes)?;
        if length == 0 {
            self.handle_other();
        } else {
            self.waiting.push_back(length);
            self.bytes += length;
        }
        Ok(())
    }

    /// Handles a message without data, which is counted at once.
    pub(crate) fn handle_other(&mut self) {
        self.consumed = self.consumed.wrapping_add(1);
    }

    /// Returns the number of bytes that can be read.
    pub(crate) const fn available(&self) -> u32 {
        self.bytes
    }

    /// Returns the first of them, at most `wanted`.
    pub(crate) fn peek(&self, wanted: usize) -> RingPiece {
        let length = u32::try_from(wanted).map_or(self.bytes, |wanted| wanted.min(self.bytes));
        RingPiece::new(self.offset, length, self.half * 2)
    }

    /// Consumes the first bytes, which were read: not more than there were.
    pub(crate) fn consume(&mut self, length: u32) {
        let mut left = length.min(self.bytes);
        self.bytes -= left;
        self.freed += left;
        self.offset += left;
        if self.offset >= self.half * 2 {
            self.offset -= self.half * 2;
        }
        while let Some(first) = self.waiting.front_mut() {
            if left < *first {
                *first -= left;
                break;
            }
            left -= *first;
            self.waiting.pop_front();
            self.consumed = self.consumed.wrapping_add(1);
        }
    }

    /// Reports whether the peer has to get new room or credits.
    pub(crate) const fn grant_is_due(&self) -> bool {
        self.freed >= self.half || self.consumed.wrapping_sub(self.due) as i16 >= 0
    }

    /// Returns the number of messages up to which the peer may count, and the buffer that it may write to
    /// next, if there is a new one.
    pub(crate) fn grant(&mut self) -> (u16, Option<RemoteBuffer>) {
        self.due = self.consumed.wrapping_add(self.queue / 2);
        let limit = self.consumed.wrapping_add(self.queue);
        if self.freed < self.half {
            return (limit, None);
        }
        let address = self.ring.address.wrapping_add(self.next_half.into());
        let buffer = RemoteBuffer { address, key: self.ring.key, length: self.half };
        self.freed -= self.half;
        self.allowed += self.half;
        self.next_half = if self.next_half == 0 { self.half } else { 0 };
        (limit, Some(buffer))
    }

    /// Advances the counters as if this many messages had been exchanged.
    #[cfg(test)]
    pub(crate) fn age(&mut self, messages: u16) {
        self.consumed = self.consumed.wrapping_add(messages);
        self.due = self.due.wrapping_add(messages);
    }
}

/// Longest piece of data in one message, in bytes.
const LONGEST: u32 = 65536;
/// Length in bytes of the first piece of a call that sends more: it travels while the next is copied.
pub(crate) const FIRST_PIECE: u32 = 2048;

/// The table that the peer writes its buffers into.
pub(crate) trait EntryTable {
    /// Takes an entry out, if there is one.
    fn take(&mut self, entry: usize) -> Option<RemoteBuffer>;
}

/// A WRITE to be posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// Word that is sent along, if the peer is to be notified.
    pub(crate) word: Option<RsMessage>,
    /// Address and key at the peer.
    pub(crate) address: u64,
    pub(crate) key: u32,
    /// Length in bytes.
    pub(crate) length: u32,
    /// Piece of the ring with the bytes; empty, if they are copied when the request is posted.
    pub(crate) piece: RingPiece,
}

/// The sending half of a stream.
#[derive(Debug)]
pub(crate) struct SendHalf {
    /// Number of messages sent, and the number up to which they may count. Both wrap.
    sent: u16,
    limit: u16,
    buffers: [RemoteBuffer; TABLE_ENTRIES],
    /// Index of the current buffer, and of the entry that the peer writes next.
    current: usize,
    expected: usize,
    /// Number of entries that the peer has written and that were not taken yet.
    written: usize,
    /// Number of send requests that are free, and of all.
    free_entries: u32,
    all_entries: u32,
    ring: Ring,
}

impl SendHalf {
    /// Creates the state in which sending is not allowed yet. `requests` is the length of the send queue.
    pub(crate) fn new(requests: u16, ring_bytes: u32) -> SendHalf {
        let free_entries = u32::from(requests).saturating_sub(CONTROL_REQUESTS);
        SendHalf {
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

    /// Applies the grants that the peer makes at the beginning.
    pub(crate) fn begin(&mut self, credits: u16, first: RemoteBuffer) {
        self.limit = credits;
        self.buffers = [first, RemoteBuffer::default()];
    }

    /// Applies a grant of messages up to a number, in a message that wrote `bytes` bytes: those of the next
    /// entry, if any.
    ///
    /// No other entry is read: the device may be in the middle of writing it, for a message that is not
    /// complete. An entry that is read then has an invalid key.
    pub(crate) fn handle_grant(&mut self, limit: u16, bytes: u32, table: &mut impl EntryTable) {
        self.limit = limit;
        if bytes as usize >= RemoteBuffer::LEN {
            self.written = TABLE_ENTRIES.min(self.written + 1);
        }
        let Some(buffer) = self.buffers.get_mut(self.expected) else { return };
        // A peer that rewrites a buffer while it is in use harms only itself.
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

    /// Reports whether data can be sent now.
    pub(crate) fn is_possible(&self) -> bool {
        self.has_credit() && self.ring.room() >= MIN_ROOM.min(self.ring_size()) && self.buffer().length != 0
    }

    const fn ring_size(&self) -> u32 {
        self.ring.room() + self.ring.used()
    }

    /// Returns the next message of a call: of `left` bytes, in pieces of at most `longest`; those of at most
    /// `inline` bytes need no room in the ring. `None` if none can be sent now.
    pub(crate) fn data(&mut self, left: usize, longest: u32, inline: u32) -> Option<Transfer> {
        if left == 0 || !self.is_possible() {
            return None;
        }
        let buffer = self.buffer();
        let most = buffer.length.min(longest.min(LONGEST));
        let mut length = u32::try_from(left).map_or(most, |left| left.min(most));
        let mut piece = RingPiece::default();
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
        let word = Some(RsMessage::Data(length));
        Some(Transfer { word, address: buffer.address, key: buffer.key, length, piece })
    }

    /// Returns the transfer of an entry for the peer's table of mappings; `None` if it cannot be sent now.
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
        let piece = if length > inline { self.ring.take(length) } else { RingPiece::default() };
        self.sent = self.sent.wrapping_add(1);
        self.free_entries -= 1;
        Some(Transfer { word: Some(RsMessage::Map(index)), address: to.address, key: to.key, length, piece })
    }

    /// Reports whether data can be written to the peer's mappings now: the peer is not notified, so no credit
    /// is needed.
    pub(crate) fn direct_is_possible(&self) -> bool {
        self.free_entries > 0 && self.ring.room() >= MIN_ROOM.min(self.ring_size())
    }

    /// Returns the next piece for a mapping of the peer's; `None` if none can be sent now.
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
        let mut piece = RingPiece::default();
        if length > inline {
            piece = self.ring.take(length);
            length = piece.length();
        }
        self.free_entries -= 1;
        Some(Transfer { word: None, address: to.address, key: to.key, length, piece })
    }

    /// Handles a request that is done, and whose part of the ring is free.
    pub(crate) fn handle_done(&mut self, ring_bytes: u32) {
        self.free_entries = self.all_entries.min(self.free_entries + 1);
        self.ring.release(ring_bytes);
    }

    /// Reports whether all that was sent has arrived.
    pub(crate) const fn is_idle(&self) -> bool {
        self.free_entries == self.all_entries
    }

    #[cfg(test)]
    pub(crate) const fn numbers(&self) -> (u16, u16) {
        (self.sent, self.limit)
    }

    /// Advances the counters as if this many messages had been exchanged.
    #[cfg(test)]
    pub(crate) fn age(&mut self, messages: u16) {
        self.sent = self.sent.wrapping_add(messages);
        self.limit = self.limit.wrapping_add(messages);
    }
}
