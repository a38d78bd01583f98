//! What a timeline is written to: tracks, spans, marks and counters, in the words of both formats.

use std::io;

use super::super::counters::Unit;
use super::super::slices::Slice;

/// A track of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Track {
    /// The process, from 1.
    pub(super) process: u64,
    /// Its index among the tracks of the process, from 1.
    pub(super) index: u64,
}

/// One end of an arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArrowEnd {
    pub(super) id: u64,
    /// The arrow begins here; else it ends here.
    pub(super) begins: bool,
}

/// A counter of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct CounterTrack<'a> {
    pub(super) process: u64,
    pub(super) name: &'a str,
    pub(super) unit: Unit,
}

/// A format.
pub(super) trait Sink {
    /// Names a process.
    fn process(&mut self, process: u64, name: &str) -> io::Result<()>;

    /// Names a track, before anything is put on it.
    fn track(&mut self, track: Track, name: &str) -> io::Result<()>;

    /// A span, and its parts, which lie within it one after the other.
    fn span(&mut self, track: Track, category: &str, whole: &Slice, parts: &[Slice]) -> io::Result<()>;

    /// A packet: a span at which an arrow may begin or end.
    fn packet(&mut self, track: Track, slice: &Slice, arrow: Option<ArrowEnd>) -> io::Result<()>;

    /// Something that happened at one time.
    fn mark(&mut self, track: Track, category: &str, name: &str, at_ns: u64) -> io::Result<()>;

    /// A counter with its values, in the order of time.
    fn counter(&mut self, counter: CounterTrack<'_>, values: &[(u64, i64)]) -> io::Result<()>;

    /// The end, with what the reader should know.
    fn finish(&mut self, remarks: &[String]) -> io::Result<()>;
}
