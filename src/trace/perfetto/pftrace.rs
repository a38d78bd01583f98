//! Writes Perfetto's own format: protocol buffers, counters as tracks.
//!
//! The wire format of protocol buffers, as far as a trace needs it: numbers, and bytes with their length. A
//! trace has six kinds of messages with some thirty fields, so the field numbers are written in the code; a
//! package would need a structure for each message.
//!
//! Writes Perfetto's own format: a sequence of packets in protocol buffers. The numbers of fields are those
//! of `trace_packet.proto`, `track_descriptor.proto`, `track_event.proto` and `debug_annotation.proto`.

use std::io::{self, Write};

use pumice_device::trace::{TimelineProcess, TracedQueuePair};
use serde_json::Value;

use super::super::counters::{self, CounterUnit};
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

/// A message that is being built.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ProtobufMessage {
    bytes: Vec<u8>,
}

/// Wire types, which say how a field is encoded.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

impl ProtobufMessage {
    /// Returns the whole message.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends a number, an enum or a Boolean.
    pub(super) fn number(mut self, field: u64, value: u64) -> ProtobufMessage {
        self.varint(field << 3 | VARINT);
        self.varint(value);
        self
    }

    /// Appends a number that may be negative (`int64`).
    fn signed(self, field: u64, value: i64) -> ProtobufMessage {
        self.number(field, value as u64)
    }

