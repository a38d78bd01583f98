//! Decodes records from bytes: the inverse of [`encode`](super::encode).

use super::encode::{NEXT_RECEIVED, NEXT_SENT, PacketPredictor};
use super::field::{NUMBER_BYTES, take_byte, take_bytes, take_number, unzigzag};
use super::record::Record;

/// The result of decoding the front of some bytes.
#[derive(Debug, PartialEq)]
pub(super) enum DecodedRecord<'a> {
    /// A record, and the time at which it was made.
    Record(u64, Record<'a>),
    /// The record is incomplete.
    Short,
    /// The bytes are no record.
    Wrong,
}

/// Decodes records one after the other.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    at_ns: u64,
    predictor: PacketPredictor,
}

impl Decoder {
    /// Returns the length of the record at the front, if it is complete and of a kind that this version does
    /// not know, and advances the time by that record's.
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

    /// Takes a record of a known kind from the front of the bytes, unless it is incomplete.
    pub(super) fn take<'a>(&mut self, bytes: &mut &'a [u8]) -> DecodedRecord<'a> {
        let mut rest = *bytes;
        let Some(number) = take_byte(&mut rest) else { return DecodedRecord::Short };
        let piece = match number {
            NEXT_SENT | NEXT_RECEIVED => self.take_next(number, &mut rest),
            _ => self.take_whole(number, &mut rest),
        };
        if matches!(piece, DecodedRecord::Record(..)) {
            *bytes = rest;
        }
        piece
    }

    /// Takes a packet that continues the one before it.
    fn take_next<'a>(&mut self, number: u8, rest: &mut &'a [u8]) -> DecodedRecord<'a> {
        let left = rest.len();
        let Some(passed) = take_number(rest) else {
            // A number is incomplete if it reaches the end of the bytes.
            return if left < NUMBER_BYTES { DecodedRecord::Short } else { DecodedRecord::Wrong };
        };
        let sent = number == NEXT_SENT;
        let next = if sent { self.predictor.next_sent() } else { self.predictor.next_received() };
        let Some(record) = next else { return DecodedRecord::Wrong };
        DecodedRecord::Record(self.pass(passed), record)
    }

    fn take_whole<'a>(&mut self, number: u8, rest: &mut &'a [u8]) -> DecodedRecord<'a> {
        let Some(mut body) = take_body(rest) else { return DecodedRecord::Short };
        let Some(passed) = take_number(&mut body) else { return DecodedRecord::Wrong };
        let Some(record) = Record::parse(number, &mut body) else { return DecodedRecord::Wrong };
        self.predictor.note(&record);
        DecodedRecord::Record(self.pass(passed), record)
    }

    /// Advances the time and returns the new time.
    fn pass(&mut self, passed: u64) -> u64 {
        self.at_ns = self.at_ns.wrapping_add_signed(unzigzag(passed));
        self.at_ns
    }
}

/// Takes the body that follows the kind of a record; the first two bytes are its length.
fn take_body<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length: [u8; 2] = take_bytes(rest, 2)?.try_into().ok()?;
    take_bytes(rest, usize::from(u16::from_le_bytes(length)))
}
