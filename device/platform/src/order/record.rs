//! The recording of the order.

use std::fmt::Display;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::caller::Caller;
use super::schedule::{MAX_POINTS, ORDER, RequestReceiver};
use crate::outside::monotonic_ns;
use crate::outside::output_file::{OutputFile, complete_lines, on_standard_error};

/// A file with a line for each point.
pub(super) struct Record(Mutex<RecordState>);

struct RecordState {
    out: OutputFile,
    points: u32,
}

impl Record {
    /// Creates the record of this process in a folder; `None` if it cannot be written, which is reported.
    pub(super) fn begin(folder: &Path, process: u32) -> Option<Record> {
        let file = folder.join(format!("{process}.{ORDER}"));
        let made =
            OutputFile::create(&file, "the record of the order", complete_lines, Box::new(on_standard_error));
        match made {
            Ok(out) => Some(Record(Mutex::new(RecordState { out, points: 0 }))),
            Err(error) => {
                let file = file.display();
                on_standard_error(&format!("{file} cannot be written: {error}: the record lacks the order"));
                None
            }
        }
    }

    pub(super) fn call(&self, caller: Caller, call: &str) {
        self.line(&format_args!("{caller} {call}"));
    }

    /// Records a call that was made at an earlier time, in ns.
    pub(super) fn call_at(&self, at_ns: u64, caller: Caller, call: &str) {
        self.line_of(|| at_ns, &format_args!("{caller} {call}"));
    }

    pub(super) fn idle(&self, caller: Caller, call: &str) {
        self.line(&format_args!("{caller} -{call}"));
    }

    pub(super) fn arrival(&self, stream: RequestReceiver) {
        self.line(&format_args!("* {} {}", stream.address, stream.qpn));
    }

    fn line(&self, what: &dyn Display) {
        self.line_of(monotonic_ns, what);
    }

    fn line_of(&self, at_ns: impl FnOnce() -> u64, what: &dyn Display) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.points < MAX_POINTS {
            state.points += 1;
            // The lock makes the order of the file that of the times.
            let line = format!("{} {what}\n", at_ns());
            // A full disk is reported by `append`, and the rest of the order is not imposed.
            let _ = state.out.append(line.as_bytes());
        }
    }
}