    /// Appends a number of 8 bytes (`fixed64`).
    fn fixed(mut self, field: u64, value: u64) -> ProtobufMessage {
        self.varint(field << 3 | FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a real number (`double`).
    pub(super) fn real(self, field: u64, value: f64) -> ProtobufMessage {
        self.fixed(field, value.to_bits())
    }

    /// Appends a text.
    pub(super) fn text(self, field: u64, text: &str) -> ProtobufMessage {
        self.delimited(field, text.as_bytes())
    }

    /// Appends a message within this one.
    pub(super) fn message(self, field: u64, inner: &ProtobufMessage) -> ProtobufMessage {
        self.delimited(field, &inner.bytes)
    }

    fn delimited(mut self, field: u64, bytes: &[u8]) -> ProtobufMessage {
        self.varint(field << 3 | LENGTH);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// Writes the counters of a queue pair: what is under way, what was sent again, and what was measured.
pub(super) fn of_queue_pair(out: &mut dyn TraceSink, qp: &TracedQueuePair, process: u64) -> io::Result<()> {
    for counter in counters::of_queue_pair(qp) {
        let name = format!("QP {:#x}: {}", qp.qpn, counter.name);
        out.counter(CounterTrack { process, name: &name, unit: counter.unit }, &counter.values)?;
    }
    for (plane, unit, values) in counters::of_planes(qp) {
        let name = format!("QP {:#x}: {plane}", qp.qpn);
        out.counter(CounterTrack { process, name: &name, unit }, &values)?;
    }
    Ok(())
}

/// Writes the completions that wait for the program.
pub(super) fn of_completion_queues(
    out: &mut dyn TraceSink,
    process: &TimelineProcess,
    pid: u64,
) -> io::Result<()> {
    for waiting in counters::of_completion_queues(process) {
        let name = format!("CQ {}: completions that wait", waiting.cq);
        let track = CounterTrack { process: pid, name: &name, unit: CounterUnit::Completions };
        out.counter(track, &waiting.values)?;
    }
    Ok(())
}

/// `TrackEvent.Type`.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// `TrackDescriptor.ChildTracksOrdering`: by rank.
const EXPLICIT: u64 = 3;
/// Id of the sequence of all packets, which keeps the order of those with the same time.
const SEQUENCE: u64 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED`: nothing before the first packet is missing.
const CLEARED: u64 = 1;

/// A writer of packets.
pub(super) struct Pftrace<'a> {
    out: &'a mut dyn Write,
    counters: u64,
    is_begun: bool,
}

impl<'a> Pftrace<'a> {
    pub(super) fn begin(out: &'a mut dyn Write) -> Pftrace<'a> {
        Pftrace { out, counters: 0, is_begun: false }
    }

    /// Writes a `Trace.packet` with the sequence id.
    fn put(&mut self, packet: ProtobufMessage) -> io::Result<()> {
        let first = !std::mem::replace(&mut self.is_begun, true);
        let packet = packet.number(10, SEQUENCE);
        let packet = if first { packet.number(13, CLEARED) } else { packet };
        self.out.write_all(ProtobufMessage::default().message(1, &packet).bytes())
    }

    fn describe(&mut self, track: &ProtobufMessage) -> io::Result<()> {
        self.put(ProtobufMessage::default().message(60, track))
    }

    fn event(&mut self, at_ns: u64, event: &ProtobufMessage) -> io::Result<()> {
        self.put(ProtobufMessage::default().number(8, at_ns).message(11, event))
    }

    fn begin_slice(
        &mut self,
        track: Track,
        category: &str,
        slice: &Slice,
        arrow: Option<ArrowEnd>,
    ) -> io::Result<()> {
        let event = ProtobufMessage::default().number(9, BEGIN).number(11, id(track));
        let mut event = event.text(22, category).text(23, &slice.name);
        for (name, value) in slice.about.as_object().into_iter().flatten() {
            if let Some(annotation) = annotation(name, value) {
                event = event.message(4, &annotation);
            }
        }
        if let Some(ArrowEnd { id, begins }) = arrow {
            event = event.fixed(if begins { 47 } else { 48 }, id);
        }
        self.event(slice.start_ns, &event)
    }

    fn end_slice(&mut self, track: Track, slice: &Slice) -> io::Result<()> {
        let event = ProtobufMessage::default().number(9, END).number(11, id(track));
        self.event(slice.end_ns.max(slice.start_ns), &event)
    }
}

/// Returns the unique id of a track. The id of a process is that of its track 0.
const fn id(track: Track) -> u64 {
    track.process << 32 | track.index
}

const fn process_id(process: u64) -> u64 {
    id(Track { process, index: 0 })
}

/// Returns a `DebugAnnotation`, or `None` for an unknown value.
fn annotation(name: &str, value: &Value) -> Option<ProtobufMessage> {
    let named = ProtobufMessage::default().text(10, name);
    Some(match value {
        Value::Bool(is) => named.number(2, u64::from(*is)),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), ..) => named.number(3, number),
            (None, Some(number), _) => named.signed(4, number),
            (None, None, number) => named.real(5, number?),
        },
        Value::String(text) => named.text(6, text),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    })
}

/// Returns the `CounterDescriptor` of a unit.
fn counter_descriptor(unit: CounterUnit) -> ProtobufMessage {
    let known = |unit| ProtobufMessage::default().number(3, unit);
    match unit {
        CounterUnit::Nanoseconds => known(1),
        CounterUnit::Bytes => known(3),
        CounterUnit::Packets => ProtobufMessage::default().text(6, "packets"),
        CounterUnit::Naks => ProtobufMessage::default().text(6, "NAKs"),
        CounterUnit::Paths | CounterUnit::SkippedPaths => ProtobufMessage::default().text(6, "paths"),
        CounterUnit::Completions => ProtobufMessage::default().text(6, "completions"),
    }
}

impl TraceSink for Pftrace<'_> {
    fn process(&mut self, process: u64, name: &str) -> io::Result<()> {
        let about = ProtobufMessage::default().number(1, process).text(6, name);
        let track = ProtobufMessage::default().number(1, process_id(process)).message(3, &about);
        self.describe(&track.number(11, EXPLICIT))
    }

    fn track(&mut self, track: Track, name: &str) -> io::Result<()> {
        let about = ProtobufMessage::default().number(1, id(track)).text(2, name);
        self.describe(&about.number(5, process_id(track.process)).number(12, track.index))
    }

    fn span(&mut self, track: Track, category: &str, outer: &Slice, parts: &[Slice]) -> io::Result<()> {
        self.begin_slice(track, category, outer, None)?;
        for part in parts {
            self.begin_slice(track, category, part, None)?;
            self.end_slice(track, part)?;
        }
        self.end_slice(track, outer)
    }

    fn packet(&mut self, track: Track, slice: &Slice, arrow: Option<ArrowEnd>) -> io::Result<()> {
        self.begin_slice(track, "packet", slice, arrow)?;
        self.end_slice(track, slice)
    }

    fn mark(&mut self, track: Track, category: &str, name: &str, at_ns: u64) -> io::Result<()> {
        let event = ProtobufMessage::default().number(9, INSTANT).number(11, id(track));
        self.event(at_ns, &event.text(22, category).text(23, name))
    }

    fn counter(&mut self, counter: CounterTrack<'_>, values: &[(u64, i64)]) -> io::Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        // The bit keeps ids of counters apart from those of tracks, which have smaller indices.
        self.counters += 1;
        let own = process_id(counter.process) | 1 << 31 | self.counters;
        let about = ProtobufMessage::default().number(1, own).text(2, counter.name);
        let about = about.number(5, process_id(counter.process));
        self.describe(
            &about.message(8, &counter_descriptor(counter.unit)).number(12, 1 << 30 | self.counters),
        )?;
        for &(at_ns, value) in values {
            let event = ProtobufMessage::default().number(9, COUNTER).number(11, own);
            self.event(at_ns, &event.signed(30, value))?;
        }
        Ok(())
    }

    fn finish(&mut self, _remarks: &[String]) -> io::Result<()> {
        // Remarks were printed on standard error; this format has no field for them.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_format_says() {
        let inner = ProtobufMessage::default().text(2, "testing");
        assert_eq!(inner.bytes(), b"\x12\x07testing");
        let numbers = ProtobufMessage::default().number(1, 150).signed(3, -2).fixed(4, 1);
        let expected = [
            &[0x08, 0x96, 0x01][..],
            &[0x18, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x21, 1, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(numbers.bytes(), expected.concat());
        let outer = ProtobufMessage::default().message(60, &inner).real(5, 1.0);
        let expected = [&[0xe2, 0x03, 9][..], inner.bytes(), &[0x29, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]];
        assert_eq!(outer.bytes(), expected.concat());
    }
}
