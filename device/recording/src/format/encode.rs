//! Encodes records: a kind, the length of the rest, the time since the record before, and the fields. A
//! packet that continues the one before it on the same queue pair, as packets of a message do, is only a kind
//! and a time.

use super::field::{ByteSink, NUMBER_BYTES, zigzag};
use super::record::Record;

/// Kind of the record for the packet that continues the last one sent.
pub(super) const NEXT_SENT: u8 = 0xf0;
/// Kind of the record for the packet that continues the last one received.
pub(super) const NEXT_RECEIVED: u8 = 0xf1;
/// Kind of a section: another header follows, because the process opened its device again.
pub const SECTION: u8 = 0xff;
/// Mask of the 24 bits of a PSN.
const PSN_MASK: u32 = 0x00ff_ffff;

/// The last packets of each direction, which the next ones may continue.
#[derive(Debug, Default)]
pub(super) struct PacketPredictor {
    sent: Option<Record<'static>>,
    received: Option<Record<'static>>,
}

impl PacketPredictor {
    /// Returns the record of the packet that would continue the last one sent.
    #[inline]
    pub(super) fn next_sent(&mut self) -> Option<Record<'static>> {
        if let Some(Record::PacketSent { psn, .. }) = &mut self.sent {
            *psn = psn.wrapping_add(1) & PSN_MASK;
        }
        self.sent
    }

    /// Returns the record of the packet that would continue the last one received.
    #[inline]
    pub(super) fn next_received(&mut self) -> Option<Record<'static>> {
        if let Some(Record::PacketReceived { psn, .. }) = &mut self.received {
            *psn = psn.wrapping_add(1) & PSN_MASK;
        }
        self.received
    }

    /// Returns the kind that stands for the whole record, if it is the packet that continues the last one;
    /// otherwise the caller has to call `note`.
    #[inline]
    fn number_of_next(&mut self, record: &Record<'_>) -> Option<u8> {
        let (last, psn, number) = match record {
            Record::PacketSent { psn, .. } => (&mut self.sent, *psn, NEXT_SENT),
            Record::PacketReceived { psn, .. } => (&mut self.received, *psn, NEXT_RECEIVED),
            _ => return None,
        };
        let (Record::PacketSent { psn: last_psn, .. } | Record::PacketReceived { psn: last_psn, .. }) =
            last.as_mut()?
        else {
            return None;
        };
        *last_psn = last_psn.wrapping_add(1) & PSN_MASK;
        // A different PSN is the quickest sign that a packet is no continuation.
        let has_next_psn = *last_psn == psn;
        (has_next_psn && last.as_ref() == Some(record)).then_some(number)
    }

    /// Notes a record that was written in full.
    #[inline]
    pub(super) fn note(&mut self, record: &Record<'_>) {
        match *record {
            Record::PacketSent { qp, side, message, psn, transmission, opcode, length, destination } => {
                self.sent = Some(Record::PacketSent {
                    qp,
                    side,
                    message,
                    psn,
                    transmission,
                    opcode,
                    length,
                    destination,
                });
            }
            Record::PacketReceived { qp, psn, opcode, length, source } => {
                self.received = Some(Record::PacketReceived { qp, psn, opcode, length, source });
            }
            _ => {}
        }
    }
}

/// Maximum length of a record in bytes: a few numbers and at most four texts.
const RECORD_BYTES: usize = 4096;

/// A buffer of fixed size in which a record is put together, so that appending a byte is a plain store.
#[derive(Debug)]
struct RecordBuffer {
    bytes: [u8; RECORD_BYTES],
    used: usize,
}

impl Default for RecordBuffer {
    fn default() -> RecordBuffer {
        RecordBuffer { bytes: [0; RECORD_BYTES], used: 0 }
    }
}

impl RecordBuffer {
    /// Writes the length, which is known now, and returns the bytes.
    #[inline]
    fn finish(&mut self) {
        let length = self.used.saturating_sub(3) as u16;
        if let Some(field) = self.bytes.get_mut(1..3) {
            field.copy_from_slice(&length.to_le_bytes());
        }
    }
}

impl ByteSink for RecordBuffer {
    #[inline]
    fn push_byte(&mut self, byte: u8) {
        if let Some(free) = self.bytes.get_mut(self.used) {
            *free = byte;
            self.used += 1;
        }
    }

    #[inline]
    fn push_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.push_byte(*byte);
        }
    }

    #[inline]
    fn push_number(&mut self, mut value: u64) {
        let room = self.bytes.get_mut(self.used..).and_then(<[u8]>::first_chunk_mut::<NUMBER_BYTES>);
        // A number takes between one byte and `NUMBER_BYTES`.
        for out in room.into_iter().flatten() {
            self.used += 1;
            if value < 0x80 {
                *out = value as u8;
                return;
            }
            *out = value as u8 | 0x80;
            value >>= 7;
        }
    }
}

/// Encodes records one after the other.
#[derive(Debug, Default)]
pub struct Encoder {
    at_ns: u64,
    predictor: PacketPredictor,
    line: Box<RecordBuffer>,
}

impl Encoder {
    /// Appends a record that was made at the time `at_ns`.
    #[inline]
    pub fn put(&mut self, at_ns: u64, record: &Record<'_>, out: &mut Vec<u8>) {
        let passed = self.pass(at_ns);
        let short = self.predictor.number_of_next(record);
        let line = &mut *self.line;
        line.used = 0;
        line.push_byte(short.unwrap_or(record.number()));
        if short.is_some() {
            line.push_number(passed);
        } else {
            line.push_bytes(&[0, 0]);
            line.push_number(passed);
            record.emit(line);
            line.finish();
            self.predictor.note(record);
        }
        out.extend_from_slice(line.bytes.get(..line.used).unwrap_or_default());
    }

    /// Appends a record that is no packet, by its number and its emitted fields, as [`Encoder::put`] does.
    pub fn put_emitted(&mut self, at_ns: u64, number: u8, fields: &[u8], out: &mut Vec<u8>) {
        let passed = self.pass(at_ns);
        let line = &mut *self.line;
        line.used = 0;
        line.push_bytes(&[number, 0, 0]);
        line.push_number(passed);
        line.push_bytes(fields);
        line.finish();
        out.extend_from_slice(line.bytes.get(..line.used).unwrap_or_default());
    }

    /// Advances the time and returns by how much, as a number.
    #[inline]
    const fn pass(&mut self, at_ns: u64) -> u64 {
        let passed = zigzag(at_ns.wrapping_sub(self.at_ns) as i64);
        self.at_ns = at_ns;
        passed
    }
}
