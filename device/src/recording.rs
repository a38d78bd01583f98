//! Traces that begin and end while a program runs, because another process of its user asks for them.
//!
//! No part of it exists before a process asks. The recorder is a temporary subscriber of the device, which
//! its thread removes again when its time is over, even if the process that asked has gone.

use std::io::{self, Error};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use pumice_model::event::{MAX_DYNAMIC_SUBSCRIBERS, Subscribers};
use pumice_model::recording::{Existing, MAX_RECORDING_MS, RecordCommand, RecordReply, Recorder};
use pumice_platform::outside;
use pumice_recording::recorder::{ClockBase, TraceFile, TraceNetwork, TraceSubscriber, create_private};

/// Least size of a trace, in bytes: its head and some records.
const MIN_BYTES: u64 = 1 << 16;

/// The device that traces are of.
pub(crate) struct TracedDevice {
    pub(crate) device: String,
    pub(crate) tag: String,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) network: TraceNetwork,
    pub(crate) base: ClockBase,
}

impl TracedDevice {
    /// Begins a trace.
    pub(crate) fn begin(&self, trace: TraceFile) -> io::Result<TraceSubscriber> {
        let names = (self.device.as_str(), self.tag.as_str());
        TraceSubscriber::begin(trace, self.base, names, self.addresses.clone(), &self.network)
    }
}

/// The maker of a device's traces while it is open.
pub(crate) struct LiveTraces {
    of: TracedDevice,
    events: Weak<Subscribers>,
    active: Vec<ActiveTrace>,
}

/// A trace that is being recorded.
struct ActiveTrace {
    file: String,
    trace: Weak<TraceSubscriber>,
}

impl Recorder for LiveTraces {
    fn apply_command(&mut self, order: &RecordCommand, now: &dyn Existing) -> Option<RecordReply> {
        self.active.retain(|active| active.trace.strong_count() > 0);
        match order {
            RecordCommand::Trace { file, for_ms, limit_bytes } => {
                let file = self.named(file);
                let time = Duration::from_millis((*for_ms).min(MAX_RECORDING_MS));
                let begun = self.begin(&file, time, (*limit_bytes).max(MIN_BYTES), now);
                let refused = begun.err().map(|error| format!("{file} cannot be written: {error}"));
                Some(RecordReply { file, refused, ..RecordReply::default() })
            }
            RecordCommand::Check { .. } => None,
            RecordCommand::End { file } => {
                let active = self.active.iter().find(|active| active.file == *file)?;
                if let Some(trace) = active.trace.upgrade() {
                    trace.end_recording();
                }
                Some(RecordReply { file: file.clone(), ..RecordReply::default() })
            }
        }
    }
}

impl LiveTraces {
    pub(crate) fn new(of: TracedDevice, events: &Arc<Subscribers>) -> LiveTraces {
        LiveTraces { of, events: Arc::downgrade(events), active: Vec::new() }
    }

    /// Returns the name of a file for this process and its device.
    fn named(&self, pattern: &str) -> String {
        let process = outside::process::number().to_string();
        pattern.replace("%p", &process).replace("%d", &self.of.device)
    }

    fn begin(&mut self, path: &str, time: Duration, limit_bytes: u64, now: &dyn Existing) -> io::Result<()> {
        let events = self.events.upgrade().ok_or_else(|| Error::other("its device is being closed"))?;
        if self.active.len() >= MAX_DYNAMIC_SUBSCRIBERS {
            return Err(Error::other("it is recorded by as many already as may do so: try again later"));
        }
        let file = create_private(Path::new(path))?;
        if file.try_lock().is_err() {
            return Err(Error::other("another process writes to it: name another file"));
        }
        file.set_len(0)?;
        // The file says what is missing, and the process that asked reads it.
        let on_problem = Box::new(|_: &str| {});
        let called = outside::environment::program();
        let program = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let trace = Arc::new(self.of.begin(TraceFile { file, limit_bytes, program, on_problem })?);
        let mut joined = None;
        trace.find(now, events.now_ns(), || {
            let guest = Arc::clone(&trace);
            joined = events.join(guest);
        });
        let Some(own) = joined else {
            trace.limit_time(Duration::ZERO, Box::new(|| {}));
            return Err(Error::other("it is recorded by as many already as may do so: try again later"));
        };
        let events = self.events.clone();
        let leave = move || {
            if let Some(events) = events.upgrade() {
                events.leave(own);
            }
        };
        trace.limit_time(time, Box::new(leave));
        self.active.push(ActiveTrace { file: path.to_owned(), trace: Arc::downgrade(&trace) });
        Ok(())
    }
}
