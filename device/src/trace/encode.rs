//! From records to bytes: a kind, the length of what follows, the time that passed, the fields. A packet that
//! follows the one before it on the same queue pair as packets of a message do is a kind and a time.

use super::field::{put_number, zigzag};
use super::record::Record;

/// The packet after the last one that was sent.
pub(super) const NEXT_SENT: u8 = 0xf0;
/// The packet after the last one that was received.
pub(super) const NEXT_RECEIVED: u8 = 0xf1;
/// Another header follows: the process opened its device again.
pub(super) const SECTION: u8 = 0xff;
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

/// Writes records one after the other.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    at_ns: u64,
    shortened: Shortened,
}

impl Encoder {
    /// Appends a record that was made at this time.
    #[inline]
    pub(super) fn put(&mut self, at_ns: u64, record: &Record<'_>, out: &mut Vec<u8>) {
        let passed = zigzag(at_ns.wrapping_sub(self.at_ns) as i64);
        self.at_ns = at_ns;
        let short = match record {
            Record::PacketSent { .. } => {
                (self.shortened.next_sent().as_ref() == Some(record)).then_some(NEXT_SENT)
            }
            Record::PacketReceived { .. } => {
                (self.shortened.next_received().as_ref() == Some(record)).then_some(NEXT_RECEIVED)
            }
            _ => None,
        };
        if let Some(number) = short {
            out.push(number);
            return put_number(passed, out);
        }
        let start = out.len();
        out.extend_from_slice(&[record.number(), 0, 0]);
        put_number(passed, out);
        record.emit(out);
        // A record has at most a few texts, each of a limited length.
        let length = (out.len() - start).saturating_sub(3) as u16;
        if let Some(place) = out.get_mut(start + 1..start + 3) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        self.shortened.note(record);
    }
}
