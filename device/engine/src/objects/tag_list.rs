//! Lists of tags: buffers for messages that carry a tag, which a shared receive queue matches in order.
//!
//! A message that no buffer matches is unexpected: it takes a receive request, and the program matches it.
//! The list then takes no buffer into account that is added before the program has reported how many
//! unexpected messages it has handled: else a later message could overtake an earlier one.

use std::collections::VecDeque;

use pumice_platform::error::ResourceError;
use pumice_transport::types::{RemoteTarget, Sge};

/// Length of the header of a message with a tag (TMH) in bytes.
pub const TAG_HEADER_BYTES: usize = 16;
/// Length of both headers of a rendezvous (TMH and RVH) in bytes.
pub const RENDEZVOUS_HEADER_BYTES: usize = 32;
/// Largest number of buffers in a list.
pub const MAX_TAGS: u32 = 16_384;
/// Largest number of scatter/gather elements of a buffer.
pub const MAX_TAG_SGE: u32 = 4;

/// The sizes of a list of tags (`struct ibv_tm_cap`), and its completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagSetup {
    /// Table index of the completion queue of operations and messages.
    pub cq: u32,
    /// Largest number of buffers.
    pub max_tags: u32,
}

/// The kinds of messages (`IBV_TMH_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagMessage {
    /// The payload follows the header.
    Eager,
    /// The receiver reads this many bytes of the sender's memory.
    Rendezvous(RemoteTarget, u32),
    /// No tag: the program has it, with the header.
    Untagged,
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagHeader {
    /// Kind of the message.
    pub message: TagMessage,
    /// The sender's number beside the tag.
    pub context: u32,
    /// The tag.
    pub tag: u64,
}

impl TagHeader {
    /// Returns the header at the beginning of a message. What is shorter than a header, or of another kind,
    /// has no tag.
    pub fn parse(message: &[u8]) -> TagHeader {
        let word = |at: usize| message.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        let word = |at: usize| word(at).map_or(0, u32::from_be_bytes);
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        let kind = match message.first() {
            Some(3) if message.len() >= TAG_HEADER_BYTES => TagMessage::Eager,
            Some(1) if message.len() >= RENDEZVOUS_HEADER_BYTES => {
                TagMessage::Rendezvous(RemoteTarget { address: long(16), rkey: word(24) }, word(28))
            }
            _ => TagMessage::Untagged,
        };
        TagHeader { message: kind, context: word(4), tag: long(8) }
    }
}

/// A buffer for a message with a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagBuffer {
    /// Identifier that the program gave it, for the completions of its message.
    pub wr_id: u64,
    /// The tag, of which the bits in `mask` count.
    pub tag: u64,
    /// Bits of a message's tag that are compared.
    pub mask: u64,
    /// Local buffers.
    pub sges: Vec<Sge>,
}

impl TagBuffer {
    /// Returns the sum of the buffers' lengths in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.length)).sum()
    }
}

/// An operation on a list (`struct ibv_ops_wr`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagOperation {
    /// Identifier for its completion.
    pub wr_id: u64,
    /// True if it makes a completion; one that fails always does.
    pub signaled: bool,
    /// Number of unexpected messages that the program has handled, if it reports that.
    pub handled: Option<u32>,
    /// The further effect of the request.
    pub change: TagChange,
}

/// A change of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagChange {
    /// Adds a buffer at the end.
    Add(TagBuffer),
    /// Removes the buffer with a handle.
    Delete(u32),
    /// No change.
    None,
}

/// The buffers of a shared receive queue that wait for their tags.
#[derive(Debug)]
pub struct TagList {
    setup: TagSetup,
    waiting: VecDeque<WaitingBuffer>,
    next_handle: u32,
    /// Number of unexpected messages so far, modulo 2^32.
    unexpected: u32,
    /// Number that the program has reported last.
    handled: u32,
}

#[derive(Debug)]
struct WaitingBuffer {
    handle: u32,
    /// Messages are compared with it: it was added when the program knew of all messages before.
    is_open: bool,
    buffer: TagBuffer,
}

impl TagList {
    /// Creates an empty list.
    pub const fn new(setup: TagSetup) -> TagList {
        TagList { setup, waiting: VecDeque::new(), next_handle: 1, unexpected: 0, handled: 0 }
    }

    /// Returns the index of the completion queue.
    pub const fn cq(&self) -> u32 {
        self.setup.cq
    }

    /// Reports whether the program has still to report unexpected messages.
    pub const fn wants_sync(&self) -> bool {
        self.unexpected != self.handled
    }

    /// Takes a report of how many unexpected messages the program has handled.
    pub fn sync(&mut self, handled: u32) {
        self.handled = handled;
        if !self.wants_sync() {
            self.waiting.iter_mut().for_each(|one| one.is_open = true);
        }
    }

