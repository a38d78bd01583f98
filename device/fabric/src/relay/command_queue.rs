//! Orders that came to a process: to change its fault plan while it runs, or to report its objects.
//!
//! An order comes in the same way as a request for counters (`report`), through the socket that receives
//! forwarded packets, which checks the sender's user. It has a number: a process that gets no answer gives
//! the order again, and the order must not be obeyed twice.

use std::collections::VecDeque;

use pumice_model::fates::live::MAX_REPLY_BYTES;
use pumice_model::inspect::MAX_PAGE_BYTES;
use pumice_model::port::group::ControlCommand;
use pumice_transport::wire::ProcessIndex;

use crate::members::member_index::MemberIndex;

/// Magic bytes at the beginning of an answer, before the process index and the number of the order.
const MAGIC: [u8; 8] = *b"pumiceF1";
/// Magic bytes in the answer of a member in another bank than the first; its bank follows.
const MAGIC_WITH_BANK: [u8; 8] = *b"pumiceF2";
const HEADER_BYTES: usize = 8 + 1 + 1 + 8;
/// Number of orders that may wait to be obeyed.
const MAX_WAITING: usize = 16;
/// Number of answers that are cached for processes that give their order again.
const MAX_ANSWERED: usize = 16;

/// Length of the longest answer to an order, in bytes.
pub(crate) const MAX_BYTES: usize = HEADER_BYTES + MAX_REPLY_BYTES;
const _: () = assert!(MAX_PAGE_BYTES <= MAX_REPLY_BYTES, "a page of objects fits");

/// Encodes an answer.
pub(crate) fn encode(member: MemberIndex, number: u64, answer: &[u8]) -> Vec<u8> {
    let (process, bank) = (member.process().value(), member.bank());
    let with_bank = [&MAGIC_WITH_BANK[..], &[bank, process]].concat();
    let begin = if bank == 0 { [&MAGIC[..], &[process]].concat() } else { with_bank };
    [&begin[..], &number.to_le_bytes(), answer].concat()
}

/// Splits an answer into its member, the number of the order, and the text.
pub(crate) fn answer_of(bytes: &[u8]) -> Option<(MemberIndex, u64, &[u8])> {
    let (magic, bytes) = bytes.split_first_chunk::<8>()?;
    let (&bank, bytes) = match *magic {
        MAGIC => (&0, bytes),
        MAGIC_WITH_BANK => bytes.split_first()?,
        _ => return None,
    };
    let (&process, bytes) = bytes.split_first()?;
    let (number, answer) = bytes.split_first_chunk::<8>()?;
    Some((MemberIndex::new(bank, ProcessIndex::new(process))?, u64::from_le_bytes(*number), answer))
}

/// The orders that came to a process.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue {
    waiting: VecDeque<ControlCommand>,
    /// Cached answers, by asker and number.
    answered: VecDeque<(u64, u64, Vec<u8>)>,
}

impl CommandQueue {
    /// Accepts an order. Returns the cached answer if the order was obeyed already.
    pub(crate) fn take(&mut self, order: ControlCommand) -> Option<&[u8]> {
        let is_same = |querier: u64, number: u64| querier == order.querier && number == order.number;
        if let Some(index) = self.answered.iter().position(|(querier, number, _)| is_same(*querier, *number))
        {
            return self.answered.get(index).map(|(_, _, text)| text.as_slice());
        }
        let waits = self.waiting.iter().any(|other| is_same(other.querier, other.number));
        if !waits && self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(order);
        }
        None
    }

    /// Returns the oldest order that was not obeyed.
    pub(crate) fn next(&mut self) -> Option<ControlCommand> {
        self.waiting.pop_front()
    }

    /// Caches the answer to an order that was obeyed, and returns the message for its asker.
    pub(crate) fn answer(&mut self, member: MemberIndex, order: &ControlCommand, answer: &[u8]) -> Vec<u8> {
        let text = encode(member, order.number, answer);
        if self.answered.len() >= MAX_ANSWERED {
            self.answered.pop_front();
        }
        self.answered.push_back((order.querier, order.number, text.clone()));
        text
    }
}

#[cfg(test)]
mod tests {
    use pumice_model::fates::live::FaultReply;

    use super::*;

    /// Decodes the answer to the order with this number; `None` if the bytes are not one.
    fn decode(bytes: &[u8], number: u64) -> Option<(MemberIndex, FaultReply)> {
        let (member, of_order, answer) = answer_of(bytes)?;
        let answer = (of_order == number).then_some(answer)?;
        Some((member, FaultReply::decode(answer)?))
    }

    fn nth(number: u16) -> MemberIndex {
        MemberIndex::of_number(number).unwrap()
    }

    fn order(querier: u64, number: u64) -> ControlCommand {
        ControlCommand { querier, number, text: b"{}".to_vec() }
    }

    #[test]
    fn an_order_that_comes_again_is_obeyed_once() {
        let mut command_queue = CommandQueue::default();
        assert_eq!(command_queue.take(order(1, 1)), None);
        assert_eq!(command_queue.take(order(1, 1)), None);
        assert_eq!(command_queue.take(order(2, 1)), None);
        let first = command_queue.next().unwrap();
        let text = command_queue.answer(nth(9), &first, b"done");
        assert_eq!(
            (command_queue.next().map(|order| order.querier), command_queue.next().is_none()),
            (Some(2), true)
        );
        assert_eq!(command_queue.take(order(1, 1)), Some(&text[..]));
        assert!(command_queue.next().is_none());
        for number in 0..100 {
            command_queue.take(order(3, number));
        }
        assert_eq!(std::iter::from_fn(|| command_queue.next()).count(), MAX_WAITING);
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let answer = FaultReply { tag: "a".to_owned(), ..FaultReply::default() };
        for member in [9, 0x509].map(nth) {
            let bytes = encode(member, 77, &answer.clone().encode());
            assert_eq!(decode(&bytes, 77), Some((member, answer.clone())));
            assert_eq!(decode(&bytes, 78), None, "the answer to an earlier order");
            for length in 0..bytes.len() {
                assert_eq!(decode(&bytes[..length], 77), None);
            }
            let mut other = bytes;
            other[0] = b'q';
            assert_eq!(decode(&other, 77), None);
        }
    }
}
