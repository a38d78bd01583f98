//! Traces that begin and end while a program runs, because another process of its user asks for them.
//!
//! Nothing is there before one asks. What listens is a guest of the device's subscribers, whose thread takes
//! it away again when its time is over, also if the process that asked has gone.

use std::io::{self, Error};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use pumice_events::recording::{Existing, MAX_RECORDING_MS, RecordAnswer, RecordOrder, Recorder};
use pumice_events::{MAX_GUESTS, Subscribers};
use pumice_ground::outside;
use pumice_instruments::trace::{ClockBase, TraceFile, TraceNetwork, TraceSubscriber, create_private};

/// Bytes of a trace, at least: its head and some records.
const LEAST_BYTES: u64 = 1 << 16;

/// The device that traces are of.
pub(crate) struct Recorded {
    pub(crate) device: String,
    pub(crate) tag: String,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) network: TraceNetwork,
    pub(crate) base: ClockBase,
}

impl Recorded {
    /// Begins a trace.
    pub(crate) fn begin(&self, trace: TraceFile) -> io::Result<TraceSubscriber> {
        let names = (self.device.as_str(), self.tag.as_str());
        TraceSubscriber::begin(trace, self.base, names, self.addresses.clone(), &self.network)
    }
}

/// What makes traces of a device while it is open.
pub(crate) struct LiveTraces {
    of: Recorded,
    events: Weak<Subscribers>,
    going: Vec<Going>,
}

/// A trace that is being recorded.
struct Going {
    file: String,
    trace: Weak<TraceSubscriber>,
}

impl Recorder for LiveTraces {
    fn obey(&mut self, order: &RecordOrder, now: &dyn Existing) -> Option<RecordAnswer> {
        self.going.retain(|going| going.trace.strong_count() > 0);
        match order {
            RecordOrder::Trace { file, for_ms, limit_bytes } => {
                let file = self.named(file);
                let time = Duration::from_millis((*for_ms).min(MAX_RECORDING_MS));
                let begun = self.begin(&file, time, (*limit_bytes).max(LEAST_BYTES), now);
                let refused = begun.err().map(|error| format!("{file} cannot be written: {error}"));
                Some(RecordAnswer { file, refused, ..RecordAnswer::default() })
            }
            RecordOrder::Check { .. } => None,
            RecordOrder::End { file } => {
                let going = self.going.iter().find(|going| going.file == *file)?;
                if let Some(trace) = going.trace.upgrade() {
                    trace.goes();
                }
                Some(RecordAnswer { file: file.clone(), ..RecordAnswer::default() })
            }
        }
    }
}

impl LiveTraces {
    pub(crate) fn new(of: Recorded, events: &Arc<Subscribers>) -> LiveTraces {
        LiveTraces { of, events: Arc::downgrade(events), going: Vec::new() }
    }

    /// The name of a file for this process and its device.
    fn named(&self, pattern: &str) -> String {
        let process = outside::process::number().to_string();
        pattern.replace("%p", &process).replace("%d", &self.of.device)
    }

    fn begin(&mut self, path: &str, time: Duration, limit_bytes: u64, now: &dyn Existing) -> io::Result<()> {
        let events = self.events.upgrade().ok_or_else(|| Error::other("its device is being closed"))?;
        if self.going.len() >= MAX_GUESTS {
            return Err(Error::other("it is recorded by as many already as may do so: try again later"));
        }
        let file = create_private(Path::new(path))?;
        if file.try_lock().is_err() {
            return Err(Error::other("another process writes to it: name another file"));
        }
        file.set_len(0)?;
        // What is missing stands in the file, which the process that asked reads.
        let say = Box::new(|_: &str| {});
        let called = outside::environment::program();
        let program = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let trace = Arc::new(self.of.begin(TraceFile { file, limit_bytes, program, say })?);
        let mut joined = None;
        trace.find(now, events.now_ns(), || {
            let guest = Arc::clone(&trace);
            joined = events.join(guest);
        });
        let Some(own) = joined else {
            trace.stays(Duration::ZERO, Box::new(|| {}));
            return Err(Error::other("it is recorded by as many already as may do so: try again later"));
        };
        let events = self.events.clone();
        let leave = move || {
            if let Some(events) = events.upgrade() {
                events.leave(own);
            }
        };
        trace.stays(time, Box::new(leave));
        self.going.push(Going { file: path.to_owned(), trace: Arc::downgrade(&trace) });
        Ok(())
    }
}
