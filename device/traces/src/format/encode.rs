//! From records to bytes: a kind, the length of what follows, the time that passed, the fields. A packet that
//! follows the one before it on the same queue pair as packets of a message do is a kind and a time.

use super::field::{NUMBER_BYTES, Out, zigzag};
use super::record::Record;

/// The packet after the last one that was sent.
pub(super) const NEXT_SENT: u8 = 0xf0;
/// The packet after the last one that was received.
pub(super) const NEXT_RECEIVED: u8 = 0xf1;
/// Another header follows: the process opened its device again.
pub const SECTION: u8 = 0xff;
/// Low bits of a PSN.
const PSN_MASK: u32 = 0x00ff_ffff;

/// The last packets of each direction, which the next ones may continue.
#[derive(Debug, Default)]
pub(super) struct Shortened {
    sent: Option<Record<'static>>,
    received: Option<Record<'static>>,
}

impl Shortened {
    /// What the packet after the last one that was sent would be.
    #[inline]
    pub(super) fn next_sent(&mut self) -> Option<Record<'static>> {
        if let Some(Record::PacketSent { psn, .. }) = &mut self.sent {
            *psn = psn.wrapping_add(1) & PSN_MASK;
        }
        self.sent
    }

    /// What the packet after the last one that was received would be.
    #[inline]
    pub(super) fn next_received(&mut self) -> Option<Record<'static>> {
        if let Some(Record::PacketReceived { psn, .. }) = &mut self.received {
            *psn = psn.wrapping_add(1) & PSN_MASK;
        }
        self.received
    }

    /// The number that says it all, if a record is the packet after the last one; else it is to be noted.
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
        // Most packets that are no continuation have another PSN.
        let has_next_psn = *last_psn == psn;
        (has_next_psn && last.as_ref() == Some(record)).then_some(number)
    }

    /// A record was written in full.
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

/// Bytes that a record takes at most: a few numbers, and at most four texts.
const RECORD_BYTES: usize = 4096;

/// A record that is being put together: its room is there, so that each byte is a store.
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
    /// Its length is known now.
    #[inline]
    fn finish(&mut self) {
        let length = self.used.saturating_sub(3) as u16;
        if let Some(field) = self.bytes.get_mut(1..3) {
            field.copy_from_slice(&length.to_le_bytes());
        }
    }
}

impl Out for RecordBuffer {
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
        // A number takes at least a byte, and at most all of them.
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

/// Writes records one after the other.
#[derive(Debug, Default)]
pub struct Encoder {
    at_ns: u64,
    shortened: Shortened,
    line: Box<RecordBuffer>,
}

impl Encoder {
    /// Appends a record that was made at this time.
    #[inline]
    pub fn put(&mut self, at_ns: u64, record: &Record<'_>, out: &mut Vec<u8>) {
        let passed = self.pass(at_ns);
        let short = self.shortened.number_of_next(record);
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
            self.shortened.note(record);
        }
        out.extend_from_slice(line.bytes.get(..line.used).unwrap_or_default());
    }

    /// The same of the number and the fields of a record that is no packet.
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

    /// Time passes; how much, as a number.
    #[inline]
    const fn pass(&mut self, at_ns: u64) -> u64 {
        let passed = zigzag(at_ns.wrapping_sub(self.at_ns) as i64);
        self.at_ns = at_ns;
        passed
    }
}
