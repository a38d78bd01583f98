//! Writes Chrome trace JSON, in which tracks are threads.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::super::slices::Slice;
use super::pftrace::{ArrowEnd, CounterTrack, TraceSink, Track};

/// A writer of events, one a line.
pub(super) struct Chrome<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
}

impl<'a> Chrome<'a> {
    /// Begins the document.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn begin(out: &'a mut dyn Write) -> io::Result<Chrome<'a>> {
        out.write_all(b"{\"displayTimeUnit\": \"ns\", \"traceEvents\": [")?;
        Ok(Chrome { out, is_first: true })
    }

    fn put(&mut self, event: &Value) -> io::Result<()> {
        self.out.write_all(if std::mem::take(&mut self.is_first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *self.out, event).map_err(io::Error::from)
    }

    fn slice(&mut self, track: Track, category: &str, slice: &Slice) -> io::Result<()> {
        let mut event = json!({
            "ph": "X", "pid": track.process, "tid": track.index, "cat": category, "name": slice.name,
            "ts": us(slice.start_ns), "dur": us(slice.end_ns.saturating_sub(slice.start_ns)),
        });
        if let (Some(fields), false) = (event.as_object_mut(), slice.about.is_null()) {
            fields.insert("args".to_owned(), slice.about.clone());
        }
        self.put(&event)
    }
}

/// Converts a time to microseconds.
fn us(ns: u64) -> Value {
    json!(ns as f64 / 1000.0)
}

impl TraceSink for Chrome<'_> {
    fn process(&mut self, process: u64, name: &str) -> io::Result<()> {
        let args = json!({"name": name});
        self.put(&json!({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": args}))
    }

    fn track(&mut self, track: Track, name: &str) -> io::Result<()> {
        let Track { process: pid, index: tid } = track;
        let args = json!({"name": name});
        self.put(&json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args}))?;
        let args = json!({"sort_index": tid});
        self.put(&json!({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": args}))
    }

    fn span(&mut self, track: Track, category: &str, outer: &Slice, parts: &[Slice]) -> io::Result<()> {
        self.slice(track, category, outer)?;
        parts.iter().try_for_each(|part| self.slice(track, category, part))
    }

    fn packet(&mut self, track: Track, slice: &Slice, arrow: Option<ArrowEnd>) -> io::Result<()> {
        self.slice(track, "packet", slice)?;
        let Some(ArrowEnd { id, begins }) = arrow else { return Ok(()) };
        let mut event = json!({
            "ph": if begins { "s" } else { "f" }, "pid": track.process, "tid": track.index, "cat": "packet",
            "name": "packet", "id": id, "ts": us(slice.start_ns),
        });
        if let (Some(fields), false) = (event.as_object_mut(), begins) {
            fields.insert("bp".to_owned(), json!("e"));
        }
        self.put(&event)
    }

    fn mark(&mut self, track: Track, category: &str, name: &str, at_ns: u64) -> io::Result<()> {
        self.put(&json!({
            "ph": "i", "s": "t", "pid": track.process, "tid": track.index, "cat": category, "name": name,
            "ts": us(at_ns),
        }))
    }

    fn counter(&mut self, counter: CounterTrack<'_>, values: &[(u64, i64)]) -> io::Result<()> {
        let CounterTrack { process, name, .. } = counter;
        values.iter().try_for_each(|&(at_ns, value)| {
            let args = json!({"value": value});
            self.put(&json!({"ph": "C", "pid": process, "name": name, "ts": us(at_ns), "args": args}))
        })
    }

    fn finish(&mut self, remarks: &[String]) -> io::Result<()> {
        let about = json!({"writer": "pumice trace to-perfetto", "remarks": remarks});
        write!(self.out, "\n], \"otherData\": {about}}}\n")
    }
}
