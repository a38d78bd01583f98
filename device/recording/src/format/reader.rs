//! Reads a trace with a bounded amount of memory. Every byte of it may be wrong.

use std::io::{self, Read};

use super::decode::{DecodedRecord, Decoder};
use super::encode::SECTION;
use super::header::{HeaderError, MAX_HEADER_BYTES, TraceHeader};
use super::record::Record;

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
