//! From bytes to records: the inverse of [`encode`](super::encode).

use super::encode::{NEXT_RECEIVED, NEXT_SENT, Shortened};
use super::field::{NUMBER_BYTES, take_byte, take_bytes, take_number, unzigzag};
use super::record::Record;

/// What stands at the front of some bytes.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'a> {
    /// A record, and the time at which it was made.
    Record(u64, Record<'a>),
    /// The record is not whole.
    Short,
    /// That is no record.
    Wrong,
}

/// Reads records one after the other.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    at_ns: u64,
    shortened: Shortened,
}

impl Decoder {
    /// Bytes of the record at the front, if it is whole, and of a kind that this version does not know. Its
    /// time passes.
    pub(super) fn unknown_bytes(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        let number = take_byte(&mut rest)?;
        if matches!(number, NEXT_SENT | NEXT_RECEIVED) || Record::is_known(number) {
            return None;
        }
        let mut body = take_body(&mut rest)?;
        self.pass(take_number(&mut body)?);
        Some(bytes.len() - rest.len())
    }

    /// Takes a record of a known kind from the front of the bytes, unless it is not whole.
    pub(super) fn take<'a>(&mut self, bytes: &mut &'a [u8]) -> Piece<'a> {
        let mut rest = *bytes;
        let Some(number) = take_byte(&mut rest) else { return Piece::Short };
        let piece = match number {
            NEXT_SENT | NEXT_RECEIVED => self.take_next(number, &mut rest),
            _ => self.take_whole(number, &mut rest),
        };
        if matches!(piece, Piece::Record(..)) {
            *bytes = rest;
        }
        piece
    }

    /// A packet that follows the one before it.
    fn take_next<'a>(&mut self, number: u8, rest: &mut &'a [u8]) -> Piece<'a> {
        let left = rest.len();
        let Some(passed) = take_number(rest) else {
            // A number that is not whole ends where the bytes do.
            return if left < NUMBER_BYTES { Piece::Short } else { Piece::Wrong };
        };
        let sent = number == NEXT_SENT;
        let next = if sent { self.shortened.next_sent() } else { self.shortened.next_received() };
        let Some(record) = next else { return Piece::Wrong };
        Piece::Record(self.pass(passed), record)
    }

    fn take_whole<'a>(&mut self, number: u8, rest: &mut &'a [u8]) -> Piece<'a> {
        let Some(mut body) = take_body(rest) else { return Piece::Short };
        let Some(passed) = take_number(&mut body) else { return Piece::Wrong };
        let Some(record) = Record::parse(number, &mut body) else { return Piece::Wrong };
        self.shortened.note(&record);
        Piece::Record(self.pass(passed), record)
    }

    /// Time passes; the new time.
    fn pass(&mut self, passed: u64) -> u64 {
        self.at_ns = self.at_ns.wrapping_add_signed(unzigzag(passed));
        self.at_ns
    }
}

/// What follows the kind of a record: as many bytes as the first two say.
fn take_body<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length: [u8; 2] = take_bytes(rest, 2)?.try_into().ok()?;
    take_bytes(rest, usize::from(u16::from_le_bytes(length)))
}
