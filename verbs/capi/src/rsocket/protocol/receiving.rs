//! Received data: the ring that the peer writes into, and the peer's grants.

use std::collections::VecDeque;

use super::ProtocolViolation;
use super::remote_buffer::RemoteBuffer;
use super::ring::RingPiece;

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
