//! The orders that came to a process: to change its fault plan while it runs, or to say what objects it has.
//!
//! An order comes as counters are asked for (`report`), through the socket that forwarded packets come to,
//! which checks the sender's user. It has a number: a process that gets no answer gives it again, and it must
//! not be obeyed twice.

use std::collections::VecDeque;

use pumice_events::inspect::MAX_PAGE_BYTES;
use pumice_faults::live::MAX_ANSWER_BYTES;
use pumice_ports::Order;
use pumice_transport::wire::ProcessIndex;

use super::member_index::MemberIndex;

/// What an answer begins with, before the process index and the number of the order.
const MAGIC: [u8; 8] = *b"pumiceF1";
/// The same of a member in another bank than the first: its bank follows.
const MAGIC_WITH_BANK: [u8; 8] = *b"pumiceF2";
const HEADER_BYTES: usize = 8 + 1 + 1 + 8;
/// Orders that wait to be obeyed.
const MAX_WAITING: usize = 16;
/// Answers that are kept, for those that ask again.
const MAX_ANSWERED: usize = 16;

/// The longest answer to an order.
pub(super) const MAX_BYTES: usize = HEADER_BYTES + MAX_ANSWER_BYTES;
const _: () = assert!(MAX_PAGE_BYTES <= MAX_ANSWER_BYTES, "a page of objects fits");

/// An answer, as it is sent.
pub(super) fn encode(member: MemberIndex, number: u64, answer: &[u8]) -> Vec<u8> {
    let (process, bank) = (member.process().value(), member.bank());
    let with_bank = [&MAGIC_WITH_BANK[..], &[bank, process]].concat();
    let begin = if bank == 0 { [&MAGIC[..], &[process]].concat() } else { with_bank };
    [&begin[..], &number.to_le_bytes(), answer].concat()
}

/// What stands in an answer: whose it is, the number of the order, and the rest.
pub(super) fn answer_of(bytes: &[u8]) -> Option<(MemberIndex, u64, &[u8])> {
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
pub(super) struct Orders {
    waiting: VecDeque<Order>,
    /// By asker and number.
    answered: VecDeque<(u64, u64, Vec<u8>)>,
}

impl Orders {
    /// An order comes. Returns the answer if it was obeyed already.
    pub(super) fn take(&mut self, order: Order) -> Option<&[u8]> {
        let is_same = |asker: u64, number: u64| asker == order.asker && number == order.number;
        if let Some(index) = self.answered.iter().position(|(asker, number, _)| is_same(*asker, *number)) {
            return self.answered.get(index).map(|(_, _, text)| text.as_slice());
        }
        let waits = self.waiting.iter().any(|other| is_same(other.asker, other.number));
        if !waits && self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(order);
        }
        None
    }

    /// The oldest order that was not obeyed.
    pub(super) fn next(&mut self) -> Option<Order> {
        self.waiting.pop_front()
    }

    /// An order was obeyed; what its asker is told.
    pub(super) fn answer(&mut self, member: MemberIndex, order: &Order, answer: &[u8]) -> Vec<u8> {
        let text = encode(member, order.number, answer);
        if self.answered.len() >= MAX_ANSWERED {
            self.answered.pop_front();
        }
        self.answered.push_back((order.asker, order.number, text.clone()));
        text
    }
}

#[cfg(test)]
mod tests {
    use pumice_faults::live::LiveAnswer;

    use super::*;

    /// The answer to the order with this number; nothing if it is none.
    fn decode(bytes: &[u8], number: u64) -> Option<(MemberIndex, LiveAnswer)> {
        let (member, of_order, answer) = answer_of(bytes)?;
        let answer = (of_order == number).then_some(answer)?;
        Some((member, LiveAnswer::decode(answer)?))
    }

    fn nth(number: u16) -> MemberIndex {
        MemberIndex::of_number(number).unwrap()
    }

    fn order(asker: u64, number: u64) -> Order {
        Order { asker, number, text: b"{}".to_vec() }
    }

    #[test]
    fn an_order_that_comes_again_is_obeyed_once() {
        let mut orders = Orders::default();
        assert_eq!(orders.take(order(1, 1)), None);
        assert_eq!(orders.take(order(1, 1)), None);
        assert_eq!(orders.take(order(2, 1)), None);
        let first = orders.next().unwrap();
        let text = orders.answer(nth(9), &first, b"done");
        assert_eq!((orders.next().map(|order| order.asker), orders.next().is_none()), (Some(2), true));
        assert_eq!(orders.take(order(1, 1)), Some(&text[..]));
        assert!(orders.next().is_none());
        for number in 0..100 {
            orders.take(order(3, number));
        }
        assert_eq!(std::iter::from_fn(|| orders.next()).count(), MAX_WAITING);
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let answer = LiveAnswer { tag: "a".to_owned(), ..LiveAnswer::default() };
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
