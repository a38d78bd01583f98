//! Decodes records from bytes, and reads a trace with a bounded amount of memory.
//!
//! Reads a trace with a bounded amount of memory. Every byte of it may be wrong.

use std::io::{self, Read};

use super::encode::{NEXT_RECEIVED, NEXT_SENT, PacketPredictor, SECTION};
use super::field::{NUMBER_BYTES, take_byte, take_bytes, take_number, unzigzag};
use super::record::Record;
use super::{HeaderError, MAX_HEADER_BYTES, TraceHeader};

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
    fn unknown_bytes(&mut self, bytes: &[u8]) -> Option<usize> {
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

/// Size of the buffer; larger than the longest record and the longest header together.
const BUFFER_BYTES: usize = 1 << 18;

/// Reads a trace.
#[derive(Debug)]
pub struct TraceReader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Number of bytes at the front of the buffer that have been used.
    done: usize,
    /// The source has no more bytes.
    is_over: bool,
    header: TraceHeader,
    decoder: Decoder,
    /// Number of bytes of the file before the buffer.
    passed_bytes: u64,
    unknown: u64,
}

/// The reason why a trace, or the rest of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is no trace of this program's format.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The trace ends inside of a record.
    #[error("it ends inside of a record, at byte {at}: the process was ended, or the file was cut")]
    Truncated {
        /// Offset at which the record begins.
        at: u64,
    },
    /// The bytes are no record.
    #[error("it is damaged at byte {at}: there is no record")]
    Damaged {
        /// Offset of these bytes.
        at: u64,
    },
}

/// The next item of a trace.
#[derive(Debug, PartialEq)]
pub enum Item<'a> {
    /// A record, and the time at which it was made, in ns since the section began.
    Record(u64, Record<'a>),
    /// The process opened its device again: [`TraceReader::header`] returns the new header from here on.
    Section,
}

impl<R: Read> TraceReader<R> {
    /// Opens a trace and reads its header.
    ///
    /// # Errors
    /// The source is no trace that this version can read.
    pub fn open(source: R) -> Result<TraceReader<R>, ReadError> {
        let mut reader = TraceReader {
            source,
            buffer: Vec::new(),
            done: 0,
            is_over: false,
            header: TraceHeader::default(),
            decoder: Decoder::default(),
            passed_bytes: 0,
            unknown: 0,
        };
        reader.fill()?;
        reader.begin_section()?;
        Ok(reader)
    }

    /// Returns the header of the trace, or of the section that is being read.
    pub const fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Returns the number of records so far whose kind this version does not know.
    pub const fn unknown_records(&self) -> u64 {
        self.unknown
    }

    /// Returns the next item, or `None` at the end of the trace.
    ///
    /// # Errors
    /// The rest cannot be read. The items before it are valid.
    // The trait `Iterator` does not fit, because an item borrows the buffer.
    #[expect(clippy::should_implement_trait, reason = "an item borrows the reader's buffer")]
    pub fn next(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        loop {
            if self.rest().len() < BUFFER_BYTES / 2 && !self.is_over {
                self.fill()?;
            }
            match self.rest().first() {
                None => return Ok(None),
                Some(&SECTION) => {
                    self.done += 1;
                    self.begin_section()?;
                    return Ok(Some(Item::Section));
                }
                Some(_) => {}
            }
            let rest = self.buffer.get(self.done..).unwrap_or_default();
            let Some(length) = self.decoder.unknown_bytes(rest) else { break };
            self.done += length;
            self.unknown += 1;
        }
        let at = self.passed_bytes + self.done as u64;
        let mut rest = self.buffer.get(self.done..).unwrap_or_default();
        let piece = self.decoder.take(&mut rest);
        self.done = self.buffer.len() - rest.len();
        match piece {
            DecodedRecord::Record(at_ns, record) => Ok(Some(Item::Record(at_ns, record))),
            DecodedRecord::Short => Err(ReadError::Truncated { at }),
            DecodedRecord::Wrong => Err(ReadError::Damaged { at }),
        }
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.done..).unwrap_or_default()
    }

    fn begin_section(&mut self) -> Result<(), ReadError> {
        if self.rest().len() < MAX_HEADER_BYTES && !self.is_over {
            self.fill()?;
        }
        let (header, length) = TraceHeader::parse(self.rest())?;
        self.done += length;
        self.header = header;
        self.decoder = Decoder::default();
        Ok(())
    }

    /// Reads until the buffer is full or the source ends.
    fn fill(&mut self) -> Result<(), ReadError> {
        self.buffer.drain(..self.done);
        self.passed_bytes += self.done as u64;
        self.done = 0;
        let room = BUFFER_BYTES.saturating_sub(self.buffer.len());
        let read = (&mut self.source).take(room as u64).read_to_end(&mut self.buffer)?;
        self.is_over = read < room;
        Ok(())
    }
}
