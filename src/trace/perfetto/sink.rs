//! The output formats of a timeline: tracks, spans, marks and counters, in terms that both formats have.

use std::io;

use super::super::counters::CounterUnit;
use super::super::slices::Slice;

/// A track of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Track {
    /// Index of the process, from 1.
    pub(super) process: u64,
    /// Index of the track among those of the process, from 1.
    pub(super) index: u64,
}

/// An end of an arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArrowEnd {
    pub(super) id: u64,
    /// The arrow begins here; otherwise it ends here.
    pub(super) begins: bool,
}

/// A counter of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct CounterTrack<'a> {
    pub(super) process: u64,
    pub(super) name: &'a str,
    pub(super) unit: CounterUnit,
}

/// An output format.
pub(super) trait TraceSink {
    /// Writes the name of a process.
    fn process(&mut self, process: u64, name: &str) -> io::Result<()>;

    /// Writes the name of a track, before anything is put on it.
    fn track(&mut self, track: Track, name: &str) -> io::Result<()>;

    /// Writes a span, and its parts, which lie within it one after the other.
    fn span(&mut self, track: Track, category: &str, outer: &Slice, parts: &[Slice]) -> io::Result<()>;

    /// Writes a packet: a span at which an arrow may begin or end.
    fn packet(&mut self, track: Track, slice: &Slice, arrow: Option<ArrowEnd>) -> io::Result<()>;

    /// Writes an event at one time.
    fn mark(&mut self, track: Track, category: &str, name: &str, at_ns: u64) -> io::Result<()>;

    /// Writes a counter with its values, in the order of time.
    fn counter(&mut self, counter: CounterTrack<'_>, values: &[(u64, i64)]) -> io::Result<()>;

    /// Writes the end, with remarks for the reader.
    fn finish(&mut self, remarks: &[String]) -> io::Result<()>;
}
