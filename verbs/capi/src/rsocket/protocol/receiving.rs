//! What has arrived: the ring that the peer writes into, and what it is granted.

use std::collections::VecDeque;

use super::Violation;
use super::remote_buffer::RemoteBuffer;
use super::ring::Piece;

/// The receiving half of a stream.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// Receives that are posted, and so messages that may wait.
    queue: u16,
    /// Each half of the ring, in bytes; where the ring is.
    half: u32,
    ring: RemoteBuffer,
    /// Messages that were read. Wraps.
    consumed: u16,
    /// The count at which the peer is to get new credits. Wraps.
    due: u16,
    /// What is left of each message that waits.
    waiting: VecDeque<u32>,
    bytes: u32,
    /// Bytes that the peer may still write.
    allowed: u32,
    /// Where the first byte that waits is.
    offset: u32,
    /// Bytes that were read since the last half was granted, and where the next one to be granted begins.
    freed: u32,
    next_half: u32,
}

impl Receiving {
    /// Nothing has arrived. The ring's length is in bytes and even; the peer knows of its first half.
    pub(crate) fn new(queue: u16, ring: RemoteBuffer) -> Receiving {
        let half = ring.length / 2;
        Receiving {
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

    /// The peer has written so much.
    ///
    /// # Errors
    /// It was not allowed to.
    pub(crate) fn handle_data(&mut self, length: u32) -> Result<(), Violation> {
        if self.waiting.len() >= usize::from(self.queue) {
            return Err(Violation::TooManyMessages);
        }
        self.allowed = self.allowed.checked_sub(length).ok_or(Violation::TooManyBytes)?;
        if length == 0 {
            self.handle_other();
        } else {
            self.waiting.push_back(length);
            self.bytes += length;
        }
        Ok(())
    }

    /// A message that is not read: it is counted at once.
    pub(crate) fn handle_other(&mut self) {
        self.consumed = self.consumed.wrapping_add(1);
    }

    /// Bytes that can be read.
    pub(crate) const fn available(&self) -> u32 {
        self.bytes
    }

    /// Where the first of them are, at most `wanted`.
    pub(crate) fn peek(&self, wanted: usize) -> Piece {
        let length = u32::try_from(wanted).map_or(self.bytes, |wanted| wanted.min(self.bytes));
        Piece::new(self.offset, length, self.half * 2)
    }

    /// The first bytes were read: not more than there were.
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

    /// Whether the peer is to be told of new room or credits.
    pub(crate) const fn grant_is_due(&self) -> bool {
        self.freed >= self.half || self.consumed.wrapping_sub(self.due) as i16 >= 0
    }

    /// What the peer may count up to now, and the buffer that it may write to next, if there is a new one.
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

    /// As if so many messages had gone to and fro.
    #[cfg(test)]
    pub(crate) fn age(&mut self, messages: u16) {
        self.consumed = self.consumed.wrapping_add(messages);
        self.due = self.due.wrapping_add(messages);
    }
}