    /// Adds a buffer. Returns its handle.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the list is full, and with `Invalid` for too many scatter/gather elements.
    pub fn add(&mut self, buffer: TagBuffer) -> Result<u32, ResourceError> {
        let most = self.setup.max_tags;
        if self.waiting.len() >= most as usize {
            return Err(ResourceError::no_memory(format!("the list of tags has all of its {most} buffers")));
        }
        if buffer.sges.len() > MAX_TAG_SGE as usize {
            let given = buffer.sges.len();
            return Err(ResourceError::invalid(format!(
                "a buffer with a tag has at most {MAX_TAG_SGE} scatter/gather elements, not {given}"
            )));
        }
        let (handle, is_open) = (self.next_handle, !self.wants_sync());
        self.next_handle = self.next_handle.wrapping_add(1);
        self.waiting.push_back(WaitingBuffer { handle, is_open, buffer });
        Ok(handle)
    }

    /// Removes the buffer with a handle. Returns false if a message has taken it.
    pub fn delete(&mut self, handle: u32) -> bool {
        let found = self.waiting.iter().position(|one| one.handle == handle);
        found.and_then(|index| self.waiting.remove(index)).is_some()
    }

    /// Takes the oldest buffer that matches a tag.
    pub fn take(&mut self, tag: u64) -> Option<TagBuffer> {
        let matches = |one: &WaitingBuffer| one.is_open && tag & one.buffer.mask == one.buffer.tag;
        let index = self.waiting.iter().position(matches)?;
        self.waiting.remove(index).map(|one| one.buffer)
    }

    /// Counts a message that no buffer matches.
    pub const fn is_unexpected(&mut self) {
        self.unexpected = self.unexpected.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> TagList {
        TagList::new(TagSetup { cq: 3, max_tags: 3 })
    }

    fn buffer(wr_id: u64, tag: u64, mask: u64) -> TagBuffer {
        TagBuffer { wr_id, tag, mask, sges: vec![Sge { address: 0, length: 8, lkey: 1 }] }
    }

    #[test]
    fn the_oldest_buffer_that_matches_is_taken_once() {
        let mut list = list();
        list.add(buffer(1, 5, 0xff)).unwrap();
        list.add(buffer(2, 6, 0xff)).unwrap();
        list.add(buffer(3, 5, 0xff)).unwrap();
        assert_eq!(list.add(buffer(4, 5, 0xff)).unwrap_err().errno(), libc::ENOMEM);
        let taken = [0x105, 5, 5, 6].map(|tag| list.take(tag).map(|buffer| buffer.wr_id));
        assert_eq!(taken, [Some(1), Some(3), None, Some(2)]);
        let long = TagBuffer { sges: vec![Sge::default(); 5], ..buffer(1, 1, 1) };
        assert_eq!(list.add(long).unwrap_err().errno(), libc::EINVAL);
    }

    #[test]
    fn a_handle_deletes_its_buffer_until_a_message_has_it() {
        let mut list = list();
        let (first, second) = (list.add(buffer(1, 1, 1)).unwrap(), list.add(buffer(2, 1, 1)).unwrap());
        assert!(list.take(1).is_some() && !list.delete(first));
        assert!(list.delete(second) && !list.delete(second) && list.take(1).is_none());
    }

    #[test]
    fn new_buffers_wait_until_unexpected_messages_are_handled() {
        let mut list = list();
        list.add(buffer(1, 1, 1)).unwrap();
        list.is_unexpected();
        list.add(buffer(2, 1, 1)).unwrap();
        assert!(list.wants_sync());
        assert_eq!(list.take(1).map(|buffer| buffer.wr_id), Some(1), "it was added before");
        assert_eq!(list.take(1), None);
        list.sync(7);
        assert!(list.wants_sync() && list.take(1).is_none());
        list.sync(1);
        assert!(!list.wants_sync());
        assert_eq!(list.take(1).map(|buffer| buffer.wr_id), Some(2));
    }

    #[test]
    fn headers_are_read_and_what_is_none_has_no_tag() {
        let mut message = vec![3, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2];
        let header = TagHeader::parse(&message);
        assert_eq!(header, TagHeader { message: TagMessage::Eager, context: 9, tag: 0x1_0000_0002 });
        message[0] = 1;
        assert_eq!(TagHeader::parse(&message).message, TagMessage::Untagged, "the second header is missing");
        message.extend([0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 7, 0, 0, 1, 0]);
        let target = RemoteTarget { address: 0x1000, rkey: 7 };
        assert_eq!(TagHeader::parse(&message).message, TagMessage::Rendezvous(target, 256));
        for kind in [0, 2, 4, 255] {
            message[0] = kind;
            assert_eq!(TagHeader::parse(&message).message, TagMessage::Untagged);
        }
        for length in 0..TAG_HEADER_BYTES {
            assert_eq!(TagHeader::parse(&[3; TAG_HEADER_BYTES][..length]).message, TagMessage::Untagged);
        }
    }
}
