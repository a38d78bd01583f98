//! Reads a trace, of which every byte may be wrong, with a bounded amount of memory.

use std::io::{self, Read};

use super::decode::{Decoder, Piece};
use super::encode::SECTION;
use super::header::{HeaderError, MAX_HEADER_BYTES, TraceHeader};
use super::record::Record;

/// Bytes that are read at once; more than the longest record and the longest header together.
const BUFFER_BYTES: usize = 1 << 18;

/// A trace that is read.
#[derive(Debug)]
pub struct TraceReader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are done with.
    done: usize,
    /// There is no more to be had.
    is_over: bool,
    header: TraceHeader,
    decoder: Decoder,
    /// Bytes before the buffer.
    passed_bytes: u64,
    unknown: u64,
}

/// Why a trace, or the rest of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is no trace of this program's.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// It ends inside of a record.
    #[error("it ends inside of a record, at byte {at}: the process was ended, or the file was cut")]
    Truncated {
        /// Where the record begins.
        at: u64,
    },
    /// There is something else than a record.
    #[error("it is damaged at byte {at}: there is no record")]
    Damaged {
        /// Where.
        at: u64,
    },
}

/// What comes next in a trace.
#[derive(Debug, PartialEq)]
pub enum Item<'a> {
    /// A record, and the time of this part of the trace at which it was made, in ns.
    Record(u64, Record<'a>),
    /// The process opened its device again: [`TraceReader::header`] is another one from here on.
    Section,
}

impl<R: Read> TraceReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// It is no trace that this version can read.
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

    /// What the trace, or the part of it that is being read, says of itself.
    pub const fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Records so far of kinds that this version does not know.
    pub const fn unknown_records(&self) -> u64 {
        self.unknown
    }

    /// What comes next; `None`: the trace ends here.
    ///
    /// # Errors
    /// The rest cannot be read. What came before is true all the same.
    // Not an iterator: an item borrows the buffer.
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
            Piece::Record(at_ns, record) => Ok(Some(Item::Record(at_ns, record))),
            Piece::Short => Err(ReadError::Truncated { at }),
            Piece::Wrong => Err(ReadError::Damaged { at }),
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

    /// Reads until the buffer is full or nothing more comes.
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
